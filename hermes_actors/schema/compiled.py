"""Compiled Avro schemas, kept for the next message."""

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.avro import LOOP_BYTES_MAX, AvroSchema, BodyForm, is_soon_compiled

COMPILED_MAX = 1_000
"""Schemas that stay compiled; the one that was asked for longest ago makes room."""

CHARACTERS_MAX = 2_000_000
"""The characters of all of them together: each is some 50 bytes when compiled."""

_AGAIN_CHARACTERS_MAX = 8_192
_EVICTED_MAX = 10_000

_ANY = 1 << 62


class CompiledSchemas:
    """The Avro schemas that a node reads and writes with, each compiled once.

    One that would take long to compile never is: then what it is for goes beside the loop. So does
    one that takes some 5 ms and has had to make room before: messages of many large schemas in turn
    would have each compiled anew.
    """

    def __init__(
        self, compiled_max: int = COMPILED_MAX, characters_max: int = CHARACTERS_MAX
    ) -> None:
        self._compiled_max = compiled_max
        self._characters_max = characters_max
        self._compiled: dict[str, AvroSchema | Refused | None] = {}
        self._characters = 0
        # Hashes of what has had to make room, oldest first.
        self._evicted: dict[int, None] = {}

    def loop_bytes_max(self, text: str, form: BodyForm = BodyForm.AVRO_BINARY) -> int:
        """How many bytes of a body in this form may be read on the loop, by the schema with this
        text; 0 when none may.
        """
        known = self._known(text)
        if isinstance(known, Refused):
            # The reason is at hand.
            return _ANY
        if known is None:
            return 0
        return known.loop_bytes_max if form is BodyForm.AVRO_BINARY else LOOP_BYTES_MAX

    def record_steps_max(self, text: str) -> int:
        """The most steps of one record by the schema with this text that is all defaults."""
        known = self._known(text)
        return known.record_steps_max if isinstance(known, AvroSchema) else 0

    def of(self, text: str) -> AvroSchema:
        """The compiled schema. Raises Refused for a text that this node cannot use; to be called
        for bodies of at most `loop_bytes_max`.
        """
        known = self._known(text)
        if isinstance(known, Refused):
            raise known
        assert known is not None, "it is compiled beside the loop only"
        return known

    def _known(self, text: str) -> AvroSchema | Refused | None:
        if text in self._compiled:
            # Those that are used stay.
            known = self._compiled[text] = self._compiled.pop(text)
            return known
        is_again = len(text) > _AGAIN_CHARACTERS_MAX and hash(text) in self._evicted
        known = _compile(text) if is_soon_compiled(text) and not is_again else None
        self._compiled[text] = known
        self._characters += len(text)
        while len(self._compiled) > self._compiled_max or (
            len(self._compiled) > 1 and self._characters > self._characters_max
        ):
            self._evict(next(iter(self._compiled)))
        return known

    def _evict(self, text: str) -> None:
        del self._compiled[text]
        self._characters -= len(text)
        self._evicted[hash(text)] = None
        if len(self._evicted) > _EVICTED_MAX:
            del self._evicted[next(iter(self._evicted))]


def _compile(text: str) -> AvroSchema | Refused:
    try:
        return AvroSchema(text)
    except Refused as error:
        # Another version's node has stored it; whatever it is, other topics go on.
        message = f"This node cannot use the topic's schema: {error.message}"
        return Refused(message, ErrorCode.SCHEMA_COULD_NOT_BE_LOADED)
