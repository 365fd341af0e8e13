"""Reads stored Avro messages with the schemas that they were written with."""

from msgspec import Struct

from hermes_actors.errors import HermesError, Refused
from hermes_actors.model.message import Message
from hermes_actors.model.schema import SchemaKind, WriterSchema, framed_id
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.avro import AvroSchema, UndecodableAvro
from hermes_actors.schema.loop_limits import BODY_BYTES_MAX, UNITS_MAX
from hermes_actors.schema.source import SchemaSource, newest_of
from hermes_actors.schema.work import decodes, loop_schema, message_cpu_s


class UnknownSchema(Exception):
    """The schema of a message is not known here, at least not yet; the text names topic, version
    and id.
    """


class ShownBody(Struct, frozen=True):
    """An Avro body shown to people: its JSON, or the `problem` why there is none."""

    json: bytes = b""
    problem: str = ""


class AvroReader:
    """The schemas that a node knows, for readers of messages."""

    def __init__(self, source: SchemaSource, pool: WorkerPool) -> None:
        self._source = source
        self._pool = pool

    def guess(self, topic: str, body: bytes) -> WriterSchema:
        """Determine the schema of an Avro message whose record does not name it: the id in
        Confluent's framing, if it is one of the topic's, else the newest. Raises UnknownSchema.
        """
        framed = framed_id(body)
        if framed is not None:
            for each in self._source.versions_of(topic).values():
                if each.id == framed:
                    return WriterSchema(each.number, each.id, is_framed=True)
        return self.newest(topic)

    def has_schema(self, topic: str) -> bool:
        """True if the topic has an Avro schema, or has schemas that cannot be used at the
        moment.
        """
        versions = self._source.versions_of(topic)
        return newest_of(versions, SchemaKind.AVRO) is not None or bool(self._source.lack(topic))

    def doubt(self, topic: str, written: WriterSchema) -> str:
        """Why an unknown schema may exist nevertheless, because the registry cannot be asked now;
        empty string if nothing suggests it.
        """
        return self._source.doubt(topic, written.version) or self._source.lack(topic)

    def newest(self, topic: str) -> WriterSchema:
        """The topic's newest schema. Raises UnknownSchema if there is none."""
        newest = newest_of(self._source.versions_of(topic), SchemaKind.AVRO)
        if newest is None:
            raise UnknownSchema(f"topic {topic} has no schema, and the message names none")
        return WriterSchema(newest.number, newest.id)

    def numbered(self, topic: str, written: WriterSchema) -> WriterSchema:
        """Complete version and id, if one is missing and known."""
        if written.version and written.id:
            return written
        versions = self._source.versions_of(topic)
        for each in versions.values():
            if each.number == written.version or each.id == written.id:
                return WriterSchema(each.number, each.id, written.is_framed)
        return written

    def text_of(self, topic: str, written: WriterSchema) -> str:
        """Return the text of the schema of a message: by its id if the record has one, else by its
        version. Raises UnknownSchema; UndecodableAvro for a schema of another kind.
        """
        if written.id:
            # If two datacentres saved the same version at the same time, only the id is unique.
            schema = self._source.by_id(written.id)
        else:
            version = self._source.versions_of(topic).get(written.version)
            schema = None if version is None else version.schema
        if schema is None:
            raise UnknownSchema(
                f"topic {topic}: the schema of version {written.version or 'none'}, id "
                f"{written.id or 'none'}, is not known"
            )
        if schema.kind is not SchemaKind.AVRO:
            raise UndecodableAvro(
                f"topic {topic}: id {written.id} is a schema of {schema.kind}, not of Avro"
            )
        return schema.text

    def have_asked(self, topic: str) -> None:
        """Start a look-up of the topic's schemas, without waiting for it."""
        self._source.ask(topic, _nothing)

    def is_soon_read(self, text: str, body: bytes) -> bool:
        """True if the body may be read on the loop."""
        schema = loop_schema(SchemaKind.AVRO, text)
        if isinstance(schema, AvroSchema) and schema.parts is not None:
            return len(body) <= min(BODY_BYTES_MAX, UNITS_MAX // schema.parts)
        # The error is known already.
        return schema is not None

    def schema(self, text: str) -> AvroSchema:
        """Return the compiled schema, for a body for which `is_soon_read` is True. Raises
        UndecodableAvro if this node cannot use it.
        """
        schema = loop_schema(SchemaKind.AVRO, text)
        if isinstance(schema, Refused):
            raise UndecodableAvro(schema.message)
        assert isinstance(schema, AvroSchema), "is_soon_read was True"
        return schema

    async def read_aside(
        self, topic: str, text: str, body: bytes, *, keeps_metadata: bool
    ) -> bytes:
        """Read a body in a worker and return its JSON, with or without `__metadata`. Raises
        HermesError: Refused if it is unreadable, Unavailable if it cannot be read now.
        """
        cpu_s = message_cpu_s(body)
        read: bytes = await self._pool.ask(topic, cpu_s, decodes, text, body, keeps_metadata)
        return read

    async def shown(self, topic: str, message: Message) -> ShownBody:
        """The JSON of an Avro message, as subscribers get it."""
        found = self._soon_shown(topic, message)
        if isinstance(found, ShownBody):
            return found
        try:
            body = message.unframed_body
            return ShownBody(await self.read_aside(topic, found, body, keeps_metadata=False))
        except HermesError as error:
            return ShownBody(problem=error.message)

    def _soon_shown(self, topic: str, message: Message) -> ShownBody | str:
        """The JSON, or the text of the schema if a worker must read the message."""
        written = message.written_with
        assert written is not None, "it is in Avro"
        try:
            text = self.text_of(topic, written)
            if not self.is_soon_read(text, message.body):
                return text
            return ShownBody(self.schema(text).to_json(message.unframed_body))
        except (UnknownSchema, UndecodableAvro) as error:
            return ShownBody(problem=str(error))


def _nothing() -> None:
    """Does nothing after the look-up."""
