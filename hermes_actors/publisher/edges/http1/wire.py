"""Parses the bytes of one HTTP/1.1 connection into requests and pieces of their bodies, and renders
answers as bytes. Pure: no socket, no clock.

llhttp parses header lines and chunks. Input that llhttp accepts beyond RFC 9112 is refused before
it is called (spaces and control characters in the request line, other protocols, empty lines before
a request) or after it (a second Host, a transfer coding other than chunked). llhttp never gets more
than one message at a time, so that two parsers of a connection cannot disagree about the end of a
request.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
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
"""Overhead of a request line besides its target, and of a header line besides name and value."""

_KNOWN_MAX = 1_024
_KNOWN_BYTES_MAX = 1_024

BAD_REQUEST, URI_TOO_LONG, TOO_LARGE, NOT_IMPLEMENTED, VERSION_NOT_SUPPORTED = (
    400, 414, 431, 501, 505,
)  # fmt: skip
_PARTS_MAX = 32
"""Maximum parts per call; a body of empty lines has a part for each four bytes."""
_PART_BYTES = 1_024
"""Only a chunk's data is longer; this many bytes hold 170 chunks of one byte."""
_PIECES_MAX = 32
"""After this many pieces the caller gets control back."""
_CHUNK_SIZE = re.compile(rb"0{0,7}([1-9A-Fa-f][0-9A-Fa-f]{0,6})\r\n")
_PART_OF_SIZE = re.compile(rb"0{0,7}[1-9A-Fa-f][0-9A-Fa-f]{0,6}\r?")
_CHUNKED_REQUEST = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = b"Connection: close\r\n"
_PHRASES = {each.value: each.phrase for each in HTTPStatus}
_LINES = {
    status: f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()
    for status in range(100, 600)
}


class Malformed(Exception):
    """The input is not a request, or not one that is served. `status` is the answer; the connection
    then closes.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _request(raw: bytes, config: FrontendConfig) -> Request:
    """Parse a whole head, including the empty line at its end. Raises Malformed."""
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise Malformed(_status_of(raw))
    parsed = _Fields(raw)
    pairs = parsed.pairs
    if b" \r\n" in raw or b"\t\r\n" in raw:
        # The parser keeps trailing blanks of values.
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
        # Another parser might see the end of the request elsewhere, and a second request after it
        # (request smuggling).
        raise Malformed(BAD_REQUEST)
    if fields[b"transfer-encoding"].lower() != b"chunked":
        raise Malformed(NOT_IMPLEMENTED)
    return True


class _Fields:
    """The header fields of one head as llhttp finds them. `problem`: it cannot parse them."""

    __slots__ = ("_parser", "keeps_alive", "pairs", "problem")

    def __init__(self, raw: bytes) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.keeps_alive = self.problem = False
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            # The protocol is not switched: the request is answered as it is.
            pass
        except httptools.HttpParserError:
            self.problem = True
        del self._parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        self.keeps_alive = self._parser.should_keep_alive()


class Heads:
    """Parses the heads of requests, and remembers recent ones, because publishers send the same
    head again and again on many connections.
    """

    def __init__(self, config: FrontendConfig) -> None:
        self._config = config
        self._known: dict[Hashable, Request] = {}
        self._line_bytes_max = config.url_bytes_max + _LINE_BYTES
        self.bytes_max = (
            self._line_bytes_max + config.header_bytes_max + _LINE_BYTES * config.headers_max
        )
        """Larger than any head within the limits."""

    def request(self, raw: bytes) -> Request:
        """Return the request with this head. Raises Malformed."""
        request = self._known.get(raw)
        if request is None:
            if len(raw) > self.bytes_max:
                raise Malformed(TOO_LARGE)
            request = _request(raw, self._config)
            self._remember(raw, len(raw), request)
        return request

    def _remember(self, head: Hashable, size_bytes: int, request: Request) -> None:
        if size_bytes <= _KNOWN_BYTES_MAX:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[head] = request

    def check_part(self, part: bytes) -> None:
        """Raise Malformed at once for the beginning of a head that cannot become valid."""
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
    """Decodes one chunked body; bytes after it are not touched."""

    __slots__ = ("_is_plain", "_left_bytes", "_overhead_bytes", "_overhead_bytes_max", "_parser",
                 "_pieces", "_tail", "is_complete")  # fmt: skip

    def __init__(self, overhead_bytes_max: int) -> None:
        """Allow at most `overhead_bytes_max` consecutive bytes of chunk sizes, extensions and
        trailers without a byte of the body.
        """
        self._overhead_bytes_max = overhead_bytes_max
        self._overhead_bytes = 0
        # Until something else than chunks without extensions comes: the bytes missing of the last.
        self._is_plain, self._left_bytes = True, 0
        self._pieces: list[bytes] = []
        self._tail = b""
        self.is_complete = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_CHUNKED_REQUEST)

    def take(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Decode `data` from `at` on. Returns decoded bytes and the position reached. Raises
        Malformed.

        Returns early with a piece of the body, or at its end, when `is_complete` is True.
        """
        parts = 0
        while at < len(data) and not self.is_complete:
            if self._pieces and (parts >= _PARTS_MAX or len(self._pieces) >= _PIECES_MAX):
                break
            parts += 1
            end = self._end_of_part(data, at)
            if end == at:
                break
            part = data[at:end] if at or end < len(data) else data
            try:
                self._parser.feed_data(part)
            except httptools.HttpParserError as error:
                raise Malformed(BAD_REQUEST) from error
            self._tail = (self._tail + part[-3:])[-3:]
            self._count(len(part))
            at = end
        pieces, self._pieces = self._pieces, []
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), at

    def _end_of_part(self, data: bytes, at: int) -> int:
        """The end of the next part to parse; `at` if more bytes are needed. A body ends with an
        empty line, which no plain chunk contains outside its data; the parser gets no byte beyond
        the next one, since it does not report where it found the end.
        """
        end, stop = at + self._left_bytes, min(at + _PART_BYTES, len(data))
        while self._is_plain and end < stop:
            size = _CHUNK_SIZE.match(data, end)
            if size is None:
                self._is_plain = _PART_OF_SIZE.fullmatch(data, end) is not None
                break
            end = size.end() + int(size[1], 16) + 2
        if self._is_plain or end > at:
            self._left_bytes = max(0, end - len(data))
            return min(end, len(data))
        seam = self._tail + data[at : at + 3]
        found = seam.find(END_OF_HEAD)
        if found >= 0:
            return at + found + 4 - len(self._tail)
        end = min(at + _PART_BYTES, len(data))
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
        """Collect a piece of a chunk."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The last chunk and its trailers are complete."""
        self.is_complete = True


class End:
    """The end of a body that was read in pieces."""


END = End()


class RequestReader:
    """Reads one connection's requests: pass bytes to `receive`, then call `next` until it returns
    None.
    """

    __slots__ = ("_at", "_chunks", "_data", "_heads", "_left_bytes", "_scanned", "is_in_body")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._data = b""
        self._at = self._scanned = 0
        self._left_bytes = 0
        self._chunks: Chunks | None = None
        self.is_in_body = False
        """True while a request has been returned without all of its body."""

    @property
    def has_bytes(self) -> bool:
        """True if received bytes have not been processed."""
        return self._at < len(self._data)

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def next(self) -> Request | bytes | End | None:
        """Return the next request, a piece of its body, or END; None if more bytes are needed.

        If `whole_body` returned the body, the next request follows. Raises Malformed; the reader
        cannot be used after that.
        """
        if self.is_in_body:
            return self._next_piece()
        return self._next_request() if self._at < len(self._data) else None

    def whole_body(self) -> bytes | None:
        """The body of the request that `next` has just returned. None if it is incomplete or
        chunked.
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
            # The last bytes may be the beginning of the empty line.
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
    """Return the status for input that does not begin like a supported request."""
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
        """Set the wall-clock time, which becomes the Date of answers."""
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
        """The 201 for a stored message."""
        return b"%b%b\r\n%b\r\n" % (
            self._stored,
            message_id.encode(),
            _CLOSE if closes else self._keep_alive,
        )

    def answer(
        self, answer: Answer, *, is_of_publish: bool, closes: bool, is_bare: bool = False
    ) -> bytes:
        """A whole answer; without its body if it `is_bare`. If it is to a publish, the configured
        Keep-Alive header is added.
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
        """The head of an answer that is sent in pieces. Without chunks and without a length, the
        end of the connection ends it.
        """
        return b"%b%b%b%b%b\r\n" % (
            _LINES[status],
            self._date,
            _lines(fields),
            b"Transfer-Encoding: chunked\r\n" if is_chunked else b"",
            _CLOSE if closes else self._keep_alive,
        )


def chunk(data: bytes) -> bytes:
    """One chunk of an answer; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % (name.title(), value) for name, value in fields])
