"""One request's head: what it says, and whether it may be said so. Pure.

llhttp reads the header lines. What it takes beyond RFC 9112 is refused before it is asked (spaces
and control characters in the request line, other protocols, empty lines before a request) or
after it (a second Host, a coding other than chunks).
"""

import re
from urllib.parse import unquote

import httptools

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import Refused
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.edges.heads import HeadLimits
from hermes_actors.publisher.pending import ABSENT, CHUNKED
from hermes_actors.publisher.status import batch_topic_in, origin_form, topic_in

END_OF_HEAD = b"\r\n\r\n"
_METHODS = rb"GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|TRACE"
_REQUEST_LINE = re.compile(rb"(" + _METHODS + rb") ([!-~]+) HTTP/1\.([01])\r\n")
_ANY_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) [!-~]+ HTTP/[0-9]\.[0-9]\r\n")
_PART_OF_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?: (?:[!-~]+(?: (?:[!-~]+\r?)?)?)?)?")
_BARE_ENDS = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_LINE_BYTES = 32
"""What a request line has beside its target, or a header line beside name and value, at most."""

_KNOWN_MAX = 1_024
_KNOWN_BYTES_MAX = 1_024

BAD_REQUEST, URI_TOO_LONG, TOO_LARGE, NOT_IMPLEMENTED, VERSION_NOT_SUPPORTED = (
    400, 414, 431, 501, 505,
)  # fmt: skip


class Malformed(Exception):
    """No request, or one that nobody may read: `status` is the answer, and nothing follows it."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Request:
    """The head of one request, and what follows from it alone.

    `topic` is the topic that it publishes to, `batch` the one that it publishes many messages to;
    both None: it asks for another page. `expected_bytes` is the announced size of its body, CHUNKED
    or ABSENT. `refusal`: why a head is above a limit. The same request may come many times
    on a connection and is then the same object.
    """

    __slots__ = (
        "batch",
        "expected_bytes",
        "expects_continue",
        "fields",
        "head",
        "is_http_1_0",
        "keeps_alive",
        "key",
        "method",
        "pairs",
        "path",
        "refusal",
        "topic",
    )

    def __init__(self, raw: bytes, limits: HeadLimits) -> None:
        """`raw` is a whole head with the empty line at its end. Raises Malformed."""
        line = _REQUEST_LINE.match(raw)
        if line is None:
            raise Malformed(_status_of(raw))
        parsed = _Fields(raw)
        pairs = parsed.pairs
        if b" \r\n" in raw or b"\t\r\n" in raw:
            # The parser leaves what blanks stand behind a value.
            pairs = [(name, value.rstrip(b" \t")) for name, value in pairs]
        self.pairs = pairs
        self.fields = fields = {name.lower(): value for name, value in pairs}
        self.is_http_1_0 = line[3] == b"0"
        if len(fields) != len(pairs):
            self._check_repeated()
        is_chunked = b"transfer-encoding" in fields and self._is_chunked()
        if parsed.problem or (b"host" not in fields and not self.is_http_1_0):
            raise Malformed(BAD_REQUEST)
        length = fields.get(b"content-length")
        self.expected_bytes = CHUNKED if is_chunked else ABSENT if length is None else int(length)
        self.keeps_alive = parsed.keeps_alive and not self.is_http_1_0
        self.expects_continue = (
            b"expect" in fields
            and not self.is_http_1_0
            and fields[b"expect"].lower() == b"100-continue"
        )
        self.method = line[1].decode()
        target = line[2].decode()
        path, _, query = target.partition("?")
        if not path.startswith("/"):
            path = origin_form(path)
        self.path = path = unquote(path) if "%" in path else path
        self.refusal: Refused | None = limits.refusal(path, query, pairs)
        self.topic = topic_in(self.method, path)
        self.batch = None if self.topic is not None else batch_topic_in(self.method, path)
        self.key = fields.get(b"partition-key")
        self.head = Head(pairs, fields)

    def _check_repeated(self) -> None:
        names = [name.lower() for name, _ in self.pairs]
        if names.count(b"host") > 1:
            raise Malformed(BAD_REQUEST)
        if names.count(b"transfer-encoding") > 1:
            raise Malformed(NOT_IMPLEMENTED)

    def _is_chunked(self) -> bool:
        if self.is_http_1_0 or b"content-length" in self.fields:
            # Another reader may see the request's end elsewhere, and a second request after it.
            raise Malformed(BAD_REQUEST)
        if self.fields[b"transfer-encoding"].lower() != b"chunked":
            raise Malformed(NOT_IMPLEMENTED)
        return True


class _Fields:
    """What the parser says of a head."""

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

    def __init__(self, config: FrontendConfig, limits: HeadLimits) -> None:
        self._limits = limits
        self._known: dict[bytes, Request] = {}
        self._line_bytes_max = config.url_bytes_max + _LINE_BYTES
        self.bytes_max = (
            self._line_bytes_max + config.header_bytes_max + _LINE_BYTES * config.headers_max
        )
        """More than a head has that is within the limits."""

    def request(self, raw: bytes) -> Request:
        """The request that has this head. Raises Malformed."""
        request = self._known.get(raw)
        if request is None:
            if len(raw) > self.bytes_max:
                raise Malformed(TOO_LARGE)
            request = Request(raw, self._limits)
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


def _status_of(head: bytes) -> int:
    """The status of what does not begin like a request that is served."""
    line = _ANY_REQUEST_LINE.match(head)
    if line is None:
        return BAD_REQUEST
    if re.fullmatch(_METHODS, line[1]) is None:
        return NOT_IMPLEMENTED
    return VERSION_NOT_SUPPORTED
