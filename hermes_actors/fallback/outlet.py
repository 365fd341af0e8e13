"""One topic's way into a remote log: one batch in flight for each of its partitions.

A key goes where the remote's own number of partitions puts it, behind what was sent there before.
"""

from collections.abc import Callable, Sequence
from typing import cast

import trio

from hermes_actors.fallback.flight import Flying, Item
from hermes_actors.fallback.remotes import Path
from hermes_actors.log.base import LogUnavailable
from hermes_actors.log.batching import Batch, Batcher
from hermes_actors.model.record import Record
from hermes_actors.runtime.clock import Clock

_LOOKUP_FIRST_S = 0.05
_LOOKUP_MAX_S = 1.0
_LOOK_AGAIN_S = 30.0

Records = Callable[[Sequence[Item], str], Sequence[Record]]
Append = Callable[["Path", int, Sequence[Flying], Sequence[Record]], object]
"""Sends records to a partition; a coroutine function that reports to the hedge itself."""


class Outlet:
    """Made for one topic and one remote. It is usable when its partitions are known.

    `append` sends one batch and returns when the log has answered. Run `follow` beside it.
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
        records_max: int,
        bytes_max: int,
    ) -> None:
        self.path = path
        self._topic = topic
        self._nursery = nursery
        self._clock = clock
        self._append = append
        self._records = records
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._batcher: Batcher | None = None
        self._used = trio.Event()

    @property
    def is_known(self) -> bool:
        """How many partitions the topic has there has been found out."""
        return self._batcher is not None

    async def follow(self) -> None:
        """Find out the remote's number of partitions, and again when it is used; never ends."""
        delay_s = _LOOKUP_FIRST_S
        while True:
            try:
                settings = await self.path.dc.log.describe_topic(self._topic)
            except LogUnavailable:
                settings = None
            if settings is None:
                await trio.sleep(delay_s)
                delay_s = min(delay_s * 2, _LOOKUP_MAX_S)
                continue
            self._grow(settings.partitions)
            await trio.sleep(_LOOK_AGAIN_S)
            self._used = trio.Event()
            await self._used.wait()

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
            self._batcher.add(flying)
        self._start(self._batcher)

    def _start(self, batcher: Batcher) -> None:
        while (batch := batcher.next_batch(self._clock.monotonic_s())) is not None:
            self._begin(batch, batcher)

    def _begin(self, batch: Batch, batcher: Batcher) -> None:
        flyings = cast("list[Flying]", batch.items)
        # Built at once: a message that is answered meanwhile has no body any more.
        self._nursery.start_soon(self._drive, batch, flyings, self._build(flyings), batcher)

    async def _drive(
        self, batch: Batch, flyings: list[Flying], records: Sequence[Record], batcher: Batcher
    ) -> None:
        await self._append(self.path, batch.partition, flyings, records)  # type: ignore[misc]
        batcher.release(batch)
        self._start(batcher)

    def _build(self, flyings: list[Flying]) -> Sequence[Record]:
        vias = {flying.via for flying in flyings}
        if len(vias) == 1:
            return self._records([flying.item for flying in flyings], flyings[0].via)
        return [record for each in flyings for record in self._records([each.item], each.via)]
