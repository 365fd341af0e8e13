"""The check of messages of an AVRO topic, and their conversion into what is stored."""

import logging
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from hermes_actors.actors.mailbox import Ref
from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.message import Message
from hermes_actors.model.schema import SchemaKind, WriterSchema, framed
from hermes_actors.schema.aside import Costly
from hermes_actors.schema.avro import AvroSchema, BodyForm
from hermes_actors.schema.avro_writing import TooMuchWork
from hermes_actors.schema.compiled import CompiledSchemas
from hermes_actors.schema.questions import Converts, Told, avro_cpu_max_s
from hermes_actors.schema.source import SchemaSource, SchemaVersion, newest_of
from hermes_actors.schema.validation import UNITS_MAX, BodyHead, Done, Outcome, ask_aside

_logger = logging.getLogger(__name__)

_FORMS = {form.value: form for form in BodyForm}
_SHOWN_MAX = 100
_TOLD_EVERY = 1_000
_UNITS_A_STEP_TENTHS = 15
"""A field that has its default is two steps, and takes some 0.25 µs with its writing."""


class AvroValidation:
    """The demands of an AVRO topic: a body in one of the forms of `BodyForm`, by its Content-Type,
    becomes Avro in the version of the topic's schema that is asked for, else in the newest.

    With `frames` the body begins with Confluent's five bytes. With `takes_ids` a schema may be
    named by its id.
    """

    __slots__ = ("_aside", "_compiled", "_frames", "_newest", "_source", "_takes_ids", "_topic")

    reads_head = True

    def __init__(
        self,
        topic: str,
        source: SchemaSource,
        compiled: CompiledSchemas,
        aside: Ref[Costly],
        *,
        frames: bool,
        takes_ids: bool,
    ) -> None:
        self._topic = topic
        self._source = source
        self._compiled = compiled
        self._aside = aside
        self._frames = frames
        self._takes_ids = takes_ids
        self._newest: SchemaVersion | None = None
        self._look()

    @property
    def refusal(self) -> HermesError | None:
        """Why no message fits: there is no schema, as far as is known by now."""
        if self._newest is None:
            self._source.ask(self._topic, self._look)
        return self._without_schema() if self._newest is None else None

    def _without_schema(self) -> Refused:
        return without_schema(self._topic, self._source.lack(self._topic))

    def _look(self) -> None:
        self._newest = newest_of(self._source.versions_of(self._topic), SchemaKind.AVRO)

    def units(self, body: bytes) -> int:
        """The most work on the loop that the body can be, in units of 0.1 µs."""
        if self._newest is None:
            return 0
        text = self._newest.schema.text
        bytes_max = self._compiled.loop_bytes_max(text, BodyForm.JSON)
        if not bytes_max:
            return UNITS_MAX + 1
        # Each record may be all defaults, whatever it takes to say so.
        defaults = body.count(b"{") * self._compiled.record_steps_max(text)
        return len(body) * UNITS_MAX // bytes_max + defaults * _UNITS_A_STEP_TENTHS // 10 + 1

    def check(self, message: Message, head: BodyHead) -> Outcome:
        """Convert a message whose body is at most UNITS_MAX units, at once."""
        chosen = self._chosen(head)
        if isinstance(chosen, HermesError):
            # Whoever comes later may find it.
            self._source.ask(self._topic, _nothing)
            return chosen
        form = form_of(head.content_type, self._topic)
        if isinstance(form, HermesError):
            return form
        # `units` tells of the newest version, and an older one may be more work.
        if len(message.body) <= self._compiled.loop_bytes_max(chosen.schema.text, form):
            try:
                return self._converted(message, chosen, form)
            except HermesError as error:
                return error
            except TooMuchWork:
                pass
        return Refused("The topic's schema is too costly to be used here; publish it by itself")

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Convert a message, at once or beside the loop; what the node does not know of the topic's
        schema is looked up before.
        """
        chosen = self._chosen(head)
        if isinstance(chosen, HermesError):
            self._source.ask(self._topic, partial(self._asked, message, head, done, is_wanted))
        else:
            self._convert(message, head, chosen, done, is_wanted)

    def _asked(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Go on with a message whose schema was not known, when it has been looked up."""
        if self._newest is None:
            self._look()
        chosen = self._chosen(head)
        if isinstance(chosen, HermesError):
            done(chosen)
        else:
            self._convert(message, head, chosen, done, is_wanted)

    def _convert(
        self,
        message: Message,
        head: BodyHead,
        chosen: SchemaVersion,
        done: Done,
        is_wanted: Callable[[], bool],
    ) -> None:
        form = form_of(head.content_type, self._topic)
        if isinstance(form, HermesError):
            done(form)
            return
        text = chosen.schema.text
        if len(message.body) <= self._compiled.loop_bytes_max(text, form):
            try:
                outcome: Outcome | None = self._converted(message, chosen, form)
            except HermesError as error:
                outcome = error
            except TooMuchWork:
                outcome = None
            if outcome is not None:
                done(outcome)
                return
        question = Converts(text, form, message.body, metadata_of(message))
        answered = partial(self._answered, message, chosen, done)
        ask_aside(self._aside, Costly(question, avro_cpu_max_s(message.body), answered, is_wanted))

    def _answered(
        self,
        message: Message,
        chosen: SchemaVersion,
        done: Done,
        found: Told,
    ) -> None:
        """Tell what came of a conversion beside the loop."""
        if isinstance(found, bytes):
            done(self._stored(message, chosen, found))
        else:
            assert found is not None, "a conversion is answered with bytes"
            done(found)

    def _converted(self, message: Message, chosen: SchemaVersion, form: BodyForm) -> Message:
        schema: AvroSchema = self._compiled.of(chosen.schema.text)
        body = schema.convert(form, message.body, metadata_of(message))
        return self._stored(message, chosen, body)

    def _stored(self, message: Message, chosen: SchemaVersion, body: bytes) -> Message:
        if self._frames:
            body = framed(chosen.id, body)
        written_with = WriterSchema(chosen.number, chosen.id, self._frames)
        return replace(message, body=body, written_with=written_with)

    def _versions(self) -> dict[int, SchemaVersion]:
        versions = self._source.versions_of(self._topic)
        return {
            number: each for number, each in versions.items() if each.schema.kind is SchemaKind.AVRO
        }

    def _chosen(self, head: BodyHead) -> SchemaVersion | HermesError:
        """The schema that the body is for, by id, by version, else the newest."""
        if head.schema_id and self._takes_ids:
            for each in self._versions().values():
                if each.id == head.schema_id:
                    return each
            return self._no_such("id", head.schema_id)
        if head.version:
            if self._newest is not None and self._newest.number == head.version:
                return self._newest
            return self._versions().get(head.version) or self._no_such("version", head.version)
        return self._newest or self._without_schema()

    def _no_such(self, what: str, number: int) -> Refused:
        doubt = self._source.doubt(self._topic, number if what == "version" else 0)
        if doubt:
            # Not 400, for which publishers give a message up.
            return Refused(
                f"Schema {what} '{number}' of topic {self._topic} is not known: {doubt}; try again",
                ErrorCode.SCHEMA_COULD_NOT_BE_LOADED,
            )
        # The text is Hermes' own.
        message = f"Given schema {what} '{number}' does not exist"
        return Refused(message, ErrorCode.SCHEMA_VERSION_DOES_NOT_EXIST)


class DryRun:
    """The trial of an AVRO schema on a JSON topic: what cannot be converted is stored all the same,
    and told in the log. As in Hermes, a body of no known Content-Type is refused.
    """

    __slots__ = ("_conversion", "_failures", "_topic")

    reads_head = True
    refusal: HermesError | None = None

    def __init__(self, topic: str, conversion: AvroValidation) -> None:
        self._topic = topic
        self._conversion = conversion
        self._failures = 0

    def units(self, body: bytes) -> int:
        """The most work on the loop that the body can be, in units of 0.1 µs; what would be more
        is not tried there.
        """
        units = self._conversion.units(body)
        return units if units <= UNITS_MAX else 0

    def check(self, message: Message, head: BodyHead) -> Outcome:
        """Try the conversion of a message, at once; what would be too much work is let pass."""
        if self._conversion.units(message.body) > UNITS_MAX:
            wrong = form_of(head.content_type, self._topic)
            return wrong if isinstance(wrong, HermesError) else message
        return self._judged(message, head, self._conversion.check(message, head))

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Try the conversion of a message, at once or beside the loop."""
        self._conversion(
            message,
            head,
            lambda outcome: done(self._judged(message, head, outcome)),
            is_wanted,
        )

    def _judged(self, message: Message, head: BodyHead, outcome: Outcome) -> Outcome:
        """The message as it came, but where there is nothing to try it by."""
        if isinstance(outcome, Message):
            return message
        if outcome.code is not ErrorCode.VALIDATION_ERROR and outcome.status != 503:
            return outcome
        if isinstance(form_of(head.content_type, self._topic), HermesError):
            return outcome
        self._failures += 1
        if self._failures % _TOLD_EVERY == 1:
            _logger.warning(
                "%s: message %s would not become Avro (failure %d of the dry run): %s",
                self._topic,
                message.id,
                self._failures,
                outcome.message,
            )
        return message


def form_of(content_type: str | None, topic: str) -> BodyForm | Refused:
    """The form of a body with this Content-Type, or why the topic does not take it."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    form = _FORMS.get(media_type)
    if form is not None:
        return form
    shown = "null" if content_type is None else content_type[:_SHOWN_MAX]
    return Refused(
        f"Unsupported payload content type header {shown} for AVRO topic {topic}; send "
        f"{', '.join(_FORMS)}"
    )


def metadata_of(message: Message) -> dict[str, str]:
    """The message's `__metadata`: its publisher's headers, its id and its time."""
    return {
        **dict(message.propagated),
        "messageId": message.id,
        "timestamp": str(message.published_at_ms),
    }


def without_schema(topic: str, why: str = "") -> Refused:
    """Return the error for a topic whose messages need a schema, and none is known."""
    reason = f": {why}; try again" if why else ""
    return Refused(
        f"No schema is known for topic {topic}{reason}", ErrorCode.SCHEMA_COULD_NOT_BE_LOADED
    )


def _nothing() -> None:
    """Nobody waits for the answer."""
