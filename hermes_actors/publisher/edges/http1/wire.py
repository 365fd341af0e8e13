"""The bytes of one HTTP/1.1 connection, taken apart into requests and pieces of their bodies; and
answers as bytes. Pure: no socket, no clock.

llhttp reads header lines and chunks. What it takes beyond RFC 9112 is refused before it is asked
(spaces and control characters in the request line, other protocols, empty lines before a request)
or after it (a second Host, a coding other than chunks). It is never given more than one message: no
two readers of a connection can then see the end of a request at different places.
"""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from wsgiref.handlers import format_date_time

import httptools

from hermes_actors.config import FrontendConfig
from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import ABSENT, CHUNKED

END_OF_HEAD = b"\r\n\r\n"
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")
TARGET = re.compile(rb"[!-~]+")
_REQUEST_LINE = re.compile(
    rb"(%b) (%b) HTTP/1\.([01])\r\n" % ("|".join(METHODS).encode(), TARGET.pattern)
)
_ANY_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) [!-~]+ HTTP/[0-9]\.[0-9]\r\n")
_PART_OF_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?: (?:[!-~]+(?: (?:[!-~]+\r?)?)?)?)?")
_BARE_ENDS = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_LINE_BYTES = 32
"""The most that a request line has beside its target, or a header line beside name and value."""

_KNOWN_MAX = 1_024
_KNOWN_BYTES_MAX = 1_024

BAD_REQUEST, URI_TOO_LONG, TOO_LARGE, NOT_IMPLEMENTED, VERSION_NOT_SUPPORTED = (
    400, 414, 431, 501, 505,
)  # fmt: skip
_PARTS_MAX = 32
"""A body of nothing but empty lines has a part for each four bytes."""
_PART_BYTES, _PART_BYTES_MAX = 2_048, 65_536
"""Large chunks are parsed in longer parts; of chunks of one byte each the shortest part has 341."""
_PIECES_MAX = 32
"""After these the caller has its say."""
_CHUNKED_REQUEST = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"Connection: close\r\n"
_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_LINES = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()
    for status in range(100, 600)
}


class Malformed(Exception):
    """No request, or one that nobody may read: `status` is the answer, and nothing follows it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _request(raw: bytes, config: FrontendConfig) -> Request:
    """Return the request of a whole head with the empty line at its end. Raises Malformed."""
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise Malformed(_status_of(raw))
    parsed = _Fields(raw)
    pairs = parsed.pairs
    if b" \r\n" in raw or b"\t\r\n" in raw:
        # The parser leaves what blanks stand behind a value.
        pairs = [(name, value.rstrip(b" \t")) for name, value in pairs]
    fields = {name.lower(): value for name, value in pairs}
    version = f"1.{line[3].decode()}"
    if len(fields) != len(pairs):
        _check_repeated(pairs)
    is_chunked = b"transfer-encoding" in fields and _is_chunked(fields, version)
    if parsed.problem or (b"host" not in fields and version == "1.1"):
        raise Malformed(BAD_REQUEST)
    length = fields.get(b"content-length")
    return Request(
        config,
        version,
        line[1].decode(),
        line[2].decode(),
        pairs,
        fields,
        CHUNKED if is_chunked else ABSENT if length is None else int(length),
        keeps_alive=parsed.keeps_alive and version == "1.1",
    )


def _check_repeated(pairs: list[tuple[bytes, bytes]]) -> None:
    names = [name.lower() for name, _ in pairs]
    if names.count(b"host") > 1:
        raise Malformed(BAD_REQUEST)
    if names.count(b"transfer-encoding") > 1:
        raise Malformed(NOT_IMPLEMENTED)


def _is_chunked(fields: Mapping[bytes, bytes], version: str) -> bool:
    if version == "1.0" or b"content-length" in fields:
        # Another reader may see the request's end elsewhere, and a second request after it.
        raise Malformed(BAD_REQUEST)
    if fields[b"transfer-encoding"].lower() != b"chunked":
        raise Malformed(NOT_IMPLEMENTED)
    return True


class _Fields:
    """The fields of one head as the parser finds them; `problem`: it cannot read them."""

    __slots__ = ("_parser", "keeps_alive", "pairs", "problem")

    def __init__(self, raw: bytes) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.keeps_alive = self.problem = False
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            # Nothing is switched to: the request is answered as it stands.
            pass
        except httptools.HttpParserError:
            self.problem = True
        del self._parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        self.keeps_alive = self._parser.should_keep_alive()


class Heads:
    """The requests that connections begin with, each distinct head of late taken apart once.

    Publishers send the same head again and again, on many connections.
    """

    def __init__(self, config: FrontendConfig) -> None:
        self._config = config
        self._known: dict[bytes, Request] = {}
        self._line_bytes_max = config.url_bytes_max + _LINE_BYTES
        self.bytes_max = (
            self._line_bytes_max + config.header_bytes_max + _LINE_BYTES * config.headers_max
        )
        """More than a head has that is within the limits."""

    def request(self, raw: bytes) -> Request:
        """Return the request that has this head. Raises Malformed."""
        request = self._known.get(raw)
        if request is None:
            if len(raw) > self.bytes_max:
                raise Malformed(TOO_LARGE)
            request = _request(raw, self._config)
            if len(raw) <= _KNOWN_BYTES_MAX:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[raw] = request
        return request

    def check_part(self, part: bytes) -> None:
        """Refuse at once what cannot become a head."""
        if b"\r\n" in part:
            if _REQUEST_LINE.match(part) is None:
                raise Malformed(_status_of(part))
        elif len(part) > self._line_bytes_max:
            raise Malformed(URI_TOO_LONG)
        elif _PART_OF_LINE.fullmatch(part) is None:
            raise Malformed(BAD_REQUEST)
        if _BARE_ENDS.search(part) is not None:
            raise Malformed(BAD_REQUEST)
        if len(part) > self.bytes_max:
            raise Malformed(TOO_LARGE)


class Chunks:
    """One chunked body, decoded; what follows it is not touched."""

    __slots__ = ("_overhead_bytes", "_overhead_bytes_max", "_parser", "_part_bytes", "_pieces",
                 "_tail", "is_complete")  # fmt: skip

    def __init__(self, overhead_bytes_max: int) -> None:
        """Allow `overhead_bytes_max` bytes of sizes, extensions and trailers without a byte of the
        body.
        """
        self._overhead_bytes_max = overhead_bytes_max
        self._overhead_bytes = 0
        self._part_bytes = _PART_BYTES
        self._pieces: list[bytes] = []
        self._tail = b""
        self.is_complete = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_CHUNKED_REQUEST)

    def take(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The decoded bytes of `data` from `at` on, and where it went on to. Raises Malformed.

        Ends at the body's end, which `is_complete` tells, or with a piece of it.
        """
        parts = 0
        while at < len(data) and not self.is_complete:
            if self._pieces and (parts >= _PARTS_MAX or len(self._pieces) >= _PIECES_MAX):
                break
            parts += 1
            end = self._end_of_part(data, at)
            part = data[at:end] if at or end < len(data) else data
            before = len(self._pieces)
            try:
                self._parser.feed_data(part)
            except httptools.HttpParserError as error:
                raise Malformed(BAD_REQUEST) from error
            self._tail = (self._tail + part[-3:])[-3:]
            self._count(len(part))
            self._part_bytes = (
                min(2 * self._part_bytes, _PART_BYTES_MAX)
                if len(self._pieces) - before <= 2
                else _PART_BYTES
            )
            at = end
        pieces, self._pieces = self._pieces, []
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), at

    def _end_of_part(self, data: bytes, at: int) -> int:
        """A body ends with an empty line. The parser is given no byte beyond the next one, since it
        would not tell where it has found the end.
        """
        seam = self._tail + data[at : at + 3]
        found = seam.find(END_OF_HEAD)
        if found >= 0:
            return at + found + 4 - len(self._tail)
        end = min(at + self._part_bytes, len(data))
        found = data.find(END_OF_HEAD, at, end)
        return end if found < 0 else found + 4

    def _count(self, size_bytes: int) -> None:
        if self._pieces:
            self._overhead_bytes = 0
            return
        self._overhead_bytes += size_bytes
        if self._overhead_bytes > self._overhead_bytes_max:
            raise Malformed(BAD_REQUEST)

    # The parser's callbacks.

    def on_body(self, piece: bytes) -> None:
        """Take a piece of a chunk."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Take the last chunk, and the trailers after it."""
        self.is_complete = True


class End:
    """The end of a body whose pieces came one by one."""


END = End()


class RequestReader:
    """One connection's requests: `receive` what comes, then ask `next` until it gives None."""

    __slots__ = ("_at", "_chunks", "_data", "_heads", "_left_bytes", "_scanned", "is_in_body")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._data = b""
        self._at = self._scanned = 0
        self._left_bytes = 0
        self._chunks: Chunks | None = None
        self.is_in_body = False
        """A request has been given, and not all of its body."""

    @property
    def has_bytes(self) -> bool:
        """True when something has come that has not been taken."""
        return self._at < len(self._data)

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def next(self) -> Request | bytes | End | None:
        """Return the next request, a piece of its body, or the body's END; None: not here yet.

        After a request whose body `whole_body` gave, the next request follows. Raises Malformed;
        nothing may be asked after that.
        """
        if self.is_in_body:
            return self._next_piece()
        return self._next_request() if self._at < len(self._data) else None

    def whole_body(self) -> bytes | None:
        """The body of the request that `next` has just given; None when not all of it is here, or
        it comes in chunks.
        """
        if self._chunks is not None:
            return None
        at, data = self._at, self._data
        end = at + self._left_bytes
        if end > len(data):
            return None
        self._at = end
        self._left_bytes = 0
        self.is_in_body = False
        return data[at:end]

    def _next_request(self) -> Request | None:
        data, at = self._data, self._at
        end = data.find(END_OF_HEAD, at + self._scanned)
        if end < 0:
            self._heads.check_part(data[at:] if at else data)
            # The empty line may have begun.
            self._scanned = max(0, len(data) - at - 3)
            return None
        self._scanned = 0
        self._at = end + 4
        request = self._heads.request(data[at : end + 4])
        if request.expected_bytes == CHUNKED:
            self._chunks = Chunks(self._heads.bytes_max)
        else:
            self._left_bytes = max(0, request.expected_bytes)
        self.is_in_body = True
        return request

    def _next_piece(self) -> bytes | End | None:
        if self._chunks is not None:
            piece, self._at = self._chunks.take(self._data, self._at)
            if piece:
                return piece
            if not self._chunks.is_complete:
                return None
            self._chunks = None
        elif self._left_bytes:
            at = self._at
            piece = self._data[at : at + self._left_bytes]
            self._at = at + len(piece)
            self._left_bytes -= len(piece)
            return piece or None
        self.is_in_body = False
        return END


def _status_of(head: bytes) -> int:
    """Return the status for what does not begin like a request that is served."""
    line = _ANY_REQUEST_LINE.match(head)
    if line is None:
        return BAD_REQUEST
    if line[1].decode() not in METHODS:
        return NOT_IMPLEMENTED
    return VERSION_NOT_SUPPORTED


class Renderer:
    """Renders answers with the date of the last `tick`."""

    def __init__(self, config: FrontendConfig) -> None:
        self._keep_alive = b""
        if config.keep_alive_header:
            self._keep_alive = b"Keep-Alive: timeout=%d\r\n" % config.keep_alive_header_timeout_s
        self._date_s = -1
        self.date = ""
        self._date = self._stored = b""

    def tick(self, now_ms: int) -> None:
        """Set the time by the wall clock, which answers are dated with."""
        now_s = now_ms // 1_000
        if now_s != self._date_s:
            self._date_s = now_s
            self.date = format_date_time(now_s)
            self._date = f"Date: {self.date}\r\n".encode()
            self._stored = b"%b%bContent-Length: 0\r\nHermes-Message-Id: " % (
                _LINES[201],
                self._date,
            )

    def stored(self, message_id: str, *, closes: bool) -> bytes:
        """The 201 of a message."""
        return b"%b%b\r\n%b\r\n" % (
            self._stored,
            message_id.encode(),
            _CLOSE if closes else self._keep_alive,
        )

    def answer(
        self, answer: Answer, *, is_of_publish: bool, closes: bool, is_bare: bool = False
    ) -> bytes:
        """A whole answer; one to a publish tells of the connection as the configuration wants, one
        that is bare has no body.
        """
        keep_alive = self._keep_alive if is_of_publish else b""
        return b"%b%b%b%b\r\n%b" % (
            _LINES[answer.status],
            self._date,
            _lines(answer.fields()),
            _CLOSE if closes else keep_alive,
            b"" if is_bare else answer.body,
        )

    def head(
        self, status: int, fields: Sequence[tuple[bytes, bytes]], *, is_chunked: bool, closes: bool
    ) -> bytes:
        """The beginning of an answer that comes in pieces; it ends with the connection if neither
        in chunks nor with its length.
        """
        return b"%b%b%b%b%b\r\n" % (
            _LINES[status],
            self._date,
            _lines(fields),
            b"Transfer-Encoding: chunked\r\n" if is_chunked else b"",
            _CLOSE if closes else self._keep_alive,
        )


def chunk(data: bytes) -> bytes:
    """One chunk of an answer; one of nothing is its end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % (name.title(), value) for name, value in fields])
