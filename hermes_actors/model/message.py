"""A message, and the two forms in which a log holds it.

The native form keeps the body as sent and puts all else into record headers: `id`, `dc` (of the
publisher), `via`, `traceparent` and `tracestate`, `only-for` (of a replayed message that one
subscription alone is to get), `h-<Name>` for each propagated request header, and `ce_<name>` for
each attribute of a CloudEvent, as CloudEvents' own binding for Kafka has them (`datacontenttype` is
`content-type` there). A message in Avro also has `sv` and `sid`, the version and the id of its
schema in four bytes each, as Hermes writes them, and `framing` where Confluent's framing begins it.
The Hermes form, for a cluster shared with Hermes, wraps the body in Hermes' own JSON envelope; Avro
it leaves as it is; record headers tell the trace there, too. Readers know both: a native record
carries the `dc` header, which Hermes never writes.

Other producers may write records of any form into a topic. A header of theirs that is named like
one of ours and holds something else is passed over. A record without an id is called by its place,
`<datacentre>:<topic>:<partition>:<offset>`: each reading gives the same id.
"""

import json
from enum import StrEnum
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
    """True for a header by which the broker speaks to subscribers: a publisher's never travels."""
    lower = name.lower()
    return lower.startswith(_RESERVED_PREFIX) or lower in _RESERVED


class Envelope(StrEnum):
    """Which record form is written."""

    NATIVE = "native"
    HERMES = "hermes"


class Via(StrEnum):
    """The way a message took into its log."""

    LOCAL = "local"
    FALLBACK = "fallback"
    HEDGE = "hedge"
    SPOOL = "spool"


class Message(Struct, frozen=True, gc=False):
    """One message. `published_at_ms` is the time of reception; of a record that others wrote it is
    the record's timestamp.

    `propagated` are the publisher's request headers that travel to the subscriber, of a record that
    others wrote too never one by which the broker speaks (`is_reserved_header`), `dc` the
    publisher's datacentre ("" when unknown), `traceparent` and `tracestate` the W3C trace context
    ("" when none).
    `attributes` are those of a CloudEvent, without their prefix: none when it is no CloudEvent.
    `only_for` is the one subscription that a replayed message is for, "" for all of them.
    `written_with` is the schema of a body in Avro, None for any other body. A tombstone's body is
    empty; two headers beside the publisher's tell the subscriber of it.
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
        """The body without Confluent's framing, where it has that."""
        written_with = self.written_with
        is_framed = written_with is not None and written_with.is_framed
        return self.body[FRAME_BYTES:] if is_framed else self.body

    @property
    def headers_size(self) -> int:
        """How many characters its publisher's headers and attributes have together."""
        pairs = (*self.propagated, *self.attributes)
        trace = len(self.traceparent) + len(self.tracestate)
        return trace + sum([len(name) + len(value) for name, value in pairs])


def trace_of(message: Message) -> TraceContext | None:
    """The trace that the message belongs to; None when it belongs to none."""
    return TraceContext(message.traceparent, message.tracestate) if message.traceparent else None


def carrying(message: Message, trace: TraceContext) -> Message:
    """The message as a part of this trace."""
    if message.traceparent == trace.traceparent:
        return message
    return replace(message, traceparent=trace.traceparent, tracestate=trace.tracestate)


class UndecodableRecord(Exception):
    """The record is in neither form; the message says why. It must not block its partition."""


ONLY_FOR = "only-for"
"""The record header with the name of the one subscription that is to get the message."""

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
"""A longer id is not one of ours."""

_VIAS = {via.value.encode(): via.value for via in Via}
_json = json.JSONDecoder()


def to_record(message: Message, envelope: Envelope = Envelope.NATIVE, via: str = "") -> Record:
    """The record that stores this message; `via` is the way that it takes, "" its own `via`."""
    propagated = tuple(
        (_PROPAGATED_PREFIX + name, value.encode()) for name, value in message.propagated
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


def _written(schema: WriterSchema) -> tuple[tuple[str, bytes], ...]:
    """The record headers that tell the schema of a body."""
    numbers = ((_VERSION, schema.version), (_ID, schema.id))
    told = tuple(
        (name, number.to_bytes(_NUMBER_BYTES, "big")) for name, number in numbers if number
    )
    return (*told, (_FRAMING, _CONFLUENT)) if schema.is_framed else told


def is_for_another(record: StoredRecord, subscription: str) -> bool:
    """True for a replayed record that only another subscription of the topic is to get."""
    headers = record.headers
    # Nearly every record has just the three of the native form.
    if len(headers) == 3 and headers[2][0] == "via":
        return False
    if not headers or headers[0][0] != "id":
        # Of others: `to_record` puts the id first.
        return False
    only_for = next((_text(raw) for name, raw in headers if name == ONLY_FOR), None) or ""
    return is_name_part(only_for) and only_for != subscription


def from_record(record: StoredRecord) -> Message:
    """The message that a record holds. Raises UndecodableRecord for a broken envelope."""
    headers = record.headers
    if len(headers) == 3 and not record.is_tombstone:
        # What `to_record` writes of a message without anything of its publisher's: nearly all.
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
        # Others wrote it: ours are text, but for the numbers.
        readable = [each for each in headers if each[0] in _BINARY or _text(each[1]) is not None]
        return from_record(replace(record, headers=tuple(readable)))
    if len(attributes) == 1 and attributes[0][0] == _DATA_TYPE:
        # Others write that header too; alone it makes no event.
        attributes = []
    is_avro = (version > 0 or schema_id > 0) and not record.is_tombstone
    if dc is None:
        # Others may have written it.
        traceparent = traceparent if traceparent and is_traceparent(traceparent) else None
        tracestate = clean_tracestate(tracestate) if traceparent and tracestate else None
        if not is_avro and _ENVELOPE_MARK in record.value:
            message = _unwrap(record, tuple(propagated), tuple(attributes))
            if traceparent:
                return carrying(message, TraceContext(traceparent, tracestate or ""))
            return message
    if record.is_tombstone:
        propagated += _tombstone_headers(record.key)
    if message_id and not (message_id.isprintable() and len(message_id) <= ID_CHARACTERS_MAX):
        message_id = None
    return Message(
        id=message_id or record.place,
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


def _tombstone_headers(key: bytes | None) -> Headers:
    """What a subscriber needs to know of a tombstone: that it is one, and of which key."""
    key_text = None if key is None else _text(key)
    said = (("Hermes-Tombstone", "true"),)
    return said if key_text is None else (*said, ("Partition-Key", key_text))


def _text(raw: bytes) -> str | None:
    """The text of bytes; None where they are not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _number(raw: bytes) -> int:
    """The number in a record header; 0 for what is none."""
    return int.from_bytes(raw, "big") if len(raw) == _NUMBER_BYTES else 0


def header_text(name: str, raw: bytes) -> str:
    """A record header as people read it: the version and the id of a schema as numbers."""
    number = _number(raw) if name in (_VERSION, _ID) else 0
    return str(number) if number else raw.decode("utf-8", "replace")


def is_avro(record: StoredRecord) -> bool:
    """True if the record says that its body is Avro."""
    headers = record.headers
    # Nearly every record of JSON has just the three of the native form.
    if len(headers) == 3 and headers[2][0] == "via":
        return False
    is_told = any(name in (_VERSION, _ID) and _number(raw) for name, raw in headers)
    return is_told and not record.is_tombstone


def is_enveloped(record: StoredRecord) -> bool:
    """True if the body may lie within Hermes' envelope; else it is the record's value."""
    headers = record.headers
    # Where `to_record` puts them: then the body need not be searched.
    if len(headers) > 1 and headers[1][0] in ("dc", _VERSION, _ID):
        return False
    return _ENVELOPE_MARK in record.value


def enveloped(message: Message) -> bytes:
    """The message in Hermes' JSON envelope. Its body goes in as it is, JSON or not; a tombstone's
    is null.
    """
    external = msgspec.json.encode(dict(message.propagated)) if message.propagated else b"{}"
    # The body goes in as it came, JSON or not: Hermes does the same, and its readers cut it out.
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
        id=str(metadata.get("id") or metadata.get("messageId") or record.place),
        body=body,
        published_at_ms=timestamp if type(timestamp) is int else record.timestamp_ms,
        key=record.key,
        propagated=propagated,
        attributes=attributes,
    )


def _split_envelope(value: bytes) -> tuple[dict[str, Any], bytes]:
    """Metadata and raw body of Hermes' envelope, found by search: the body need not be JSON."""
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
        # Half a surrogate pair, escaped or from broken UTF-8, would fail every later encoding.
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
