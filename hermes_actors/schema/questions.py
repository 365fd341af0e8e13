"""The questions about schemas that may take long, as values, and their answers."""

from typing import assert_never

import msgspec
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.json_schema import JsonSchema, can_read


class Compiles(Struct, frozen=True, tag="compiles"):
    """Is this a JSON Schema?"""

    schema: str


class Fits(Struct, frozen=True, tag="fits"):
    """Does a message with this body fit the JSON Schema?"""

    schema: str
    body: bytes


class Reads(Struct, frozen=True, tag="reads"):
    """Does the JSON Schema `reader` allow all that `writer` allows?"""

    reader: str
    writer: str


Question = Compiles | Fits | Reads


class No(Struct, frozen=True):
    """The answer is no; the message and the code of the error say why."""

    message: str
    code: str

    def error(self) -> Refused:
        """The answer as an error for whoever sent the message or the schema."""
        return Refused(self.message, ErrorCode[self.code])


class Answerer:
    """Answers questions, however long it takes; the schemas asked about last stay compiled."""

    def __init__(self, compiled_max: int = 64) -> None:
        self._compiled_max = compiled_max
        self._compiled: dict[str, JsonSchema] = {}

    def answer(self, question: Question) -> No | None:
        """Return why not, or None for yes."""
        error: Refused | None
        try:
            match question:
                case Compiles(schema):
                    self._schema(schema)
                    error = None
                case Fits(schema, body):
                    error = self._schema(schema).check(body)
                case Reads(reader, writer):
                    is_readable = can_read(reader, writer)
                    error = None if is_readable else Refused("it allows less, or may allow less")
                case _:
                    assert_never(question)
        except Refused as refused:
            error = refused
        return None if error is None else No(error.message, error.code.name)

    def _schema(self, text: str) -> JsonSchema:
        schema = self._compiled.pop(text, None) or JsonSchema(text)
        self._compiled[text] = schema
        if len(self._compiled) > self._compiled_max:
            del self._compiled[next(iter(self._compiled))]
        return schema


class SentQuestion(Struct, frozen=True):
    """A question on its way to another process, and the CPU time that it may take there."""

    question: Question
    cpu_s: float


ASKED = msgspec.msgpack.Decoder(SentQuestion)
ANSWERED: msgspec.msgpack.Decoder[No | None] = msgspec.msgpack.Decoder(No | None)
LENGTH_BYTES = 4
"""Before each question and each answer stands its length, big-endian."""


def framed(value: SentQuestion | No | None) -> bytes:
    """The bytes of a question or an answer, with their length."""
    encoded = msgspec.msgpack.encode(value)
    return len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded
