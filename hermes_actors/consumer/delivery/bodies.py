"""The bodies that one subscription's messages are pushed with.

A message in Avro becomes JSON without `__metadata`, unless the subscription takes Avro: then it is
pushed as stored, without Confluent's framing. Every other message is pushed as stored, also on an
AVRO topic, where it is older than the topic's migration. This is decided once, when the record is
read; later code pushes the body that it gets.
"""

from typing import Any

import msgspec
import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.errors import HermesError, Refused
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import Message
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.schema import WriterSchema
from hermes_actors.model.subscription import DeliveryType
from hermes_actors.model.topic import ContentType
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.avro import UndecodableAvro
from hermes_actors.schema.reading import AvroReader, UnknownSchema
from hermes_actors.schema.work import JSON_BYTES_MAX

PATIENCE_S = 10.0
"""How long to wait for an unknown schema. A message may arrive before its schema, from another
datacentre.
"""
UNKNOWN_MAX = 3
"""If so many schemas of one subscription were waited for in vain, the next ones get less time."""
SHORT_PATIENCE_S = 1.0
"""That shorter time. Foreign writers may use any schema id, and each wait holds up a partition."""
FORGET_S = 60.0
"""After this time an unknown schema is waited for again."""

_AGAIN_MIN_S = 0.1
_AGAIN_MAX_S = 1.0
_WAITED_MAX = 1_000
_JSON_BYTES_MAX = 65_536
_DATA_TYPE = "datacontenttype"
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class Undeliverable(Exception):
    """The message is given up for `reason`; the text explains it."""

    def __init__(self, reason: DiscardReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class NotReadable(Exception):
    """The message cannot be read now. Try again after `again_s` seconds."""

    def __init__(self, detail: str, again_s: float) -> None:
        super().__init__(detail)
        self.again_s = again_s


class OpenedAvro(Struct, frozen=True):
    """A message in Avro: its writer schema, its Avro without framing, and the schema's text. The
    text is an empty string if nobody needs to decode the message.
    """

    message: Message
    written: WriterSchema
    avro: bytes
    schema: str


class Bodies:
    """The bodies of one subscription's messages. Its content type and its topic's never change."""

    def __init__(
        self, live: LiveSubscription, topic: ContentType, reader: AvroReader, clock: Clock
    ) -> None:
        subscription = live.subscription
        self._topic = subscription.topic_name
        self._reader = reader
        self._now_s = clock.monotonic_s
        is_batch = subscription.delivery_type is DeliveryType.BATCH
        self._is_json = is_batch or subscription.content_type is not ContentType.AVRO
        self.is_of_avro = topic is ContentType.AVRO
        # When each unknown schema was first missed.
        self._unknown: dict[WriterSchema, float] = {}

    def of_topic(self, record: StoredRecord, message: Message) -> Message:
        """The message in a record of the topic. On a JSON topic that has no Avro schema, a foreign
        record is not Avro, whatever its headers say.
        """
        if message.written_with is None or self.is_of_avro or not _is_foreign(record, message):
            return message
        has_avro = self._reader.has_schema(self._topic)
        return message if has_avro else replace(message, written_with=None)

    def open(
        self, record: StoredRecord, message: Message, *, is_looked_into: bool
    ) -> OpenedAvro | None:
        """Unwrap the Avro message in a record; None if it is not Avro.

        Raises NotReadable while its schema is waited for, and Undeliverable.
        """
        written = message.written_with
        if message.is_tombstone:
            return None
        if written is None and (not self.is_of_avro or not _is_foreign(record, message)):
            return None
        if written is None and _is_json_object(message.body):
            # A foreign producer wrote it before the topic became AVRO.
            return None
        try:
            if written is None:
                written = self._reader.guess(self._topic, message.body)
            opened = replace(message, written_with=written)
            needs_schema = self._is_json or is_looked_into
            text = self._reader.text_of(self._topic, written) if needs_schema else ""
            if self._unknown:
                # It was missing, and has arrived.
                self._unknown.pop(written, None)
        except UnknownSchema as error:
            raise self._unknown_schema(written or WriterSchema(0, 0), str(error)) from error
        except UndecodableAvro as error:
            raise Undeliverable(DiscardReason.UNDECODABLE, str(error)) from error
        return OpenedAvro(opened, written, opened.unframed_body, text)

    def is_soon_read(self, opened: OpenedAvro) -> bool:
        """True if the body need not be decoded, or is small enough to decode on the loop."""
        return not opened.schema or self._reader.is_soon_read(opened.schema, opened.avro)

    def document(self, opened: OpenedAvro, avro: bytes) -> Any:
        """Decode a message on the loop, for filters. Raises Undeliverable."""
        try:
            return self._reader.schema(opened.schema).document(avro)
        except UndecodableAvro as error:
            raise Undeliverable(DiscardReason.UNDECODABLE, str(error)) from error

    def passed_on(self, opened: OpenedAvro, document: Any = None) -> Message:
        """The message to push, converted on the loop. `document` is the decoded message, if there
        is one already. Raises Undeliverable.
        """
        if not self._is_json:
            written = self._reader.numbered(self._topic, opened.written)
            # Without the frame.
            return self._message(opened, opened.avro, WriterSchema(written.version, written.id))
        try:
            schema = self._reader.schema(opened.schema)
            body = schema.to_json(opened.avro) if document is None else schema.json_of(document)
        except UndecodableAvro as error:
            raise Undeliverable(DiscardReason.UNDECODABLE, str(error)) from error
        return self._as_json(opened, body)

    async def passed_on_aside(self, opened: OpenedAvro) -> Message:
        """As `passed_on`, but converts in a worker. Raises Undeliverable and NotReadable."""
        if not self._is_json:
            return self.passed_on(opened)
        return self._as_json(opened, await self.json_aside(opened, keeps_metadata=False))

    async def json_aside(self, opened: OpenedAvro, *, keeps_metadata: bool) -> bytes:
        """The message as JSON, converted in a worker. Raises Undeliverable and NotReadable."""
        try:
            return await self._reader.read_aside(
                self._topic, opened.schema, opened.avro, keeps_metadata=keeps_metadata
            )
        except Refused as error:
            raise Undeliverable(DiscardReason.UNDECODABLE, error.message) from error
        except HermesError as error:
            raise NotReadable(error.message, _AGAIN_MAX_S) from error

    async def read(self, record: StoredRecord, message: Message) -> Message:
        """The message to push. Waits for its schema as long as necessary. Raises Undeliverable."""
        message = self.of_topic(record, message)
        while True:
            try:
                opened = self.open(record, message, is_looked_into=False)
                if opened is None:
                    return message
                if self.is_soon_read(opened):
                    return self.passed_on(opened)
                return await self.passed_on_aside(opened)
            except NotReadable as error:
                again_s = error.again_s
            await trio.sleep(again_s)

    def _unknown_schema(self, written: WriterSchema, why: str) -> NotReadable | Undeliverable:
        """Request an unknown schema. Return an error: NotReadable with the time of the next try, or
        Undeliverable after a bounded wait. While the registry cannot be asked, the wait has no
        bound.
        """
        self._reader.have_asked(self._topic)
        if doubt := self._reader.doubt(self._topic, written):
            return NotReadable(f"{why}: {doubt}", _AGAIN_MAX_S)
        now_s = self._now_s()
        unknown = self._unknown = {
            each: since_s for each, since_s in self._unknown.items() if now_s - since_s < FORGET_S
        }
        in_vain = sum(now_s - since_s >= PATIENCE_S for since_s in unknown.values())
        patience_s = PATIENCE_S if in_vain < UNKNOWN_MAX else SHORT_PATIENCE_S
        if written not in unknown and len(unknown) >= _WAITED_MAX:
            del unknown[next(iter(unknown))]
        waited_s = now_s - unknown.setdefault(written, now_s)
        if waited_s >= patience_s:
            waited = f"it has been waited for {patience_s:g} s"
            return Undeliverable(DiscardReason.UNDECODABLE, f"{why}; {waited}")
        return NotReadable(why, min(max(_AGAIN_MIN_S, waited_s), _AGAIN_MAX_S))

    def _as_json(self, opened: OpenedAvro, body: bytes) -> Message:
        if len(body) > JSON_BYTES_MAX:
            raise Undeliverable(
                DiscardReason.TOO_LARGE,
                f"{len(opened.avro)} bytes of Avro become {len(body)} bytes of JSON, more than "
                f"{JSON_BYTES_MAX}",
            )
        return self._message(opened, body, None)

    def _message(self, opened: OpenedAvro, body: bytes, written: WriterSchema | None) -> Message:
        message = opened.message
        attributes = message.attributes
        if attributes:
            # The event's content type was that of its published form.
            attributes = tuple(each for each in attributes if each[0] != _DATA_TYPE)
        return replace(message, body=body, attributes=attributes, written_with=written)


def _is_json_object(body: bytes) -> bool:
    """True for a JSON object. That a body in Avro is one as well is very unlikely."""
    if len(body) > _JSON_BYTES_MAX or body[:1] != b"{" or body.rstrip()[-1:] != b"}":
        return False
    try:
        _skim(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_foreign(record: StoredRecord, message: Message) -> bool:
    """True for a record that a foreign producer wrote: neither the native form nor an envelope."""
    return message.body is record.value and not message.dc
