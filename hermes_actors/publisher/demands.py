"""Reads the head of a publish for its special requests: an idempotency key, an earlier id (replay),
a CloudEvent, headers to propagate.

Most publishes have none of these. Their heads are plain and are not read here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.keyed_id import keyed_id
from hermes_actors.model.message import ID_CHARACTERS_MAX, Headers, Message, is_reserved_header
from hermes_actors.model.names import is_name_part
from hermes_actors.model.trace_context import clean_tracestate, is_traceparent
from hermes_actors.publisher.cloudevents import (
    VERSION_HEADER,
    event_in,
    event_of,
    is_structured,
)
from hermes_actors.publisher.idempotency import HEADER, KeyClaim, KeyWindow, parse_key
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.validation import BodyHead
from hermes_actors.security.account import Account, ClientCertificate

REPLAY_ID = "Hermes-Replay-Id"
REPLAY_FOR = "Hermes-Replay-For"
_DIGITS_MAX = 10

SPECIAL = frozenset(
    {"idempotency-key", "ce-specversion", "traceparent", "hermes-replay-id", "hermes-replay-for"}
)
"""Headers with special requests. A publish without them takes the fast path."""

_SPECIAL_BYTES = frozenset(name.encode() for name in SPECIAL)
_CLOUD_EVENTS = b"application/cloudevents"


class Head:
    """The headers of one request.

    `pairs` are all headers as received; `fields` has names in lower case, and the last value of a
    repeated header. `is_plain`: no header of SPECIAL is there, and the body is no CloudEvent.
    `certificate` is the client's verified certificate, or None. `account` is the author's, once
    identified.
    """

    __slots__ = ("_body_head", "_fields", "_pairs", "account", "certificate", "is_plain")

    def __init__(
        self,
        pairs: list[tuple[bytes, bytes]],
        fields: Mapping[bytes, bytes],
        certificate: ClientCertificate | None = None,
    ) -> None:
        self._pairs = pairs
        self._fields = fields
        self.certificate = certificate
        self.account: Account | None = None
        self._body_head: BodyHead | None = None
        self.is_plain = _SPECIAL_BYTES.isdisjoint(fields) and not fields.get(
            b"content-type", b""
        ).lower().startswith(_CLOUD_EVENTS)

    def get(self, name: str) -> str | None:
        """The header's value, None if it is absent. `name` is in lower case."""
        value = self._fields.get(name.encode())
        return None if value is None else value.decode("latin-1")

    @property
    def body_head(self) -> BodyHead:
        """The headers that determine how the body is read. A schema version that is not a number is
        ignored, as in Hermes.
        """
        if self._body_head is None:
            version, own_id = self.get("schema-version"), self.get("schema-id")
            self._body_head = BodyHead(self.get("content-type"), _number(version), _number(own_id))
        return self._body_head

    def pairs(self) -> list[tuple[str, str]]:
        """All headers, with the order and letter case that the connection delivered."""
        return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._pairs]


def head_refusal(
    config: FrontendConfig, path: Sized, query: Sized, pairs: Sequence[tuple[Sized, Sized]]
) -> Refused | None:
    """The error if the head of a request is above a limit, else None."""
    if len(pairs) > config.headers_max:
        # Same status as Undertow, for Hermes' clients.
        return Refused(
            f"The request has {len(pairs)} headers; this server takes at most "
            f"{config.headers_max} (frontend.headers_max); send fewer, or have that raised"
        )
    url_bytes = len(path) + len(query)
    if url_bytes > config.url_bytes_max:
        return _too_long("path and query", url_bytes, "url_bytes_max", config.url_bytes_max, 414)
    header_bytes, bytes_max = sum([len(n) + len(v) for n, v in pairs]), config.header_bytes_max
    if header_bytes > bytes_max:
        return _too_long("headers", header_bytes, "header_bytes_max", bytes_max, 431)
    return None


def _too_long(what: str, size: int, setting: str, bytes_max: int, status: int) -> Refused:
    return Refused(
        f"The request's {what} have {size} bytes; this server takes at most {bytes_max} "
        f"(frontend.{setting}); send less, or have that raised",
        ErrorCode.VALIDATION_ERROR,
        status,
    )


def replay_of(head: Head) -> tuple[str, str] | None:
    """The replay that the head asks for: the id to store the message under, and the only
    subscription to receive it (empty string: all). None if there is no replay.

    The id is percent-encoded UTF-8. Raises Refused if the id is empty, too long or not printable,
    if the subscription's name is impossible, or if it comes without an id.
    """
    raw_id, only_for = head.get("hermes-replay-id"), head.get("hermes-replay-for")
    if raw_id is None:
        if only_for is not None:
            raise Refused(f"{REPLAY_FOR} goes with {REPLAY_ID}; send the message's own id too")
        return None
    try:
        message_id = unquote(raw_id.strip(), errors="strict")
    except UnicodeDecodeError as error:
        raise Refused(f"{REPLAY_ID} is not percent-encoded UTF-8: {error.reason}") from error
    if not 0 < len(message_id) <= ID_CHARACTERS_MAX or not message_id.isprintable():
        raise Refused(
            f"{REPLAY_ID} is not an id: send 1 to {ID_CHARACTERS_MAX} printable characters, "
            "percent-encoded"
        )
    if only_for is not None and not is_name_part(only_for):
        raise Refused(
            f"{REPLAY_FOR}: this is not a subscription's name; send the name alone, without its "
            "topic"
        )
    return message_id, only_for or ""


SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers meant for this server, not for subscribers. They are propagated only if configured by
name.
"""


def propagated(pairs: Iterable[tuple[str, str]], allowed: Collection[str]) -> Headers:
    """Select the headers to store with the message; names are compared without letter case, values
    decoded as ISO 8859-1.

    If `allowed` is empty, every header is propagated except the secret ones. Headers that the
    broker itself sends to subscribers never are, nor are headers without a value. Of a repeated
    header the first counts, as in Hermes. Names keep the case of the request.
    """
    picked: dict[str, tuple[str, str]] = {}
    for name, value in pairs:
        lower = name.lower()
        is_wanted = lower in allowed if allowed else lower not in SECRET
        if is_wanted and value and lower not in picked and not is_reserved_header(lower):
            picked[lower] = (name, _text(value))
    return tuple(picked.values())


def _text(value: str) -> str:
    """The value decoded as UTF-8 if possible, else unchanged."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        return value


class Demand(Struct, frozen=True):
    """The special requests of one publish.

    `model` is its message as far as the head determines it: all but body and time. `is_event`: the
    body is a CloudEvent. `claim` is its use of an `Idempotency-Key` or of a replayed id; it must be
    concluded once, whatever happens. `head` is the source of all this.
    """

    model: Message
    head: Head
    is_event: bool = False
    claim: KeyClaim | None = None

    def body_head(self, message: Message) -> BodyHead:
        """The headers that determine how the body is read."""
        if not self.is_event:
            return self.head.body_head
        # In a structured event, data without a type is JSON.
        content_type = dict(message.attributes).get("datacontenttype", "application/json")
        return replace(self.head.body_head, content_type=content_type)


def _number(value: str | None) -> int:
    is_number = (
        value is not None and value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
    )
    return int(value) if value is not None and is_number else 0


class Demands:
    """Reads the special requests of a publish from its head, and again when its body is complete.

    `dc` is the datacentre in which messages are published.
    """

    def __init__(self, config: FrontendConfig, clock: Clock, dc: str) -> None:
        self._now_s = clock.monotonic_s
        self._dc = dc
        self._takes_events = config.cloud_events
        self._takes_replays = config.replay
        self._allowed = frozenset(config.propagation.allowed)
        self._window = KeyWindow(config.idempotency.keys_max, config.idempotency.window_ms / 1_000)
        self.reads_every_head = config.propagation.enabled
        """True if plain heads must be read too, because headers are propagated."""
        self.replays = 0
        """How many publishes got an earlier answer again instead of being stored."""

    @property
    def keys(self) -> int:
        """The number of keys remembered now."""
        return len(self._window)

    def read(
        self, topic: str, log_topic: str, message_id: str, key: bytes | None, head: Head
    ) -> Demand:
        """Read the special requests from the head of one message. Raises HermesError if one is not
        allowed.
        """
        model = replace(self.common(head), id=message_id, key=key)
        if head.is_plain:
            return Demand(model, head)
        is_event = self._takes_events and is_structured(head.get("content-type"))
        if self._takes_events and not is_event and head.get(VERSION_HEADER) is not None:
            event = event_of(head.pairs())
            model = replace(
                model, attributes=event.attributes, key=event.key if key is None else key
            )
        value = head.get("idempotency-key")
        replayed = replay_of(head)
        if replayed is not None:
            if not self._takes_replays:
                raise Refused(
                    f"{REPLAY_ID}: this node accepts no replays; send it to a node with "
                    "frontend.replay = true",
                    status=403,
                )
            if value is not None:
                raise Refused(f"{REPLAY_ID} and {HEADER} exclude each other; send one of them")
            own, only_for = replayed
            model = replace(model, id=own, only_for=only_for)
            name = f"{only_for}/{own}"
            claim = self._window.claim(log_topic, name, self._now_s(), REPLAY_ID)
            return Demand(model, head, is_event, claim)
        if value is None:
            return Demand(model, head, is_event)
        # Last, because the caller must conclude a claim.
        own = parse_key(value)
        claim = self._window.claim(log_topic, own, self._now_s())
        return Demand(replace(model, id=keyed_id(topic, own)), head, is_event, claim)

    def common(self, head: Head) -> Message:
        """Return a template with what the head says for each of its messages."""
        travelling = self.pick(head.pairs()) if self.reads_every_head else ()
        traceparent = head.get("traceparent") or ""
        tracestate = clean_tracestate(head.get("tracestate") or "")
        if not is_traceparent(traceparent):
            traceparent = tracestate = ""
        return Message(
            "", b"", 0, None, travelling, self._dc, traceparent=traceparent, tracestate=tracestate
        )

    def pick(self, pairs: list[tuple[str, str]]) -> Headers:
        """Select those of a message's own headers that are propagated with it."""
        return propagated(pairs, self._allowed) if self.reads_every_head else ()

    def take(self, demand: Demand, body: bytes) -> Message | int:
        """Return the message with this body, still without its time; or the status to answer again
        if the same key was used before. Raises HermesError.
        """
        model = demand.model
        if demand.claim is not None:
            status = demand.claim.match(model.key, body)
            if status:
                self.replays += 1
                return status
        if not demand.is_event:
            return replace(model, body=body)
        event = event_in(body)
        return replace(
            model,
            body=event.body,
            attributes=event.attributes,
            key=event.key if model.key is None else model.key,
        )
