"""Parses the heads of HTTP/1.1 requests. Pure: no socket, no clock.

llhttp parses header lines. Input that llhttp accepts beyond RFC 9112 is refused before it is called
(spaces and control characters in the request line, other protocols, empty lines before a request)
or after it (a second Host, a transfer coding other than chunked).
"""

import re
from collections.abc import Hashable, Mapping

import httptools

from hermes_actors.config import FrontendConfig
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


def _status_of(head: bytes) -> int:
    """Return the status for input that does not begin like a supported request."""
    line = _ANY_REQUEST_LINE.match(head)
    if line is None:
        return BAD_REQUEST
    if line[1].decode() not in METHODS:
        return NOT_IMPLEMENTED
    return VERSION_NOT_SUPPORTED
