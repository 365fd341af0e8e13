"""No record above its topic's own limit is stored: Kafka bounds batches, and only about."""

from collections.abc import Awaitable, Callable, Sequence

import trio

from hermes_actors.log.base import LogUnavailable, Outcome, too_large
from hermes_actors.log.kafka.topics import TopicAdmin
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest

_ASK_S = 1.0

Append = Callable[[str, int, Sequence[Record], Ack], Awaitable[Sequence[Outcome]]]


class LimitedAppend:
    """`append` behind the check of each record's size against the topic's `record_bytes_max`."""

    def __init__(self, topics: TopicAdmin, append: Append) -> None:
        self._topics = topics
        self._append = append

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """One outcome for each record, in the batch's order; see Log.append."""
        bytes_max = self._topics.record_bytes_max(topic)
        if bytes_max is None:
            bytes_max = await self._ask(topic)
        # Without an answer the producers say what is wrong: no such topic, or no Kafka.
        if bytes_max is None or _is_within(batch, bytes_max):
            return await self._append(topic, partition, batch, ack)
        fits = [record for record in batch if record.size_bytes <= bytes_max]
        outcomes = iter(await self._append(topic, partition, fits, ack))
        return [
            next(outcomes) if record.size_bytes <= bytes_max else too_large(record, bytes_max)
            for record in batch
        ]

    async def _ask(self, topic: str) -> int | None:
        settings = None
        with trio.move_on_after(_ASK_S):
            try:
                settings = await guest.call(self._topics.describe, topic)
            except LogUnavailable:
                return None
        return None if settings is None else settings.record_bytes_max


def _is_within(batch: Sequence[Record], bytes_max: int) -> bool:
    if isinstance(batch, RecordRun):
        return batch.largest_bytes <= bytes_max
    return all(record.size_bytes <= bytes_max for record in batch)
