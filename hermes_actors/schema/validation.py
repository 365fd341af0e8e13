"""Checks a topic's messages by its schema, as a node has adopted it, on the loop or beside it.

On the loop a body may be a bounded amount of work, told beforehand by its size and the schema's
weight. What may be more is asked beside the loop, and costs a queue and two pipes.
"""

from collections.abc import Callable
from functools import partial
from weakref import WeakValueDictionary

from hermes_actors.actors.mailbox import MailboxClosed, MailboxFull, Ref
from hermes_actors.errors import ErrorCode, HermesError, Refused, Unavailable
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.message import Message
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.model.topic import ContentType, Topic
from hermes_actors.schema.aside import Costly, TooCostly
from hermes_actors.schema.json_schema import JsonSchema, Unexplained, weight_of
from hermes_actors.schema.questions import Fits
from hermes_actors.schema.weight import Weight

UNITS_MAX = 50_000
"""The most work on the loop for one message, or for one slice of a batch: some 5 ms."""

CPU_MAX_S = 0.1
"""The CPU time that one message may take beside the loop."""

_LOOP_BYTES_MAX = 65_536
"""A larger body is decoded beside the loop: one decoding cannot be interrupted."""

_COMPILED_BYTES_MAX = 65_536
"""A larger schema is compiled beside the loop only."""

Done = Callable[[HermesError | None], None]


class Validation:
    """The demands of one schema. Called with a message and `done`, it calls that once, perhaps
    before it returns: with None for a message that fits, else with the reason.
    """

    __slots__ = ("__weakref__", "_aside", "_compiled", "_text", "_weight", "refusal")

    def __init__(self, text: str, aside: Ref[Costly], refusal: HermesError | None = None) -> None:
        """Adopt a schema; `refusal` is why there is none to adopt: no message fits then."""
        self._text = text
        self._aside = aside
        self.refusal = refusal
        """Why no message fits; None where it depends on the message."""
        self._weight: Weight | None = None
        self._compiled: JsonSchema | None = None
        if refusal is not None:
            return
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
        """The most work on the loop that the body can be, in units of 0.1 µs; more than UNITS_MAX
        for one that is checked beside the loop.
        """
        if self.refusal is not None:
            return 0
        if self._compiled is None or self._weight is None or len(body) > _LOOP_BYTES_MAX:
            return UNITS_MAX + 1
        return self._weight.units(body)

    def check(self, body: bytes) -> HermesError | None:
        """Check a body of at most UNITS_MAX units at once: why it does not fit, None if it does;
        Unexplained where the reasons would take long to find.
        """
        if self.refusal is not None:
            return self.refusal
        assert self._compiled is not None, "it has been compiled"
        assert self._weight is not None, "its work has a bound"
        if self._compiled.fits(body):
            return None
        return self._compiled.check(body) if self._weight.is_soon_explained(body) else Unexplained()

    def __call__(self, message: Message, done: Done, is_wanted: Callable[[], bool]) -> None:
        """Check a message, at once or beside the loop, there only while `is_wanted`."""
        body = message.body
        told = done
        if self.units(body) <= UNITS_MAX:
            error = self.check(body)
            if not isinstance(error, Unexplained):
                done(error)
                return
            # That it does not fit is certain: only the reasons are asked for.
            told = partial(_tell_reasons, done, error)
        ask_aside(self._aside, Costly(Fits(self._text, body), CPU_MAX_S, told, is_wanted))


def ask_aside(aside: Ref[Costly], costly: Costly) -> None:
    """Have a question answered beside the loop; its `done` is called once, at once where too many
    wait or the node stops.
    """
    try:
        aside.tell(costly)
    except MailboxFull:
        costly.done(Unavailable("Too many costly schemas wait to be asked; try again"))
    except MailboxClosed:
        costly.done(Unavailable("The node is stopping"))


def _tell_reasons(done: Done, unexplained: Unexplained, found: HermesError | None) -> None:
    """Tell why a message does not fit, if that was found in time."""
    was_found = isinstance(found, Refused) and not isinstance(found, TooCostly)
    done(found if was_found else unexplained)


class Schemas:
    """The schemas of topics, as a catalog has them now; each is adopted once for all its topics."""

    def __init__(self, catalog: Catalog, aside: Ref[Costly]) -> None:
        self._catalog = catalog
        self._aside = aside
        self._adopted: WeakValueDictionary[Schema, Validation] = WeakValueDictionary()

    def of(self, topic: Topic) -> Validation | None:
        """Return what the topic's newest schema demands; None where it has none and needs none."""
        if topic.content_type is ContentType.AVRO:
            return Validation("", self._aside, without_schema(topic.name))
        versions = list(self._catalog.versions_of(topic.name).values())
        if not versions or versions[-1].kind is not SchemaKind.JSON:
            return None
        adopted = self._adopted.get(versions[-1])
        if adopted is None:
            adopted = Validation(versions[-1].text, self._aside)
            self._adopted[versions[-1]] = adopted
        return adopted


def without_schema(topic: str) -> Refused:
    """Return the error for a topic whose messages need a schema, and there is none."""
    return Refused(f"No schema is known for topic {topic}", ErrorCode.SCHEMA_COULD_NOT_BE_LOADED)
