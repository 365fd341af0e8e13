"""Reads stored messages in Avro, by the schema that each is written with."""

from collections.abc import Callable

from hermes_actors.actors.mailbox import Ref
from hermes_actors.errors import HermesError, Refused
from hermes_actors.model.schema import SchemaKind, WriterSchema, framed_id
from hermes_actors.schema.aside import Costly
from hermes_actors.schema.avro import AvroSchema, UndecodableAvro
from hermes_actors.schema.compiled import CompiledSchemas
from hermes_actors.schema.questions import Decodes, avro_cpu_max_s
from hermes_actors.schema.source import SchemaSource, newest_of
from hermes_actors.schema.validation import ask_aside


class UnknownSchema(Exception):
    """The schema of a message is not known here, or not yet; the text names topic, version, id."""


class AvroReader:
    """The schemas that a node knows, as readers of messages want them.

    What takes long is asked of `costly`; without it nothing is.
    """

    def __init__(
        self, source: SchemaSource, compiled: CompiledSchemas, costly: Ref[Costly] | None = None
    ) -> None:
        self._source = source
        self._compiled = compiled
        self._costly = costly

    def guess(self, topic: str, body: bytes) -> WriterSchema:
        """Tell the schema of a message in Avro whose record does not: that of Confluent's framing,
        if it is one of the topic's, else the newest. Raises UnknownSchema.
        """
        versions = self._source.versions_of(topic)
        newest = newest_of(versions, SchemaKind.AVRO)
        framed = framed_id(body)
        if framed is not None:
            for each in versions.values():
                if each.id == framed:
                    return WriterSchema(each.number, each.id, is_framed=True)
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
        return len(body) <= self._compiled.loop_bytes_max(text)

    def schema(self, text: str) -> AvroSchema:
        """The compiled schema, for bodies that are soon read. Raises UndecodableAvro for one that
        this node cannot use.
        """
        try:
            return self._compiled.of(text)
        except Refused as error:
            raise UndecodableAvro(error.message) from error

    def read_aside(
        self,
        text: str,
        body: bytes,
        done: Callable[[bytes | HermesError], None],
        is_wanted: Callable[[], bool],
        *,
        keeps_metadata: bool,
    ) -> None:
        """Have a body read beside the loop: `done` is told its JSON, with or without `__metadata`,
        or why there is none.
        """
        assert self._costly is not None, "nothing is soon read that is read aside"

        def answered(found: bytes | HermesError | None) -> None:
            assert found is not None, "it is answered with bytes"
            done(found)

        question = Decodes(text, body, keeps_metadata)
        ask_aside(self._costly, Costly(question, avro_cpu_max_s(body), answered, is_wanted))


def _nothing() -> None:
    """Nobody waits for the answer."""
