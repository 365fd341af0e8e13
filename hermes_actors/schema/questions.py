"""The questions about schemas that may take long, as values, and their answers."""

from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.schema.avro import (
    ASIDE_STEPS_MAX,
    AvroSchema,
    BodyForm,
    UndecodableAvro,
    metadata_refusal,
)
from hermes_actors.schema.avro_compatibility import require_avro, why_unreadable
from hermes_actors.schema.avro_writing import TooMuchWork
from hermes_actors.schema.json_schema import JsonSchema, can_read


class Compiles(Struct, frozen=True, tag="compiles"):
    """Is this a schema? `of_topic`: and can a topic's messages be written by it? `needs_metadata`:
    and has it, if it is Avro, the field for what the broker knows of a message?
    """

    schema: Schema
    of_topic: bool = False
    needs_metadata: bool = False


class Fits(Struct, frozen=True, tag="fits"):
    """Does a message with this body fit the JSON Schema?"""

    schema: str
    body: bytes


class Converts(Struct, frozen=True, tag="converts"):
    """The body of a message in the Avro schema, with this `__metadata`; the form is how it came."""

    schema: str
    form: BodyForm
    body: bytes
    metadata: dict[str, str]


class Decodes(Struct, frozen=True, tag="decodes"):
    """A stored body in the Avro schema, as JSON, with or without its `__metadata`."""

    schema: str
    body: bytes
    keeps_metadata: bool = False


class Reads(Struct, frozen=True, tag="reads"):
    """Can whoever reads by the schema `reader` read all that may be written by `writer`, a schema
    of the same kind?
    """

    reader: Schema
    writer: Schema


JSON_BYTES_MAX = 16_777_216
"""The largest JSON that a body in Avro may become."""

Question = Compiles | Fits | Converts | Decodes | Reads


def avro_cpu_max_s(body: bytes) -> float:
    """The CPU time that converting a body of this size may take beside the loop, in seconds."""
    return min(0.1 + len(body) * 200e-9, 2.0)


class No(Struct, frozen=True, tag="no"):
    """The answer is no; the message and the code of the error say why."""

    message: str
    code: str

    def error(self) -> Refused:
        """The answer as an error for whoever sent the message or the schema."""
        return Refused(self.message, ErrorCode[self.code])


class Found(Struct, frozen=True, tag="found"):
    """The answer is these bytes."""

    body: bytes


Answer = No | Found | None
"""None is the answer yes."""

Told = bytes | HermesError | None
"""An answer as whoever asked is told: bytes, or why not; None for yes."""

Tell = Callable[[Told], None]


def told(answer: Answer) -> Told:
    """The answer as whoever asked is told it."""
    match answer:
        case No():
            return answer.error()
        case Found(body):
            return body
        case None:
            return None
        case _:
            assert_never(answer)


class Answerer:
    """Answers questions, however long it takes; the schemas asked about last stay compiled."""

    def __init__(self, compiled_max: int = 64) -> None:
        self._compiled_max = compiled_max
        self._compiled: dict[str, JsonSchema] = {}
        self._avro: dict[str, AvroSchema] = {}

    def prepare(self, question: Question) -> None:
        """Compile the schema that a message is asked about; `answer` tells why it cannot be."""
        with suppress(Refused, MemoryError):
            match question:
                case Fits(schema):
                    self._schema(schema)
                case Converts(schema) | Decodes(schema):
                    self._avro_schema(schema)
                case _:
                    pass

    def answer(self, question: Question) -> Answer:
        """Return what was asked for, or why not."""
        error: Refused | None
        try:
            match question:
                case Compiles():
                    error = self._why_not(question)
                case Fits(schema, body):
                    error = self._schema(schema).check(body)
                case Converts(schema, form, body, metadata):
                    avro = self._avro_schema(schema)
                    return Found(avro.convert(form, body, metadata, ASIDE_STEPS_MAX))
                case Decodes(schema, body, keeps_metadata):
                    decoded = self._avro_schema(schema).to_json(body, keeps_metadata)
                    if len(decoded) <= JSON_BYTES_MAX:
                        return Found(decoded)
                    error = Refused(f"{len(decoded)} bytes of JSON, more than {JSON_BYTES_MAX}")
                case Reads(reader, writer):
                    error = _why_unreadable(reader, writer)
                case _:
                    assert_never(question)
        except Refused as refused:
            error = refused
        except (UndecodableAvro, TooMuchWork) as refused:
            error = Refused(f"Invalid message: {refused}")
        except MemoryError:
            error = Refused("It takes more memory than there is for it")
        return None if error is None else No(error.message, error.code.name)

    def _why_not(self, asked: Compiles) -> Refused | None:
        """Why the schema cannot be used; also raises that."""
        text = asked.schema.text
        if asked.schema.kind is SchemaKind.JSON:
            self._schema(text)
            return None
        # By two libraries: versions are compared by one, messages are written by the other.
        require_avro(text)
        reason = metadata_refusal(text) if asked.of_topic else ""
        if reason and asked.needs_metadata:
            return Refused(reason, ErrorCode.FORMAT_ERROR)
        return None

    def _schema(self, text: str) -> JsonSchema:
        schema = self._compiled.pop(text, None) or JsonSchema(text)
        self._compiled[text] = schema
        if len(self._compiled) > self._compiled_max:
            del self._compiled[next(iter(self._compiled))]
        return schema

    def _avro_schema(self, text: str) -> AvroSchema:
        schema = self._avro.pop(text, None) or AvroSchema(text)
        self._avro[text] = schema
        if len(self._avro) > self._compiled_max:
            del self._avro[next(iter(self._avro))]
        return schema


def _why_unreadable(reader: Schema, writer: Schema) -> Refused | None:
    if reader.kind is SchemaKind.AVRO:
        reason = why_unreadable(reader.text, writer.text)
    else:
        reason = "" if can_read(reader.text, writer.text) else "it allows less, or may allow less"
    return Refused(reason) if reason else None


class SentQuestion(Struct, frozen=True):
    """A question on its way to another process, and the CPU time that it may take there."""

    question: Question
    cpu_s: float


ASKED = msgspec.msgpack.Decoder(SentQuestion)
ANSWERED: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
LENGTH_BYTES = 4
"""Before each question and each answer stands its length, big-endian."""


def prefixed(value: SentQuestion | Answer) -> bytes:
    """The bytes of a question or an answer, behind their length."""
    encoded = msgspec.msgpack.encode(value)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded
