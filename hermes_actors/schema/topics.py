"""Chooses the check for a topic's messages."""

from hermes_actors.model.topic import ContentType, Topic
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.avro_validation import AvroValidation, DryRun
from hermes_actors.schema.source import SchemaSource
from hermes_actors.schema.validation import JsonValidation, Validation


class TopicValidations:
    """Makes the checks of topics; `frames` and `takes_ids` are those of AvroValidation."""

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
        """The check by the topic's current schemas; None if there is nothing to check."""
        if topic.content_type is ContentType.AVRO:
            return self._of_avro(AvroValidation, topic)
        # While a topic changes from JSON to AVRO, its first Avro schema exists before it is AVRO.
        by_json = JsonValidation(topic.name, self._source, self._pool)
        if by_json.is_needed:
            return by_json
        return self._of_avro(DryRun, topic) if topic.json_to_avro_dry_run else None

    def _of_avro(self, kind: type[AvroValidation], topic: Topic) -> AvroValidation:
        options = {"frames": self._frames, "takes_ids": self._takes_ids}
        return kind(topic.name, self._source, self._pool, **options)
