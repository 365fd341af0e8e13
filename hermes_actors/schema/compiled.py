"""Compiled Avro schemas, kept for the next message."""

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.schema.avro import LOOP_BYTES_MAX, AvroSchema, BodyForm, is_soon_compiled

COMPILED_MAX = 1_000
"""Schemas that stay compiled; the one that was asked for longest ago makes room."""

_ANY = 1 << 62


class CompiledSchemas:
    """The Avro schemas that a node reads and writes with, each compiled once.

    One that would take long to compile never is: then what it is for goes beside the loop.
    """

    def __init__(self, compiled_max: int = COMPILED_MAX) -> None:
        self._compiled_max = compiled_max
        self._compiled: dict[str, AvroSchema | Refused | None] = {}

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
        known = _compile(text) if is_soon_compiled(text) else None
        self._compiled[text] = known
        if len(self._compiled) > self._compiled_max:
            del self._compiled[next(iter(self._compiled))]
        return known


def _compile(text: str) -> AvroSchema | Refused:
    try:
        return AvroSchema(text)
    except Refused as error:
        # Another version's node has stored it; whatever it is, other topics go on.
        message = f"This node cannot use the topic's schema: {error.message}"
        return Refused(message, ErrorCode.SCHEMA_COULD_NOT_BE_LOADED)
