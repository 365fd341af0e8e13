"""Reads stored messages in Avro, by the schema that each is written with."""

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
    """The schema of a message is not known here, or not yet; the text names topic, version, id."""


class ShownBody(Struct, frozen=True):
    """A body in Avro as people are shown it: its JSON, or the `problem` why there is none."""

    json: bytes = b""
    problem: str = ""


class AvroReader:
    """The schemas that a node knows, as readers of messages want them."""

    def __init__(self, source: SchemaSource, pool: WorkerPool) -> None:
        self._source = source
        self._pool = pool

    def guess(self, topic: str, body: bytes) -> WriterSchema:
        """Tell the schema of a message in Avro whose record does not: that of Confluent's framing,
        if it is one of the topic's, else the newest. Raises UnknownSchema.
        """
        framed = framed_id(body)
        if framed is not None:
            for each in self._source.versions_of(topic).values():
                if each.id == framed:
                    return WriterSchema(each.number, each.id, is_framed=True)
        return self.newest(topic)

    def has_schema(self, topic: str) -> bool:
        """True where the topic has a schema of Avro, or has one that cannot be used now."""
        versions = self._source.versions_of(topic)
        return newest_of(versions, SchemaKind.AVRO) is not None or bool(self._source.lack(topic))

    def doubt(self, topic: str, written: WriterSchema) -> str:
        """Why a schema that is not known may be there all the same: those who keep it cannot be
        asked now; "" when nothing speaks for it.
        """
        return self._source.doubt(topic, written.version) or self._source.lack(topic)

    def newest(self, topic: str) -> WriterSchema:
        """The topic's newest schema, as a message's. Raises UnknownSchema where there is none."""
        newest = newest_of(self._source.versions_of(topic), SchemaKind.AVRO)
        if newest is None:
            raise UnknownSchema(f"topic {topic} has no schema, and the message names none")
        return WriterSchema(newest.number, newest.id)

    def numbered(self, topic: str, written: WriterSchema) -> WriterSchema:
        """The same with version and id both, where one is missing and known."""
        if written.version and written.id:
            return written
        versions = self._source.versions_of(topic)
        for each in versions.values():
            if each.number == written.version or each.id == written.id:
                return WriterSchema(each.number, each.id, written.is_framed)
        return written

    def text_of(self, topic: str, written: WriterSchema) -> str:
        """The text of the schema that a message is written with: by its id, if the record has one,
        else by its version. Raises UnknownSchema, and UndecodableAvro for a schema of another kind.
        """
        if written.id:
            # Where two datacentres saved one version at the same moment, the id says which it is.
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
        """Have the topic's schemas looked up where they are kept; nobody waits for it."""
        self._source.ask(topic, _nothing)

    def is_soon_read(self, text: str, body: bytes) -> bool:
        """True when the body may be read on the loop."""
        schema = loop_schema(SchemaKind.AVRO, text)
        if isinstance(schema, AvroSchema) and schema.parts is not None:
            return len(body) <= min(BODY_BYTES_MAX, UNITS_MAX // schema.parts)
        # The reason why it cannot be read is at hand.
        return schema is not None

    def schema(self, text: str) -> AvroSchema:
        """The compiled schema, for bodies that are soon read. Raises UndecodableAvro for one that
        this node cannot use.
        """
        schema = loop_schema(SchemaKind.AVRO, text)
        if isinstance(schema, Refused):
            raise UndecodableAvro(schema.message)
        assert isinstance(schema, AvroSchema), "it is soon read"
        return schema

    async def read_aside(
        self, topic: str, text: str, body: bytes, *, keeps_metadata: bool
    ) -> bytes:
        """Read a body in a worker: return its JSON, with or without `__metadata`. Raises
        HermesError: Refused for what cannot be read, Unavailable for what cannot be now.
        """
        cpu_s = message_cpu_s(body)
        read: bytes = await self._pool.ask(topic, cpu_s, decodes, text, body, keeps_metadata)
        return read

    async def shown(self, topic: str, message: Message) -> ShownBody:
        """The JSON of a message in Avro, as subscribers get it."""
        found = self._soon_shown(topic, message)
        if isinstance(found, ShownBody):
            return found
        try:
            body = message.unframed_body
            return ShownBody(await self.read_aside(topic, found, body, keeps_metadata=False))
        except HermesError as error:
            return ShownBody(problem=error.message)

    def _soon_shown(self, topic: str, message: Message) -> ShownBody | str:
        """The JSON, or the schema's text where the message is read in a worker."""
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
    """Nobody waits for the answer."""
