"""The request headers of a push, rendered once for each subscription where they do not change.

Order: ours (User-Agent, Content-Type, Keep-Alive, Authorization, names), then the message's (id,
the attributes of a CloudEvent, propagated, traceparent), the retry count, then the subscription's
fixed ones. Ours win: a fixed or propagated
header named like one of ours, or one that frames the request, is left out, so that it can never
keep a message from being delivered. Nothing that holds a line break gets onto the wire.
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
# What may stand in a header as it is: all that can be seen but `"` and `%` (the HTTP binding).
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
# The year 10000, which RFC 3339 cannot write: records of others may say anything.
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
        # The node's own, to its proxy; nobody else's words go there.
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)


class CloudEvents:
    """Renders one subscription's messages. `instead` are attributes without prefix that take the
    place of those made here (`type`, say); they never change what was published as an event.
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
            # An event that others wrote into the log may lack what every event has.
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
    """The unchanging header lines of one subscription. `dropped` names what was left out.

    `events` renders messages as CloudEvents, with their Content-Type; None where none are wanted.
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
        # What `lines` puts around the id of a message that has nothing else, at its first attempt.
        force_setattr(self, "before_id", self.before + b"Hermes-Message-Id: ")
        force_setattr(self, "after_id", b"\r\nHermes-Retry-Count: 0\r\n" + self.after)

    def __repr__(self) -> str:
        names = ("before", "after", "before_id", "after_id")
        hidden = {name: hidden_bytes(getattr(self, name)) for name in names}
        return redacted(self, **hidden, taken=repr(sorted(self.taken)))

    def message_lines(self, message: Message, trace: TraceContext | None = None) -> bytes:
        """The header lines of one message, from its id on, without count: what its retries share.

        With a `trace`, which is this attempt's, that stands there instead of the message's own.
        """
        lines = b"Hermes-Message-Id: %b\r\n" % clean_id(message.id)
        if message.written_with is not None:
            lines += _schema_lines(message.written_with)
        if self.events is not None:
            lines += self.events.lines(message)
        traced = self.trace_lines(message if trace is None else trace)
        if message.propagated:
            if trace is None and any(name.lower() in _TRACE for name, _ in message.propagated):
                # They travel as they came, like the other headers.
                traced = b""
            lines += self._propagated_lines(message, is_traced=traced != b"")
        return lines + traced

    def trace_lines(self, trace: TraceContext | Message | None) -> bytes:
        """Return the header lines of a trace; none where the subscription has such headers."""
        if self.has_trace or trace is None or not trace.traceparent:
            return b""
        lines = b"traceparent: %b\r\n" % clean_id(trace.traceparent)
        if trace.tracestate:
            lines += b"tracestate: %b\r\n" % clean_id(trace.tracestate)
        return lines

    def first_lines(self, message: Message) -> bytes:
        """Return all header lines of a message's first attempt."""
        is_plain = not message.propagated and not message.traceparent
        if is_plain and self.events is None and message.written_with is None:
            return b"%b%b%b" % (self.before_id, clean_id(message.id), self.after_id)
        return self.lines(self.message_lines(message), 0)

    def _propagated_lines(self, message: Message, *, is_traced: bool) -> bytes:
        """Return the publisher's headers; they bring our `messageId` with them, as in Hermes."""
        kept = [each for each in message.propagated if _is_allowed(*each, self.taken)]
        if is_traced:
            kept = [each for each in kept if each[0].lower() not in _TRACE]
        if self.events is not None:
            kept = [each for each in kept if not each[0].lower().startswith(PREFIX)]
        return b"%bmessageId: %b\r\n" % (_render(kept), clean_id(message.id))

    def lines(self, message_lines: bytes, retries: int) -> bytes:
        """Return all header lines of one attempt."""
        return b"%b%bHermes-Retry-Count: %d\r\n%b" % (
            self.before,
            message_lines,
            retries,
            self.after,
        )


def request_head(
    subscription: Subscription, authorization: str, content_type: str = CONTENT_TYPE
) -> RequestHead:
    """Return the unchanging lines of each push; `authorization` is the header's value or "" for
    none, `content_type` what all bodies are that it is for, "" where they are empty.
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
        # Credentials of the endpoint come before a token, and both before what others wrote.
        taken.add("authorization")
    if subscription.subscription_identity_headers_enabled:
        ours.append(("Hermes-Topic-Name", subscription.topic_name))
        ours.append(("Hermes-Subscription-Name", subscription.name))
    if any(header.name.lower() == "user-agent" for header in subscription.headers):
        # Who sets a User-Agent wants that one.
        ours = ours[1:]
    fixed = [(header.name, header.value) for header in subscription.headers]
    events = None
    if subscription.cloud_events_enabled:
        # The content type is the event's, and so are fixed headers that name its attributes.
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
    """The schema of a body in Avro, as far as it is known."""
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
    """Return an id as it may stand in a header: foreign records may hold anything."""
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    return _FORBIDDEN_IN_VALUE.sub("?", text).encode("utf-8", "replace")
