"""The checks of topics' messages, each as its topic's schemas are now."""

from weakref import WeakValueDictionary

from hermes_actors.actors.mailbox import Ref
from hermes_actors.model.schema import SchemaKind
from hermes_actors.model.topic import ContentType, Topic
from hermes_actors.schema.aside import Costly
from hermes_actors.schema.avro_validation import AvroValidation, DryRun
from hermes_actors.schema.compiled import CompiledSchemas
from hermes_actors.schema.json_validation import JsonValidation
from hermes_actors.schema.source import SchemaSource, newest_of
from hermes_actors.schema.validation import Validation


class TopicValidations:
    """Makes the check of a topic's messages; a JSON Schema is adopted once for all its topics.

    With `frames` Avro is stored in Confluent's framing, with `takes_ids` publishers may name a
    schema by its id.
    """

    def __init__(
        self,
        source: SchemaSource,
        compiled: CompiledSchemas,
        aside: Ref[Costly],
        *,
        frames: bool = False,
        takes_ids: bool = False,
    ) -> None:
        self._source = source
        self._compiled = compiled
        self._aside = aside
        self._frames = frames
        self._takes_ids = takes_ids
        self._adopted: WeakValueDictionary[str, JsonValidation] = WeakValueDictionary()

    def of(self, topic: Topic) -> Validation | None:
        """Return what the topic's schemas demand now; None where that is nothing."""
        if topic.content_type is ContentType.AVRO:
            return self._avro(topic.name)
        # While a topic turns from JSON to AVRO its first Avro schema is there before it is AVRO.
        newest = newest_of(self._source.versions_of(topic.name), SchemaKind.JSON)
        if newest is not None:
            text = newest.schema.text
            adopted = self._adopted.get(text)
            if adopted is None:
                adopted = self._adopted[text] = JsonValidation(text, self._aside)
            return adopted
        return DryRun(topic.name, self._avro(topic.name)) if topic.json_to_avro_dry_run else None

    def _avro(self, topic: str) -> AvroValidation:
        return AvroValidation(
            topic,
            self._source,
            self._compiled,
            self._aside,
            frames=self._frames,
            takes_ids=self._takes_ids,
        )
