"""The request headers of a push. Lines that never change are rendered once per subscription.

Order: ours (User-Agent, Content-Type, Keep-Alive, Authorization, names), then the message's (id,
CloudEvent attributes, propagated headers, traceparent), the retry count, and the subscription's
fixed headers. Ours win: a fixed or propagated header with the name of one of ours, or one that
frames the request, is dropped, so that it cannot prevent delivery. No header may contain a line
break.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import force_setattr

from hermes_actors import __version__
from hermes_actors.model.message import Message
from hermes_actors.model.redaction import hidden_bytes, redacted
from hermes_actors.model.schema import WriterSchema
from hermes_actors.model.subscription import Subscription
from hermes_actors.model.trace_context import TraceContext

PREFIX = "ce-"
_DATA_TYPE = "datacontenttype"
_KEY = "partitionkey"
_NAME = re.compile(r"[a-z0-9]+")
# Header values may contain all printable characters except `"` and `%` (CloudEvents' HTTP binding).
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
# The year 10000, which RFC 3339 cannot express; foreign records may contain any time.
_TIME_MS_END = 253_402_300_800_000


USER_AGENT = f"hermes_actors/{__version__}"
CONTENT_TYPE = "application/json"
AVRO_CONTENT_TYPE = "avro/binary"

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_OURS = frozenset(
    (
        "hermes-batch-id",
        "hermes-message-id",
        "hermes-retry-count",
        "hermes-sequence",
        "hermes-topic-name",
        "hermes-subscription-name",
        "content-type",
        "keep-alive",
    )
)
_SCHEMA = frozenset(("schema-id", "schema-version"))
_SIGNATURE = frozenset(("webhook-id", "webhook-timestamp", "webhook-signature"))
_TRACE = frozenset(("traceparent", "tracestate"))
_FRAMING = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        # The node authenticates itself to its proxy; nobody else may set these.
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)


class CloudEvents:
    """Renders one subscription's messages as CloudEvents. `instead` has attributes without prefix
    that replace defaults such as `type`; it never overrides attributes of a published event.
    """

    def __init__(self, topic: str, content_type: str, instead: Mapping[str, str]) -> None:
        self._content_type = content_type
        self._instead = dict(instead)
        self._source = f"/topics/{topic}"
        self._type = topic

    def lines(self, message: Message) -> bytes:
        """The message's Content-Type and `ce-` header lines, each ended by CRLF."""
        attributes = {
            "specversion": "1.0",
            "id": message.id,
            "source": self._source,
            "type": self._type,
        }
        if message.attributes:
            # A foreign event in the log may lack required attributes.
            attributes |= {
                name: value for name, value in message.attributes if _NAME.fullmatch(name) and value
            }
        else:
            if 0 <= message.published_at_ms < _TIME_MS_END:
                attributes["time"] = _time(message.published_at_ms)
            attributes |= self._instead
        content_type = attributes.pop(_DATA_TYPE, self._content_type)
        if message.key and _KEY not in attributes:
            with suppress(UnicodeDecodeError):
                attributes[_KEY] = message.key.decode()
        lines = [] if message.is_tombstone else [b"Content-Type: %b\r\n" % _one_line(content_type)]
        lines += [
            b"ce-%b: %b\r\n" % (name.encode("ascii"), _encoded(value))
            for name, value in attributes.items()
        ]
        return b"".join(lines)


def _time(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1_000:03d}Z"


def _encoded(value: str) -> bytes:
    return quote(value, safe=_SAFE, errors="replace").encode("ascii")


def _one_line(value: str) -> bytes:
    return _FORBIDDEN_IN_VALUE.sub(" ", value).strip().encode("utf-8", "replace")


class RequestHead(Struct, frozen=True):
    """The constant header lines of one subscription. `dropped` names the headers left out.

    `events` renders messages as CloudEvents, with their Content-Type; None if disabled.
    """

    before: bytes
    after: bytes
    dropped: tuple[str, ...]
    taken: frozenset[str]
    events: CloudEvents | None = None
    has_trace: bool = False
    before_id: bytes = b""
    after_id: bytes = b""

    def __post_init__(self) -> None:
        # What surrounds the id in the first attempt at a message without other headers.
        force_setattr(self, "before_id", self.before + b"Hermes-Message-Id: ")
        force_setattr(self, "after_id", b"\r\nHermes-Retry-Count: 0\r\n" + self.after)

    def __repr__(self) -> str:
        names = ("before", "after", "before_id", "after_id")
        hidden = {name: hidden_bytes(getattr(self, name)) for name in names}
        return redacted(self, **hidden, taken=repr(sorted(self.taken)))

    def message_lines(self, message: Message, trace: TraceContext | None = None) -> bytes:
        """The header lines of one message, from its id on, without the retry count. Its retries
        share them.

        A given `trace` is this attempt's, and replaces the message's own.
        """
        lines = b"Hermes-Message-Id: %b\r\n" % clean_id(message.id)
        if message.written_with is not None:
            lines += _schema_lines(message.written_with)
        if self.events is not None:
            lines += self.events.lines(message)
        traced = self.trace_lines(message if trace is None else trace)
        if message.propagated:
            if trace is None and any(name.lower() in _TRACE for name, _ in message.propagated):
                # They are forwarded unchanged, like the other headers.
                traced = b""
            lines += self._propagated_lines(message, is_traced=traced != b"")
        return lines + traced

    def trace_lines(self, trace: TraceContext | Message | None) -> bytes:
        """The header lines of a trace. Empty if the subscription sets such headers itself."""
        if self.has_trace or trace is None or not trace.traceparent:
            return b""
        lines = b"traceparent: %b\r\n" % clean_id(trace.traceparent)
        if trace.tracestate:
            lines += b"tracestate: %b\r\n" % clean_id(trace.tracestate)
        return lines

    def first_lines(self, message: Message) -> bytes:
        """All header lines of a message's first attempt."""
        is_plain = not message.propagated and not message.traceparent
        if is_plain and self.events is None and message.written_with is None:
            return b"%b%b%b" % (self.before_id, clean_id(message.id), self.after_id)
        return self.lines(self.message_lines(message), 0)

    def _propagated_lines(self, message: Message, *, is_traced: bool) -> bytes:
        """The publisher's headers. As in Hermes, `messageId` is added to them."""
        kept = [each for each in message.propagated if _is_allowed(*each, self.taken)]
        if is_traced:
            kept = [each for each in kept if each[0].lower() not in _TRACE]
        if self.events is not None:
            kept = [each for each in kept if not each[0].lower().startswith(PREFIX)]
        return b"%bmessageId: %b\r\n" % (_render(kept), clean_id(message.id))

    def lines(self, message_lines: bytes, retries: int) -> bytes:
        """All header lines of one attempt."""
        return b"%b%bHermes-Retry-Count: %d\r\n%b" % (
            self.before,
            message_lines,
            retries,
            self.after,
        )


def request_head(
    subscription: Subscription, authorization: str, content_type: str = CONTENT_TYPE
) -> RequestHead:
    """The constant lines of each push. `authorization` is the header's value, an empty string for
    none; `content_type` that of all bodies pushed with these lines, an empty string for none.
    """
    ours: list[tuple[str, str]] = [
        ("User-Agent", USER_AGENT),
        *([("Content-Type", content_type)] if content_type else []),
        ("Keep-Alive", "true"),
    ]
    taken = set(_OURS | _FRAMING)
    if content_type == AVRO_CONTENT_TYPE:
        taken |= _SCHEMA
    if subscription.signing is not None:
        taken |= _SIGNATURE
    if authorization:
        ours.append(("Authorization", authorization))
    if authorization or subscription.o_auth_policy is not None:
        # The endpoint's credentials win over a token, and both over other headers.
        taken.add("authorization")
    if subscription.subscription_identity_headers_enabled:
        ours.append(("Hermes-Topic-Name", subscription.topic_name))
        ours.append(("Hermes-Subscription-Name", subscription.name))
    if any(header.name.lower() == "user-agent" for header in subscription.headers):
        # A configured User-Agent replaces ours.
        ours = ours[1:]
    fixed = [(header.name, header.value) for header in subscription.headers]
    events = None
    if subscription.cloud_events_enabled:
        # The event determines the content type. Fixed headers that name its attributes set these.
        ours = [each for each in ours if each[0] != "Content-Type"]
        attributes = {
            name.lower()[len(PREFIX) :]: value
            for name, value in fixed
            if name.lower().startswith(PREFIX) and _is_allowed(name, value, ())
        }
        fixed = [each for each in fixed if not each[0].lower().startswith(PREFIX)]
        events = CloudEvents(subscription.topic_name, content_type, attributes)
    kept = [(name, value) for name, value in fixed if _is_allowed(name, value, taken)]
    return RequestHead(
        before=_render(ours),
        after=_render(kept),
        dropped=tuple(name for name, value in fixed if not _is_allowed(name, value, taken)),
        taken=frozenset(taken | {"user-agent"}),
        events=events,
        has_trace=any(name.lower() in _TRACE for name, _ in kept),
    )


def _schema_lines(written_with: WriterSchema) -> bytes:
    """The schema headers of a body in Avro, as far as known."""
    version, schema_id = written_with.version, written_with.id
    lines = b"Schema-Version: %d\r\n" % version if version else b""
    return lines + b"Schema-Id: %d\r\n" % schema_id if schema_id else lines


def _is_allowed(name: str, value: str, taken: Iterable[str]) -> bool:
    return (
        _TOKEN.fullmatch(name) is not None
        and not _FORBIDDEN_IN_VALUE.search(value)
        and name.lower() not in taken
    )


def _render(headers: Iterable[tuple[str, str]]) -> bytes:
    return b"".join(
        b"%b: %b\r\n" % (name.encode("ascii"), value.strip().encode("utf-8", "surrogateescape"))
        for name, value in headers
    )


def clean_id(text: str) -> bytes:
    """An id made safe for a header, because foreign records may contain anything."""
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    return _FORBIDDEN_IN_VALUE.sub("?", text).encode("utf-8", "replace")
