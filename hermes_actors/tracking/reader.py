"""The actor that reads one datacentre's tracking events into the index."""

import contextlib
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log
from hermes_actors.log.tail import LogTail
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.threads import Threads
from hermes_actors.tracking.events import TRACKING_TOPIC, UndecodableTracking, decode
from hermes_actors.tracking.index import (
    IndexedBatch,
    IndexUnavailable,
    MessageLife,
    TrackingIndex,
)

T = TypeVar("T")

_BATCH_RECORDS_MAX = 20
_BATCH_BYTES_MAX = 2_097_152
_QUIET_S = 15.0
_PAUSE_MAX_S = 5.0


class TrackingFollowing:
    """The index of a management node, with the readers that fill it from all datacentres' logs. One
    thread at a time uses it.
    """

    def __init__(self, index: TrackingIndex, threads: Threads) -> None:
        self.index = index
        self.readers: list[TrackingReader] = []
        self._threads = threads
        self._limiter = trio.CapacityLimiter(1)

    async def ask(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread and return its result."""
        return await self._threads.run(work, self._limiter)

    async def find(self, message_id: str) -> MessageLife:
        """Return everything known of a message. Raises IndexUnavailable."""
        return await self.ask(partial(self.index.find, message_id))

    def troubles(self) -> list[str]:
        """Why the results may be incomplete."""
        return [f"{each.dc}: {each.trouble}" for each in self.readers if each.trouble]


class TrackingReader:
    """Reads `log`'s tracking events into the index, and continues where it stopped.

    `trouble` says why the index lags; empty string if it does not.
    """

    def __init__(
        self,
        log: Log,
        following: TrackingFollowing,
        *,
        rng: random.Random,
    ) -> None:
        self.trouble = ""
        self.dc = log.dc
        self._following = following
        self._is_changed = False
        self._held: int | None = None
        self._tail = LogTail(
            log,
            TRACKING_TOPIC,
            Backoff(rng, wait_max_s=_PAUSE_MAX_S),
            records_max=_BATCH_RECORDS_MAX,
            bytes_max=_BATCH_BYTES_MAX,
            quiet_s=_QUIET_S,
        )

    async def run(self, stop: trio.Event) -> None:
        """Read until asked to stop."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        await self._tail.run(self._read, self._report, self._changed)

    def _report(self, reason: str) -> None:
        # Without tracking in a datacentre there is no topic, which is no problem.
        self.trouble = "" if "has no topic" in reason else reason

    def _changed(self, reason: str) -> None:
        self.trouble = reason
        self._is_changed = True

    async def _read(self) -> None:
        index, dc = self._following.index, self.dc
        try:
            begin = partial(index.begin, dc, is_changed=self._is_changed)
            held = await self._following.ask(begin)
            self._is_changed = False
            start, end = await self._tail.bounds()
            position = start if held is None or held > end else max(start, held)
            self._held = held
            await self._tail.follow(position, self._take)
        except IndexUnavailable as error:
            # The log still has what was not inserted; it is read again.
            self.trouble = str(error)

    async def _take(self, batch: Sequence[StoredRecord]) -> None:
        batches = []
        for stored in batch:
            # Skip records of another version, or foreign ones.
            with contextlib.suppress(UndecodableTracking):
                batches.append(IndexedBatch(stored.timestamp_ms, decode(stored.value)))
            await trio.lowlevel.checkpoint()
        if batches:
            position = batch[-1].offset + 1
            index = self._following.index
            await self._following.ask(partial(index.take, self.dc, batches, self._held, position))
            self._held = position
        self.trouble = ""
