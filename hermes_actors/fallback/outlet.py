"""One topic's way into a remote log: one batch in flight for each of its partitions.

A key goes where the remote's own number of partitions puts it, behind what was sent there before.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

import trio

from hermes_actors.fallback.flight import Flying, Item
from hermes_actors.fallback.remotes import Path
from hermes_actors.fallback.shares import Keys, Share, shares_of
from hermes_actors.log.base import LogUnavailable, TopicSettings
from hermes_actors.log.batching import Batch, Batcher
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import Record
from hermes_actors.runtime.clock import Clock

_LOOKUP_FIRST_S = 0.05
_LOOKUP_MAX_S = 1.0
_LOOK_AGAIN_S = 30.0

Records = Callable[[Sequence[Item], str], Sequence[Record]]
"""The records of some items, with this `via`."""

Append = Callable[[Path, int, Sequence[Flying | Share], Sequence[Record]], Awaitable[None]]
"""Sends the records of these to a partition, and tells what became of them."""


Joins = Callable[[Item, Iterable[Item]], bool]
"""True: an older message of its key waits elsewhere, and it has just been put behind that one;
those `older` items of its batch for which this is so were put there first."""


class Outlet:
    """Made for one topic and one remote. It is usable when its partitions are known.

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
        keys: Keys,
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
        self._keys = keys
        self._joins = joins
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._batcher: Batcher | None = None
        self._used = trio.Event()
        self._on_looked_up = on_looked_up
        # From the start: whoever makes it runs `follow` next.
        self._is_asking = True

    @property
    def is_known(self) -> bool:
        """How many partitions the topic has there has been found out."""
        return self._batcher is not None

    @property
    def is_being_found_out(self) -> bool:
        """How many partitions there are is not known, and is being asked."""
        return self._batcher is None and self._is_asking

    async def follow(self) -> None:
        """Find out the remote's number of partitions, and again when it is used; never ends."""
        delay_s = _LOOKUP_FIRST_S
        while True:
            was_known = self.is_known
            self._is_asking = True
            settings = await self._describe()
            self._is_asking = False
            if settings is not None:
                self._grow(settings.partitions)
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

    def _grow(self, partitions: int) -> None:
        if self._batcher is None:
            self._batcher = Batcher(
                partitions,
                records_max=self._records_max,
                bytes_max=self._bytes_max,
                first=0,
                # A batch without keys never waits for another one.
                slow_s=0.0,
            )
        else:
            self._batcher.grow(partitions)

    def send(self, flyings: Sequence[Flying]) -> None:
        """Send these behind what waits already; those that are done by their turn are left out."""
        assert self._batcher is not None, "not usable before its partitions are known"
        self._used.set()
        for flying in flyings:
            for part in self._parts(flying, self._batcher.partitions):
                self._batcher.add(part)
        self._start(self._batcher)

    def _parts(self, flying: Flying, partitions: int) -> Sequence[Flying | Share]:
        if flying.count == 1:
            return [flying]
        keys = self._keys(flying.item)
        return shares_of(flying, keys, lambda key: partition_of(key, partitions)) or [flying]

    def _start(self, batcher: Batcher) -> None:
        while (batch := batcher.next_batch(self._clock.monotonic_s())) is not None:
            for part in cast("list[Flying | Share]", batch.items):
                if not part.is_done:
                    flying = part if isinstance(part, Flying) else part.flying
                    self._joins(flying.item, flying.older)
            batch.drop_answered()
            if not batch.items:
                batcher.release(batch)
                continue
            parts = cast("list[Flying | Share]", batch.items)
            for part in parts:
                # From now on, though the append begins at the loop's next turn, which may be late.
                flying = part if isinstance(part, Flying) else part.flying
                flying.running[self.path.dc.name] = None
            # Built at once: a message that is answered meanwhile has no body any more.
            self._nursery.start_soon(self._drive, batch, parts, self._build(parts), batcher)

    async def _drive(
        self,
        batch: Batch,
        parts: list[Flying | Share],
        records: Sequence[Record],
        batcher: Batcher,
    ) -> None:
        await self._append(self.path, batch.partition, parts, records)
        batcher.release(batch)
        self._start(batcher)

    def _build(self, parts: list[Flying | Share]) -> Sequence[Record]:
        whole = [part for part in parts if isinstance(part, Flying)]
        if len(whole) == len(parts) and len({flying.via for flying in whole}) == 1:
            return self._records([flying.item for flying in whole], whole[0].via)
        return [record for part in parts for record in self._build_one(part)]

    def _build_one(self, part: Flying | Share) -> Sequence[Record]:
        if isinstance(part, Flying):
            return self._records([part.item], part.via)
        records = self._records([part.flying.item], part.flying.via)
        return [records[place] for place in part.places]
