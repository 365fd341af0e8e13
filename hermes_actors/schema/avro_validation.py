"""The check of messages of an AVRO topic, and their conversion into what is stored."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.message import Message
from hermes_actors.model.schema import SchemaKind, WriterSchema, framed
from hermes_actors.runtime.workers import Job, TooCostly, WorkerPool
from hermes_actors.schema.avro import AvroSchema, BodyForm, loop_schema
from hermes_actors.schema.loop_limits import UNITS_MAX, is_small
from hermes_actors.schema.source import SchemaSource, SchemaVersion, newest_of
from hermes_actors.schema.validation import BodyHead, Done, Outcome
from hermes_actors.schema.work import converts, message_cpu_s

_logger = logging.getLogger(__name__)

_FORMS = {form.value: form for form in BodyForm}
_SHOWN_MAX = 100
_TOLD_EVERY = 1_000


class AvroValidation:
    """The demands of an AVRO topic: a body in one of the forms of `BodyForm`, by its Content-Type,
    becomes Avro in the version of the topic's schema that is asked for, else in the newest.

    With `frames` the body begins with Confluent's five bytes. With `takes_ids` a schema may be
    named by its id.
    """

    reads_head = True

    def __init__(
        self, topic: str, source: SchemaSource, pool: WorkerPool, *, frames: bool, takes_ids: bool
    ) -> None:
        self._topic = topic
        self._source = source
        self._pool = pool
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
        """The work on the loop that the body can be; more than UNITS_MAX for a worker."""
        if self._newest is None:
            return 0
        return _units(loop_schema(self._newest.schema.text), body)

    def check(self, message: Message, head: BodyHead) -> Outcome:
        """Convert a message whose body is at most UNITS_MAX units, at once."""
        chosen = self._chosen(head)
        if isinstance(chosen, HermesError):
            # A later message may find it.
            self._source.ask(self._topic, _nothing)
        # An older version than the newest may be more work than `units` says.
        return self._at_once(message, head, chosen) or Refused(
            "The topic's schema is too costly to be used here; publish it by itself"
        )

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Convert a message, at once or in a worker; what the node does not know of the topic's
        schema is looked up before.
        """

        def asked() -> None:
            if self._newest is None:
                self._look()
            self._convert(message, head, self._chosen(head), done, is_wanted)

        chosen = self._chosen(head)
        if isinstance(chosen, HermesError):
            self._source.ask(self._topic, asked)
        else:
            self._convert(message, head, chosen, done, is_wanted)

    def _convert(
        self,
        message: Message,
        head: BodyHead,
        chosen: SchemaVersion | HermesError,
        done: Done,
        is_wanted: Callable[[], bool],
    ) -> None:
        outcome = self._at_once(message, head, chosen)
        if outcome is not None:
            done(outcome)
            return
        form = form_of(head.content_type, self._topic)
        assert isinstance(chosen, SchemaVersion), "else it is refused at once"
        version = chosen

        def converted(found: bytes | HermesError) -> None:
            if isinstance(found, TooCostly):
                found = Refused(f"Invalid message: converting it is too much: {found.message}")
            done(self._stored(message, version, found) if isinstance(found, bytes) else found)

        args = (version.schema.text, form, message.body, metadata_of(message))
        cpu_s = message_cpu_s(message.body)
        self._pool.submit(Job(self._topic, cpu_s, converts, args, converted, is_wanted))

    def _at_once(
        self, message: Message, head: BodyHead, chosen: SchemaVersion | HermesError
    ) -> Outcome | None:
        """What comes of a message on the loop; None if it is for a worker."""
        if isinstance(chosen, HermesError):
            return chosen
        form = form_of(head.content_type, self._topic)
        if isinstance(form, HermesError):
            return form
        schema = loop_schema(chosen.schema.text)
        if isinstance(schema, Refused):
            return schema
        if schema is None or _units(schema, message.body) > UNITS_MAX:
            return None
        try:
            body = schema.convert(form, message.body, metadata_of(message))
        except Refused as error:
            return error
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

    reads_head = True
    refusal: HermesError | None = None

    def __init__(self, topic: str, conversion: AvroValidation) -> None:
        self._topic = topic
        self._conversion = conversion
        self._failures = 0

    def units(self, body: bytes) -> int:
        """The work on the loop that the body can be; what would be more is not tried there."""
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
        """Try the conversion of a message, at once or in a worker."""

        def tried(outcome: Outcome) -> None:
            done(self._judged(message, head, outcome))

        self._conversion(message, head, tried, is_wanted)

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


def _units(schema: AvroSchema | Refused | None, body: bytes) -> int:
    if isinstance(schema, Refused):
        return 0
    if schema is None or schema.parts is None or not is_small(body):
        return UNITS_MAX + 1
    return len(body) * schema.parts


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
