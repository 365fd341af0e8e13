"""The check of messages by a JSON Schema."""

from collections.abc import Callable

from hermes_actors.errors import HermesError, Refused
from hermes_actors.model.message import Message
from hermes_actors.runtime.workers import Job, TooCostly, WorkerPool
from hermes_actors.schema.json_schema import JsonSchema, loop_schema
from hermes_actors.schema.loop_limits import UNITS_MAX, is_small
from hermes_actors.schema.validation import BodyHead, Done, Outcome
from hermes_actors.schema.work import fits, message_cpu_s

_EXPLAINED_UNITS_MAX = 200_000
"""Finding the reasons may take the square of the time of the check."""

_MISFIT = Refused("Invalid message: it does not fit its topic's schema")


class JsonValidation:
    """The demands of a JSON Schema: a message that fits is stored as it came."""

    reads_head = False

    def __init__(self, text: str, pool: WorkerPool) -> None:
        self._text = text
        self._pool = pool
        found = loop_schema(text)
        self.refusal: HermesError | None = found if isinstance(found, Refused) else None
        self._schema = found if isinstance(found, JsonSchema) else None

    def units(self, body: bytes) -> int:
        """The work on the loop that the body can be; more than UNITS_MAX for a worker."""
        if self.refusal is not None:
            return 0
        if self._schema is None or self._schema.parts is None or not is_small(body):
            return UNITS_MAX + 1
        return len(body) * self._schema.parts

    def check(self, message: Message, _head: BodyHead) -> Outcome:
        """Check a message whose body is at most UNITS_MAX units, at once; the reasons are left out
        where they would take long to find.
        """
        if self.refusal is not None:
            return self.refusal
        assert self._schema is not None, "it is for the loop"
        if self._schema.fits(message.body):
            return message
        if self.units(message.body) > _EXPLAINED_UNITS_MAX:
            return _MISFIT
        return self._schema.check(message.body) or message

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Check a message, at once or in a worker."""
        is_misfit = False
        if self.units(message.body) <= UNITS_MAX:
            outcome = self.check(message, head)
            is_misfit = outcome is _MISFIT
            if not is_misfit:
                done(outcome)
                return

        def checked(error: HermesError | None) -> None:
            if isinstance(error, TooCostly):
                error = Refused(f"Invalid message: checking it is too much: {error.message}")
                done(_MISFIT if is_misfit else error)
            elif is_misfit and not isinstance(error, Refused):
                done(_MISFIT)
            else:
                done(message if error is None else error)

        cpu_s = message_cpu_s(message.body)
        args = (self._text, message.body)
        self._pool.submit(Job(self._text, cpu_s, fits, args, checked, is_wanted))
