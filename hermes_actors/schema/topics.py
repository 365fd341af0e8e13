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
        self._options = {"frames": frames, "takes_ids": takes_ids}

    def of(self, topic: Topic) -> Validation | None:
        """The check by the topic's current schemas; None if there is nothing to check."""
        kind = AvroValidation
        if topic.content_type is not ContentType.AVRO:
            # While a topic changes from JSON to AVRO, its first Avro schema exists before.
            by_json = JsonValidation(topic.name, self._source, self._pool)
            if by_json.is_needed or not topic.json_to_avro_dry_run:
                return by_json if by_json.is_needed else None
            kind = DryRun
        return kind(topic.name, self._source, self._pool, **self._options)
