"""What waits for a remote log: one batch in flight for each of its partitions.

A key goes where the remote's own number of partitions puts it, behind what was sent there before.
"""

from collections.abc import Awaitable, Callable, Sequence

import trio

from hermes_actors.fallback.decision import Joins
from hermes_actors.fallback.flight import Attempts, Item, Part, parts_of
from hermes_actors.fallback.remotes import Path
from hermes_actors.log.base import LogUnavailable, TopicSettings
from hermes_actors.log.batching import Batch, Batcher
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import Record
from hermes_actors.runtime.clock import Clock

_LOOKUP_FIRST_S = 0.05
_LOOKUP_MAX_S = 1.0
_LOOK_AGAIN_S = 30.0

Records = Callable[[Sequence[Item], str, str], Sequence[Record]]
"""The records of some items that are about to be sent to this datacentre, with this `via`."""

Append = Callable[[Path, int, Sequence[Part], Sequence[Record]], Awaitable[None]]
"""Sends the records of these to a partition, and tells what became of them."""


class RemoteQueue:
    """Made for one topic and one way into a remote, which is usable when its partitions are known.

    `append` sends one batch and returns when the log has answered. `on_looked_up` is called after
    each look-up until one has told the partitions. Run `follow` beside it.
    """

    def __init__(
        self,
        path: Path,
        topic: str,
        nursery: trio.Nursery,
        clock: Clock,
        *,
        append: Append,
        records: Records,
        joins: Joins,
        on_looked_up: Callable[[], None],
        records_max: int,
        bytes_max: int,
    ) -> None:
        self.path = path
        self._topic = topic
        self._nursery = nursery
        self._clock = clock
        self._append = append
        self._records = records
        self._joins = joins
        self._on_looked_up = on_looked_up
        # Its one partition is a guess that nothing is added by. A batch without keys never waits
        # for another one.
        self._batcher: Batcher[Part] = Batcher(
            1, records_max=records_max, bytes_max=bytes_max, first=0, slow_s=0.0
        )
        self._used = trio.Event()

    async def follow(self) -> None:
        """Find out the remote's number of partitions, and again when it is used; never ends."""
        path = self.path
        delay_s = _LOOKUP_FIRST_S
        while True:
            was_known = path.partitions is not None
            path.is_asked = True
            settings = await self._describe()
            path.is_asked = False
            if settings is not None:
                self._batcher.grow(settings.partitions)
                path.partitions = self._batcher.partitions
            if not was_known:
                self._on_looked_up()
            if settings is None:
                await trio.sleep(delay_s)
                delay_s = min(delay_s * 2, _LOOKUP_MAX_S)
                continue
            await trio.sleep(_LOOK_AGAIN_S)
            self._used = trio.Event()
            await self._used.wait()

    async def _describe(self) -> TopicSettings | None:
        try:
            return await self.path.dc.log.describe_topic(self._topic)
        except LogUnavailable:
            return None

    def add(self, some: Sequence[Attempts]) -> None:
        """Put these behind what waits already; those that are done by their turn are left out."""
        partitions = self.path.partitions
        assert partitions is not None, "not usable before its partitions are known"
        self._used.set()
        for attempts in some:
            for part in parts_of(attempts, lambda key: partition_of(key, partitions)):
                self._batcher.add(part)

    def start(self) -> None:
        """Begin what may be begun."""
        batcher = self._batcher
        while (batch := batcher.next_batch(self._clock.monotonic_s())) is not None:
            for part in batch.items:
                if not part.is_done:
                    self._joins(part.attempts.item, part.attempts.older)
            batch.drop_answered()
            if not batch.items:
                batcher.release(batch)
                continue
            for part in batch.items:
                # From now on, though the append begins at the loop's next turn, which may be late.
                part.attempts.begun(self.path.name, part.count)
            # Built at once: a message that is answered meanwhile has no body any more.
            self._nursery.start_soon(self._drive, batch, self._build(batch.items))

    async def _drive(self, batch: Batch[Part], records: Sequence[Record]) -> None:
        await self._append(self.path, batch.partition, batch.items, records)
        self._batcher.release(batch)
        self.start()

    def _build(self, parts: list[Part]) -> Sequence[Record]:
        vias = {part.attempts.via for part in parts}
        if len(vias) == 1 and all(part.is_whole for part in parts):
            return self._records([part.attempts.item for part in parts], self.path.name, vias.pop())
        return [record for part in parts for record in self._build_one(part)]

    def _build_one(self, part: Part) -> Sequence[Record]:
        records = self._records([part.attempts.item], self.path.name, part.attempts.via)
        return records if part.is_whole else [records[place] for place in part.places]
