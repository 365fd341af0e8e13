"""Builds the request that publishes a stored record again, unchanged. Pure."""

import re
from urllib.parse import quote

from msgspec import Struct

from hermes_actors.model.message import Message, UndecodableRecord, from_record
from hermes_actors.model.record import StoredRecord
from hermes_actors.schema.avro import BodyForm

_DATA_TYPE = "datacontenttype"
_CONTENT_TYPE = "content-type"
_EVENT = "application/cloudevents"
# Headers that belong to the first request: its connection, the length and form of its body, how it
# was stored, and who sent it. Others may be propagated with the message.
_OF_ITS_REQUEST = frozenset(
    {
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        _CONTENT_TYPE,
        "expect",
        "host",
        "idempotency-key",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# RFC 9110, 5.5: besides visible ASCII, space and tab, a field's value may not contain these bytes.
_FORBIDDEN = frozenset(range(32)) - {9} | {127}


class CannotReplay(Exception):
    """The record cannot be published again unchanged; the message says why."""


class ReplayRequest(Struct, frozen=True):
    """The headers and the body of one request to publish to `topic`."""

    topic: str
    message_id: str
    headers: tuple[tuple[str, bytes], ...]
    body: bytes


def replay_request(
    topic: str, message_id: str, record: StoredRecord, only_for: str = ""
) -> ReplayRequest:
    """The request to publish this record under that id, to all subscriptions or `only_for` one.

    Key, trace context, CloudEvent attributes and propagated headers are the original ones, except
    those that belong to the first request; the time of publication is new. Raises CannotReplay for
    what HTTP cannot carry, and for a record of unknown form.
    """
    if record.is_tombstone:
        raise CannotReplay("the record is a tombstone, which cannot be published over HTTP")
    try:
        message = from_record(record)
    except UndecodableRecord as error:
        raise CannotReplay(f"the record cannot be decoded: {error}") from error
    headers = [("Hermes-Replay-Id", quote(message_id, safe="").encode())]
    if only_for:
        headers.append(("Hermes-Replay-For", only_for.encode()))
    if message.key is not None:
        headers.append(("Partition-Key", message.key))
    if message.traceparent:
        headers.append(("traceparent", message.traceparent.encode()))
    body = message.body
    written_with = message.written_with
    if written_with is not None:
        # Its `__metadata` is written anew, with the same schema.
        headers.append(("Content-Type", BodyForm.AVRO_BINARY.value.encode()))
        if written_with.version:
            headers.append(("Schema-Version", b"%d" % written_with.version))
        headers += [each for each in _attributes(message) if each[0] != "Content-Type"]
        body = message.unframed_body
    else:
        headers += _attributes(message) or [("Content-Type", _content_type(message))]
    taken = {name.lower() for name, _ in headers} | _OF_ITS_REQUEST
    headers += [
        (name, value.encode()) for name, value in message.propagated if name.lower() not in taken
    ]
    for name, value in headers:
        if not _NAME.fullmatch(name):
            raise CannotReplay(f"its header {name!r} is not an HTTP header name")
        if not _FORBIDDEN.isdisjoint(value) or value != value.strip(b" \t"):
            raise CannotReplay(f"its {name} contains bytes that are not allowed in an HTTP header")
    return ReplayRequest(topic, message_id, tuple(headers), body)


def _content_type(message: Message) -> bytes:
    """The original one if it was propagated. Of an event in JSON only the data is stored."""
    said = next((value for name, value in message.propagated if name.lower() == _CONTENT_TYPE), "")
    is_plain = said and not said.lower().startswith(_EVENT)
    return said.encode() if is_plain else b"application/json"


def _attributes(message: Message) -> list[tuple[str, bytes]]:
    """A CloudEvent's attributes in binary mode, with percent-encoded values."""
    return [
        ("Content-Type", value.encode())
        if name == _DATA_TYPE
        else (f"ce-{name}", quote(value, safe=_PLAIN).encode())
        for name, value in message.attributes
    ]


# CloudEvents' HTTP binding, 3.1.3.2: all visible ASCII except the double quote and the percent
# sign.
_PLAIN = "".join(chr(code) for code in range(33, 127) if chr(code) not in '"%')
