"""The checks of topics' messages, each as its topic's schemas are now."""

from collections.abc import Callable

from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.message import Message
from hermes_actors.model.schema import SchemaKind
from hermes_actors.model.topic import ContentType, Topic
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.avro_validation import AvroValidation, DryRun
from hermes_actors.schema.json_validation import JsonValidation
from hermes_actors.schema.source import SchemaSource, newest_of
from hermes_actors.schema.validation import BodyHead, Done, Outcome, Validation


class TopicValidations:
    """Makes the check of a topic's messages.

    With `frames` Avro is stored in Confluent's framing, with `takes_ids` publishers may name a
    schema by its id.
    """

    def __init__(
        self,
        source: SchemaSource,
        pool: WorkerPool,
        *,
        frames: bool = False,
        takes_ids: bool = False,
    ) -> None:
        self._source = source
        self._pool = pool
        self._frames = frames
        self._takes_ids = takes_ids

    def of(self, topic: Topic) -> Validation | None:
        """Return what the topic's schemas demand now; None where that is nothing."""
        if topic.content_type is ContentType.AVRO:
            return self._avro(topic.name)
        # While a topic turns from JSON to AVRO its first Avro schema is there before it is AVRO.
        newest = newest_of(self._source.versions_of(topic.name), SchemaKind.JSON)
        if newest is not None:
            return JsonValidation(newest.schema.text, self._pool)
        if self._source.lack(topic.name):
            return AwaitedSchema(topic, self._source, self.of)
        return DryRun(topic.name, self._avro(topic.name)) if topic.json_to_avro_dry_run else None

    def _avro(self, topic: str) -> AvroValidation:
        return AvroValidation(
            topic, self._source, self._pool, frames=self._frames, takes_ids=self._takes_ids
        )


class AwaitedSchema:
    """The check of a JSON topic that has a schema which is not known now: a message waits until it
    has been looked up, and is refused where it is not found.
    """

    reads_head = True

    def __init__(
        self, topic: Topic, source: SchemaSource, of: Callable[[Topic], Validation | None]
    ) -> None:
        self._topic = topic
        self._source = source
        self._of = of

    @property
    def refusal(self) -> HermesError:
        """Why no message fits: the schema is not known by now."""
        self._source.ask(self._topic.name, _nothing)
        return self._why_none()

    def units(self, _body: bytes) -> int:
        """No work: there is nothing to check by."""
        return 0

    def check(self, _message: Message, _head: BodyHead) -> Outcome:
        """Refuse a message."""
        return self.refusal

    def __call__(
        self, message: Message, head: BodyHead, done: Done, is_wanted: Callable[[], bool]
    ) -> None:
        """Check a message by the schema, when it has been looked up."""

        def asked() -> None:
            found = self._of(self._topic)
            if found is None:
                done(message)
            elif isinstance(found, AwaitedSchema):
                done(self._why_none())
            else:
                found(message, head, done, is_wanted)

        self._source.ask(self._topic.name, asked)

    def _why_none(self) -> HermesError:
        why = self._source.lack(self._topic.name)
        return Refused(
            f"The schema of topic {self._topic.name} is not known: {why}; try again",
            ErrorCode.SCHEMA_COULD_NOT_BE_LOADED,
        )


def _nothing() -> None:
    """Nobody waits for the answer."""
