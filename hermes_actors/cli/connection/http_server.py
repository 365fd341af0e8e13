"""A small HTTP/1.1 server on trio: keep-alive, pipelining and chunked bodies, all bounded."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import httptools
import trio

_RECEIVE_BYTES = 65_536
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(slots=True)
class Request:
    """One request, complete. Header names are lower case; of a repeated one the last counts."""

    method: str = ""
    path: str = ""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    keeps_alive: bool = True


class RequestRefused(Exception):
    """The bytes are no request that is taken; the connection ends after this status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class RequestReader:
    """Bytes in, whole requests out; no I/O. Raises RequestRefused beyond its bounds."""

    def __init__(self, *, header_bytes_max: int, body_bytes_max: int) -> None:
        self._header_bytes_max = header_bytes_max
        self._body_bytes_max = body_bytes_max
        self._parser = httptools.HttpRequestParser(self)
        self._done: list[Request] = []
        self._body: list[bytes] = []
        self._over: HTTPStatus | None = None
        self.wants_continue = False
        self._begin()

    def _begin(self) -> None:
        self._request = Request()
        self._url = b""
        self._body = []
        self._header_bytes = 0
        self._body_bytes = 0

    def feed(self, data: bytes) -> list[Request]:
        """The requests that these bytes complete."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise RequestRefused(self._over or HTTPStatus.BAD_REQUEST) from error
        done, self._done = self._done, []
        return done

    # What follows is called by the parser; raising in it ends the parse.

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._url += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count_header(len(name) + len(value))
        self._request.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """All headers are there."""
        if self._request.headers.get(b"expect", b"").lower() == b"100-continue":
            self.wants_continue = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body, without chunk framing."""
        self._body_bytes += len(body)
        if self._body_bytes > self._body_bytes_max:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        request = self._request
        request.method = self._parser.get_method().decode("ascii")
        request.path = self._url.decode("latin-1")
        request.body = b"".join(self._body)
        request.keeps_alive = bool(self._parser.should_keep_alive())
        self.wants_continue = False
        self._done.append(request)
        self._begin()

    def _count_header(self, more: int) -> None:
        self._header_bytes += more
        if self._header_bytes > self._header_bytes_max:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _refuse(self, status: HTTPStatus) -> None:
        self._over = status
        raise RequestRefused(status)


Respond = Callable[[Request], Awaitable[bytes]]


class HttpServer:
    """Serves each connection in its own task; `respond` gives the whole answer as bytes."""

    def __init__(
        self,
        respond: Respond,
        *,
        connections_max: int = 2_000,
        header_bytes_max: int = 65_536,
        body_bytes_max: int = 64 * 1_048_576,
        idle_timeout_s: float = 120.0,
    ) -> None:
        self._respond = respond
        self._connections_max = connections_max
        self._header_bytes_max = header_bytes_max
        self._body_bytes_max = body_bytes_max
        self._idle_timeout_s = idle_timeout_s
        self._connections = 0
        self._accepting = trio.CancelScope()
        # A dict keeps its order, so that a drain ends connections in the order they came.
        self._receiving: dict[trio.CancelScope, None] = {}
        self._drains = False

    async def serve(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `drain` is called and the requests under way are answered."""
        async with trio.open_nursery() as connections:
            with self._accepting:
                task_status.started()
                await trio.serve_listeners(
                    self.serve_stream, list(listeners), handler_nursery=connections
                )

    def drain(self) -> None:
        """Take no more connections and requests; those under way are still answered."""
        self._drains = True
        self._accepting.cancel()
        for scope in self._receiving:
            scope.cancel()

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends, idles too long or breaks the protocol."""
        if self._connections >= self._connections_max:
            await stream.aclose()
            return
        self._connections += 1
        reader = RequestReader(
            header_bytes_max=self._header_bytes_max, body_bytes_max=self._body_bytes_max
        )
        try:
            async with stream:
                while await self._serve_some(stream, reader):
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The peer went away; what it asked for is its own loss.
            pass
        finally:
            self._connections -= 1

    async def _serve_some(self, stream: trio.abc.Stream, reader: RequestReader) -> bool:
        """Answer what one read brings; False when the connection is to end."""
        data = await self._receive(stream)
        if not data:
            return False
        try:
            requests = reader.feed(data)
        except RequestRefused as refused:
            await stream.send_all(answer(refused.status, keeps_alive=False))
            return False
        if reader.wants_continue:
            reader.wants_continue = False
            await stream.send_all(_CONTINUE)
        for request in requests:
            await stream.send_all(await self._respond(request))
            if not request.keeps_alive:
                return False
        return not self._drains

    async def _receive(self, stream: trio.abc.Stream) -> bytes:
        with trio.move_on_after(self._idle_timeout_s) as scope:
            self._receiving[scope] = None
            try:
                return bytes(await stream.receive_some(_RECEIVE_BYTES))
            finally:
                del self._receiving[scope]
        return b""


def answer(
    status: HTTPStatus | int,
    body: bytes = b"",
    headers: Sequence[tuple[str, str]] = (),
    *,
    keeps_alive: bool = True,
) -> bytes:
    """A whole HTTP/1.1 answer."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    lines = [f"HTTP/1.1 {int(status)} {phrase}"]
    # 204 and 304 have no body and must not announce one.
    if int(status) not in (204, 304):
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    if not keeps_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
