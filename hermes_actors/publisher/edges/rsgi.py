"""The same publishing over RSGI, granian's own interface: status and body as on the ASGI edge."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import Refused, Unavailable
from hermes_actors.log.base import Stored
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.cells import AsyncioCell
from hermes_actors.publisher.edges.heads import HeadLimits
from hermes_actors.publisher.edges.pieces import ChunkStream, Pieces
from hermes_actors.publisher.edges.streams import Left, run_stream
from hermes_actors.publisher.forms import ANSWERS
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.head import TextHead
from hermes_actors.publisher.publication import CHUNKED, Abandoned, Publication
from hermes_actors.publisher.status import Pages, batch_topic_in, topic_in

Headers = list[tuple[str, str]]

_CLOSE = ("connection", "close")
_KEY_IS_HIDDEN = "Partition-Key has characters other than visible ASCII"
_ANSWERS = 16
"""How many times `batch_answer_bytes_max` one batch may be answered in all."""
_TORN = (
    "The chunked body broke off, or trailers follow it, which this server cannot tell apart: send "
    "it to its end, without trailers"
)


class RequestHeaders(Protocol):
    """granian's view of the request headers. Values that are not ASCII are not shown."""

    def items(self) -> Headers:
        """All of them, names in lower case."""

    def __contains__(self, name: str) -> bool: ...

    def __len__(self) -> int: ...


class Scope(Protocol):
    """One request, without its body."""

    proto: str
    http_version: str
    method: str
    path: str
    query_string: str
    headers: RequestHeaders


class Transport(Protocol):
    """The body of an answer, sent as it is made."""

    def send_bytes(self, data: bytes) -> Awaitable[None]:
        """Send a piece."""


class Exchange(Protocol):
    """granian's side of one request: the body in, the answer out."""

    def __call__(self) -> Awaitable[bytes]:
        """The whole body."""

    def __aiter__(self) -> ChunkStream:
        """The body in pieces."""

    def response_stream(self, status: int, headers: Headers) -> Transport:
        """Begin an answer whose body comes in pieces."""

    def response_empty(self, status: int, headers: Headers) -> None:
        """Answer without a body."""

    def response_bytes(self, status: int, headers: Headers, body: bytes) -> None:
        """Answer with a body."""


class RsgiEdge:
    """The app. `disconnects` are the exceptions that mean that the client has gone."""

    def __init__(
        self,
        gateway: Gateway,
        pages: Pages,
        config: FrontendConfig,
        disconnects: tuple[type[Exception], ...],
    ) -> None:
        self._gateway = gateway
        self._pages = pages
        self._disconnects = disconnects
        self._limits = HeadLimits(config)
        self._body_bytes_max = config.body_bytes_max
        self._answer_bytes_max = _ANSWERS * config.batch_answer_bytes_max
        self._keep_alive: Headers = []
        if config.keep_alive_header:
            self._keep_alive = [("keep-alive", f"timeout={config.keep_alive_header_timeout_s}")]

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        """Serve one request."""
        pairs = scope.headers.items()
        topic = topic_in(scope.method, scope.path)
        refusal = self._limits.refusal(scope.path, scope.query_string, pairs)
        if refusal is not None:
            _answer(scope, exchange, refusal, [])
            return
        batch = None if topic is not None else batch_topic_in(scope.method, scope.path)
        if topic is None and batch is None:
            page = await self._pages.answer(scope.method, scope.path)
            _answer(scope, exchange, page, [])
            return
        fields = dict(pairs)
        if "transfer-encoding" in fields:
            # The last one is not all: what came before it is still in the body.
            codings = [value for name, value in pairs if name == "transfer-encoding"]
            fields["transfer-encoding"] = ", ".join(codings)
        key = fields.get("partition-key")
        head = TextHead(pairs, fields)
        if self._gateway.security is not None:
            unknown = await self._gateway.security.identify(topic or batch or "", head)
            if unknown is not None:
                _answer(scope, exchange, unknown, self._extra(scope))
                return
        if topic is None:
            await self._serve_batch(batch or "", key, head, scope, exchange)
            return
        cell = AsyncioCell()
        admitted = self._gateway.admit(
            topic,
            fields.get("content-length"),
            fields.get("transfer-encoding"),
            None if key is None else key.encode(),
            head,
            cell,
        )
        if isinstance(admitted, Answer):
            _answer(scope, exchange, admitted, self._extra(scope))
            return
        if len(scope.headers) != len(pairs):
            # The server hides values that are not ASCII.
            hidden = _hidden_name(scope.headers, fields)
            if hidden is not None:
                admitted.settle(Refused(f"{hidden} has characters other than visible ASCII"))
        body = b""
        if admitted.expected_bytes and not admitted.is_done:
            body = await self._read(admitted, cell, exchange)
        self._gateway.hand_over(admitted, body)
        await cell.wait()
        extra = self._extra(scope)
        if type(admitted.outcome) is Stored:
            headers = [("content-length", "0"), ("hermes-message-id", admitted.id)]
            if extra:
                headers += extra
            if self._gateway.tells_quota:
                headers += self._gateway.quota_headers(admitted)
            exchange.response_empty(201, headers)
        elif not isinstance(admitted.outcome, Abandoned):
            _answer(scope, exchange, self._gateway.answer(admitted), extra)

    async def _serve_batch(
        self, topic: str, key: str | None, head: TextHead, scope: Scope, exchange: Exchange
    ) -> None:
        batches = self._gateway.batches
        is_hidden = key is None and "partition-key" in scope.headers
        stream = (
            batches.refuse(topic, head, Refused(_KEY_IS_HIDDEN))
            if is_hidden
            else batches.open(topic, None if key is None else key.encode(), head)
        )
        if isinstance(stream, Answer):
            _answer(scope, exchange, stream, self._extra(scope))
            return
        length = head.get("content-length") or ""
        left_bytes = int(length) if length.isdigit() else None
        peer = _Peer(
            exchange,
            self._extra(scope),
            self._disconnects,
            left_bytes,
            partial(stream.stop, _too_many_answers(self._answer_bytes_max)),
            self._answer_bytes_max,
            is_http2=scope.http_version >= "2",
        )
        await run_stream(stream, peer, batches.idle_s)

    def _extra(self, scope: Scope) -> Headers:
        """What an answer to a publish says of its connection."""
        if scope.http_version >= "2":
            return []
        return [_CLOSE] if self._gateway.is_leaving else self._keep_alive

    async def _read(self, publication: Publication, cell: AsyncioCell, exchange: Exchange) -> bytes:
        """The body; incomplete when the publication is settled."""
        parts: list[bytes] = []
        size = 0
        try:
            if publication.expected_bytes != CHUNKED:
                return await cell.read(exchange) or b""
            pieces = Pieces(exchange.__aiter__())
            while part := await cell.read(pieces.read):
                size += len(part)
                if size > self._body_bytes_max:
                    self._gateway.refuse_body(publication, size)
                    break
                parts.append(part)
            if not (pieces.is_whole or publication.is_done):
                publication.settle(Refused(_TORN))
        except self._disconnects:
            self._gateway.abandon(publication)
        return b"".join(parts)


def _too_many_answers(bytes_max: int) -> Unavailable:
    return Unavailable(
        f"This server keeps at most {bytes_max} bytes of one batch's answers: lines after this "
        "were not read; send them in another request"
    )


def _hidden_name(headers: RequestHeaders, fields: Mapping[str, str]) -> str | None:
    """The header that the message cannot do without and whose value is hidden: without its key it
    would lose its place in the order, or be stored twice.
    """
    for name in ("Partition-Key", "Idempotency-Key"):
        lower = name.lower()
        if lower not in fields and lower in headers:
            return name
    return None


class _Peer:
    """A batch's connection.

    `left_bytes` of an announced length are still to come, None where none is announced. Then the
    end of chunks can be told from that of the connection, but not the end of a body over HTTP/2.

    The server takes whatever is written, and keeps in memory what the publisher does not read, of
    which it tells nothing. So after `answer_bytes_max` the stream is to `end`.
    """

    def __init__(
        self,
        exchange: Exchange,
        extra: Headers,
        disconnects: tuple[type[Exception], ...],
        left_bytes: int | None,
        end: Callable[[], None],
        answer_bytes_max: int,
        *,
        is_http2: bool,
    ) -> None:
        self._end = end
        self._room_bytes = answer_bytes_max
        self._left_bytes = left_bytes
        self._is_http2 = is_http2
        self.is_whole = left_bytes is not None
        self._exchange = exchange
        self._headers = [("content-type", ANSWERS), *extra]
        self._disconnects = disconnects
        self._body = Pieces(exchange.__aiter__())
        self._transport: Transport | None = None

    async def read(self) -> bytes | None:
        """As `Peer.read`."""
        try:
            piece = await self._body.read()
        except self._disconnects as error:
            raise Left from error
        if self._left_bytes is not None:
            self._left_bytes -= len(piece)
            if not piece and self._left_bytes:
                raise Left
        elif not piece:
            self.is_whole = self._body.is_whole and not self._is_http2
        return piece or None

    async def write(self, data: bytes) -> None:
        """As `Peer.write`."""
        try:
            await self._begun().send_bytes(data)
        except self._disconnects as error:
            raise Left from error
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            self._end()

    async def finish(self) -> None:
        """As `Peer.finish`. The answer ends when nobody holds its transport any more."""
        self._begun()
        self._transport = None

    def _begun(self) -> "Transport":
        if self._transport is None:
            self._transport = self._exchange.response_stream(200, self._headers)
        return self._transport


def _answer(scope: Scope, exchange: Exchange, answer: Answer, extra: Headers) -> None:
    headers = [("content-length", str(len(answer.body))), *extra]
    if answer.content_type:
        headers.append(("content-type", answer.content_type))
    if answer.message_id:
        headers.append(("hermes-message-id", answer.message_id))
    if answer.allow:
        headers.append(("allow", answer.allow))
    headers += answer.headers
    if answer.closes and scope.http_version < "2" and _CLOSE not in extra:
        headers.append(_CLOSE)
    if answer.body:
        exchange.response_bytes(answer.status, headers, answer.body)
    else:
        exchange.response_empty(answer.status, headers)
