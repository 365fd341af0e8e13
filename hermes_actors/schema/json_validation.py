"""The check of messages by a JSON Schema."""

from collections.abc import Callable
from functools import partial

from hermes_actors.actors.mailbox import Ref
from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.message import Message
from hermes_actors.schema.aside import Costly, TooCostly
from hermes_actors.schema.json_schema import JsonSchema, Unexplained, weight_of
from hermes_actors.schema.questions import Fits, Told
from hermes_actors.schema.validation import UNITS_MAX, BodyHead, Done, Outcome, ask_aside
from hermes_actors.schema.weight import Weight

CPU_MAX_S = 0.1
"""The CPU time that one message may take beside the loop."""

_LOOP_BYTES_MAX = 65_536
"""A larger body is decoded beside the loop: one decoding cannot be interrupted."""

_COMPILED_BYTES_MAX = 65_536
"""A larger schema is compiled beside the loop only."""


class JsonValidation:
    """The demands of a JSON Schema: a message that fits is stored as it came."""

    __slots__ = ("__weakref__", "_aside", "_compiled", "_text", "_weight", "refusal")

    reads_head = False

    def __init__(self, text: str, aside: Ref[Costly]) -> None:
        self._text = text
        self._aside = aside
        self.refusal: HermesError | None = None
        self._weight: Weight | None = None
        self._compiled: JsonSchema | None = None
        try:
            if len(text) <= _COMPILED_BYTES_MAX:
                self._weight = weight_of(text)
            if self._weight is not None:
                self._compiled = JsonSchema(text)
        except (Refused, ValueError, RecursionError) as error:
            # Another version's node has stored it; whatever it is, other topics go on.
            message = f"This node cannot use the topic's schema: {error}"
            self.refusal = Refused(message, ErrorCode.SCHEMA_COULD_NOT_BE_LOADED)

    def units(self, body: bytes) -> int:
        """The most work on the loop that the body can be, in units of 0.1 µs."""
        if self.refusal is not None:
            return 0
        if self._compiled is None or self._weight is None or len(body) > _LOOP_BYTES_MAX:
            return UNITS_MAX + 1
        return self._weight.units(body)

    def check(self, message: Message, _head: BodyHead) -> Outcome:
        """Check a message whose body is at most UNITS_MAX units, at once; the error is Unexplained
        where the reasons would take long to find.
        """
        if self.refusal is not None:
            return self.refusal
        assert self._compiled is not None, "it has been compiled"
        assert self._weight is not None, "its work has a bound"
        body = message.body
        if self._compiled.fits(body):
            return message
        if not self._weight.is_soon_explained(body):
            return Unexplained()
        return self._compiled.check(body) or message

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Check a message, at once or beside the loop."""
        unexplained: Unexplained | None = None
        if self.units(message.body) <= UNITS_MAX:
            outcome = self.check(message, head)
            if not isinstance(outcome, Unexplained):
                done(outcome)
                return
            # That it does not fit is certain: only the reasons are asked for.
            unexplained = outcome
        answered = partial(_tell, done, message, unexplained)
        question = Fits(self._text, message.body)
        ask_aside(self._aside, Costly(question, CPU_MAX_S, answered, is_wanted))


def _tell(done: Done, message: Message, unexplained: Unexplained | None, error: Told) -> None:
    """Tell what was found beside the loop; `unexplained` is certain, whatever became of that."""
    assert not isinstance(error, bytes), "whether it fits is asked"
    if unexplained is None:
        done(message if error is None else error)
    elif isinstance(error, Refused) and not isinstance(error, TooCostly):
        done(error)
    else:
        done(unexplained)
