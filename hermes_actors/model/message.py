"""A message, and its two record forms.

The native form keeps the body as sent and puts everything else into record headers: `id`, `dc` (of
the publisher), `via`, `traceparent` and `tracestate`, `only-for` (of a replayed message for one
subscription only), `h-<Name>` for each propagated request header, and `ce_<name>` for each
attribute of a CloudEvent, as in CloudEvents' own binding for Kafka (where `datacontenttype` is
`content-type`). An Avro message also has `sv` and `sid`, the version and the id of its schema in
four bytes each, as Hermes writes them, and `framing` if it begins with Confluent's framing.

The Hermes form, for a cluster shared with Hermes, wraps the body in Hermes' JSON envelope, except
Avro; the trace is in record headers there, too. Readers know both forms: a native record has the
`dc` header, which Hermes never writes.

Other producers may write any records into a topic. Their headers may have the names of ours and
hold something else; those are ignored. The id of a record without one is its place,
`<datacentre>:<topic>:<partition>:<offset>`, so each reading gives the same id.
"""

import json
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.model.names import is_name_part
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.schema import FRAME_BYTES, WriterSchema
from hermes_actors.model.trace_context import TraceContext, clean_tracestate, is_traceparent

Headers = tuple[tuple[str, str], ...]

_RESERVED_PREFIX = "hermes-"
_RESERVED = frozenset({"messageid", "webhook-id", "webhook-signature", "webhook-timestamp"})


def is_reserved_header(name: str) -> bool:
    """True for a header that the broker itself sends to subscribers: publishers' values are not
    propagated.
    """
    lower = name.lower()
    return lower.startswith(_RESERVED_PREFIX) or lower in _RESERVED


class Envelope(StrEnum):
    """The record form to write."""

    NATIVE = "native"
    HERMES = "hermes"


class Via(StrEnum):
    """How a message got into its log."""

    LOCAL = "local"
    FALLBACK = "fallback"
    HEDGE = "hedge"
    SPOOL = "spool"


class Message(Struct, frozen=True, gc=False):
    """One message. `published_at_ms` is when it was received; of a foreign record it is the
    record's timestamp.

    `propagated` are the publisher's request headers for subscribers; they never include one that
    the broker sends itself (`is_reserved_header`), also if another program wrote the record. `dc`
    is the publisher's datacentre, `traceparent` and `tracestate` the W3C trace context; empty
    strings if unknown.

    `attributes` are those of a CloudEvent, without prefix; empty if it is none. `only_for` is the
    only subscription for a replayed message; empty string: all. `written_with` is the schema of an
    Avro body; None for other bodies. A tombstone has an empty body; its `propagated` headers also
    say that it is one, and give its key.
    """

    id: str
    body: bytes
    published_at_ms: int
    key: bytes | None = None
    propagated: Headers = ()
    dc: str = ""
    via: str = Via.LOCAL.value
    traceparent: str = ""
    attributes: Headers = ()
    only_for: str = ""
    written_with: WriterSchema | None = None
    tracestate: str = ""
    is_tombstone: bool = False

    @property
    def unframed_body(self) -> bytes:
        """The body without Confluent's framing."""
        written_with = self.written_with
        is_framed = written_with is not None and written_with.is_framed
        return self.body[FRAME_BYTES:] if is_framed else self.body

    @property
    def headers_size(self) -> int:
        """The total length of its publisher's headers and attributes in characters."""
        pairs = (*self.propagated, *self.attributes)
        trace = len(self.traceparent) + len(self.tracestate)
        return trace + sum([len(name) + len(value) for name, value in pairs])


def trace_of(message: Message) -> TraceContext | None:
    """The message's trace context, or None."""
    return TraceContext(message.traceparent, message.tracestate) if message.traceparent else None


def carrying(message: Message, trace: TraceContext) -> Message:
    """The message with this trace context."""
    if message.traceparent == trace.traceparent:
        return message
    return replace(message, traceparent=trace.traceparent, tracestate=trace.tracestate)


class UndecodableRecord(Exception):
    """The record has neither form; the message says why. It must not block its partition."""


ONLY_FOR = "only-for"
"""The record header with the only subscription that gets the message."""

_PLAIN = ("id", "dc", "via")
_VERSION, _ID, _FRAMING = "sv", "sid", "framing"
_NUMBER_BYTES = 4
_CONFLUENT = b"confluent"
_BINARY = frozenset({"via", _VERSION, _ID, _FRAMING})
_PROPAGATED_PREFIX = "h-"
_ATTRIBUTE_PREFIX = "ce_"
_DATA_TYPE, _DATA_TYPE_HEADER = "datacontenttype", "content-type"
_ENVELOPE_MARK = b'"_w":true'
ID_CHARACTERS_MAX = 255
"""Maximum length of an id; a longer one in a record is ignored."""

_VIAS = {via.value.encode(): via.value for via in Via}
_json = json.JSONDecoder()


def to_record(message: Message, envelope: Envelope = Envelope.NATIVE, via: str = "") -> Record:
    """Encode the message as a record; `via` replaces the message's own `via` if not empty."""
    propagated = tuple(
        [(_PROPAGATED_PREFIX + name, value.encode()) for name, value in message.propagated]
    )
    if message.only_for:
        propagated = ((ONLY_FOR, message.only_for.encode()), *propagated)
    if message.attributes:
        propagated += tuple(
            (
                _DATA_TYPE_HEADER if name == _DATA_TYPE else _ATTRIBUTE_PREFIX + name,
                value.encode(),
            )
            for name, value in message.attributes
        )
    written_with = message.written_with
    if written_with is not None:
        propagated = (*_written(written_with), *propagated)
    trace: tuple[tuple[str, bytes], ...] = ()
    if message.traceparent:
        trace = (("traceparent", message.traceparent.encode()),)
    if message.tracestate:
        trace += (("tracestate", message.tracestate.encode()),)
    if envelope is Envelope.HERMES:
        return Record(
            key=message.key,
            value=enveloped(message) if written_with is None else message.body,
            headers=(("id", message.id.encode()), *propagated, *trace),
            timestamp_ms=message.published_at_ms,
        )
    headers: tuple[tuple[str, bytes], ...] = (
        ("id", message.id.encode()),
        ("dc", message.dc.encode()),
        ("via", (via or message.via).encode()),
    )
    if trace:
        headers += trace
    return Record(
        key=message.key,
        value=message.body,
        headers=headers + propagated if propagated else headers,
        timestamp_ms=message.published_at_ms,
    )


@lru_cache(maxsize=256)
def _written(schema: WriterSchema) -> tuple[tuple[str, bytes], ...]:
    """The record headers for the schema of a body."""
    numbers = ((_VERSION, schema.version), (_ID, schema.id))
    told = tuple(
        (name, number.to_bytes(_NUMBER_BYTES, "big")) for name, number in numbers if number
    )
    return (*told, (_FRAMING, _CONFLUENT)) if schema.is_framed else told


def is_for_another(record: StoredRecord, subscription: str) -> bool:
    """True for a replayed record that is only for another subscription of the topic."""
    headers = record.headers
    # The common case: only the three headers of the native form.
    if len(headers) == 3 and headers[2][0] == "via":
        return False
    if not headers or headers[0][0] != "id":
        # A foreign record: `to_record` puts the id first.
        return False
    only_for = next((_text(raw) for name, raw in headers if name == ONLY_FOR), None) or ""
    return is_name_part(only_for) and only_for != subscription


def from_record(record: StoredRecord) -> Message:
    """Decode a message from a record. Raises UndecodableRecord for a broken envelope."""
    headers = record.headers
    if len(headers) == 3 and not record.is_tombstone:
        # The common case: what `to_record` writes for a message without propagated headers.
        (first, raw_id), (second, raw_dc), (third, raw_via) = headers
        if (first, second, third) == _PLAIN and (own_via := _VIAS.get(raw_via)):
            try:
                own_id = raw_id.decode()
                if 0 < len(own_id) <= ID_CHARACTERS_MAX and own_id.isprintable():
                    return Message(
                        own_id,
                        record.value,
                        record.timestamp_ms,
                        record.key,
                        (),
                        raw_dc.decode(),
                        own_via,
                    )
            except UnicodeDecodeError:
                pass
    message_id = dc = traceparent = tracestate = only_for = None
    via = Via.LOCAL.value
    version = schema_id = 0
    is_framed = False
    propagated: list[tuple[str, str]] = []
    attributes: list[tuple[str, str]] = []
    try:
        for name, raw in headers:
            if name == "id":
                message_id = raw.decode()
            elif name == "dc":
                dc = raw.decode()
            elif name == "via":
                via = _VIAS.get(raw, via)
            elif name == "traceparent":
                traceparent = raw.decode()
            elif name == "tracestate":
                tracestate = raw.decode()
            elif name == ONLY_FOR:
                only_for = raw.decode()
            elif name == _VERSION:
                version = _number(raw)
            elif name == _ID:
                schema_id = _number(raw)
            elif name == _FRAMING:
                is_framed = raw == _CONFLUENT
            elif name.startswith(_PROPAGATED_PREFIX):
                plain = name[len(_PROPAGATED_PREFIX) :]
                if not is_reserved_header(plain):
                    propagated.append((plain, raw.decode()))
            elif name.startswith(_ATTRIBUTE_PREFIX):
                attributes.append((name[len(_ATTRIBUTE_PREFIX) :], raw.decode()))
            elif name == _DATA_TYPE_HEADER:
                attributes.append((_DATA_TYPE, raw.decode()))
    except UnicodeDecodeError:
        # A foreign record. Our own headers are text, except for numbers.
        readable = [each for each in headers if each[0] in _BINARY or _text(each[1]) is not None]
        return from_record(replace(record, headers=tuple(readable)))
    if len(attributes) == 1 and attributes[0][0] == _DATA_TYPE:
        # Other programs write this header too; by itself it does not make an event.
        attributes = []
    is_avro = (version > 0 or schema_id > 0) and not record.is_tombstone
    if dc is None:
        # Perhaps a foreign record: its trace has not been checked.
        traceparent = traceparent if traceparent and is_traceparent(traceparent) else None
        tracestate = clean_tracestate(tracestate) if traceparent and tracestate else None
        if not is_avro and _ENVELOPE_MARK in record.value:
            message = _unwrap(record, tuple(propagated), tuple(attributes))
            if traceparent:
                return carrying(message, TraceContext(traceparent, tracestate or ""))
            return message
    if record.is_tombstone:
        propagated += _tombstone_headers(record.key)
    return Message(
        id=_id(message_id, record),
        body=record.value,
        published_at_ms=record.timestamp_ms,
        key=record.key,
        propagated=tuple(propagated),
        dc=dc or "",
        via=via,
        traceparent=traceparent or "",
        attributes=tuple(attributes),
        only_for=only_for or "",
        written_with=WriterSchema(version, schema_id, is_framed) if is_avro else None,
        tracestate=tracestate or "",
        is_tombstone=record.is_tombstone,
    )


def _id(text: str | None, record: StoredRecord) -> str:
    """The id that a record names, if a header can carry it; else the record's place."""
    if text and len(text) <= ID_CHARACTERS_MAX and text.isprintable():
        return text
    return record.place


def _tombstone_headers(key: bytes | None) -> Headers:
    """Tell the subscriber that the message is a tombstone, and its key."""
    key_text = None if key is None else _text(key)
    said = (("Hermes-Tombstone", "true"),)
    return said if key_text is None else (*said, ("Partition-Key", key_text))


def _text(raw: bytes) -> str | None:
    """Decode UTF-8; None for other bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _number(raw: bytes) -> int:
    """The number in a record header; 0 if it is none."""
    return int.from_bytes(raw, "big") if len(raw) == _NUMBER_BYTES else 0


def header_text(name: str, raw: bytes) -> str:
    """A record header for people: the version and id of a schema as numbers."""
    number = _number(raw) if name in (_VERSION, _ID) else 0
    return str(number) if number else raw.decode("utf-8", "replace")


def is_avro(record: StoredRecord) -> bool:
    """True if the record's headers say that its body is Avro."""
    headers = record.headers
    # The common case of JSON: only the three headers of the native form.
    if len(headers) == 3 and headers[2][0] == "via":
        return False
    is_told = any(name in (_VERSION, _ID) and _number(raw) for name, raw in headers)
    return is_told and not record.is_tombstone


def is_enveloped(record: StoredRecord) -> bool:
    """True if the body may be in Hermes' envelope; otherwise it is the record's value."""
    headers = record.headers
    # `to_record` puts them in this place, so the body need not be searched.
    if len(headers) > 1 and headers[1][0] in ("dc", _VERSION, _ID):
        return False
    return _ENVELOPE_MARK in record.value


def enveloped(message: Message) -> bytes:
    """The message in Hermes' JSON envelope; the body of a tombstone is null."""
    external = msgspec.json.encode(dict(message.propagated)) if message.propagated else b"{}"
    # The body is inserted unchanged, even if it is not JSON. Hermes does the same, and its readers
    # cut it out.
    return b'{"_w":true,"metadata":{"timestamp":%d,"id":%s,"externalMetadata":%s},"message":%s}' % (
        message.published_at_ms,
        msgspec.json.encode(message.id),
        external,
        b"null" if message.is_tombstone else message.body,
    )


def _unwrap(record: StoredRecord, propagated: Headers, attributes: Headers) -> Message:
    metadata, body = _split_envelope(record.value)
    external = metadata.get("externalMetadata")
    if not propagated and isinstance(external, dict):
        propagated = tuple(
            (name, value)
            for name, value in external.items()
            if isinstance(value, str) and not is_reserved_header(name)
        )
    timestamp = metadata.get("timestamp")
    return Message(
        id=_id(str(metadata.get("id") or metadata.get("messageId") or ""), record),
        body=body,
        published_at_ms=timestamp if type(timestamp) is int else record.timestamp_ms,
        key=record.key,
        propagated=propagated,
        attributes=attributes,
    )


def _split_envelope(value: bytes) -> tuple[dict[str, Any], bytes]:
    """Split Hermes' envelope into metadata and raw body by searching, because the body need not be
    JSON.
    """
    at_metadata = value.find(b'"metadata":')
    if at_metadata < 0:
        raise UndecodableRecord('an envelope without "metadata"')
    try:
        text = value[at_metadata + len(b'"metadata":') :].decode("utf-8", "surrogateescape")
        metadata, end = _json.raw_decode(text.lstrip())
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"the envelope's metadata is not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise UndecodableRecord("the envelope's metadata is not an object")
    try:
        # An unpaired surrogate, escaped or from broken UTF-8, would fail every later encoding.
        json.dumps(metadata, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise UndecodableRecord(f"the envelope's metadata is not Unicode: {error}") from error
    rest = text.lstrip()[end:].encode("utf-8", "surrogateescape")
    mark = b'"message":'
    at_message = rest.find(mark)
    close = rest.rfind(b"}")
    if at_message < 0 or close < at_message:
        raise UndecodableRecord('an envelope without "message"')
    return metadata, rest[at_message + len(mark) : close]
