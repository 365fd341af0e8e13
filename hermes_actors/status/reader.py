"""The actor that tails one datacentre's status records into the fold, and says when it cannot."""

import logging
import random
from collections.abc import Sequence

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log, LogUnavailable, OffsetOutOfRange, Reader, UnknownTopic
from hermes_actors.metadata.backoff import Backoff
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import STATUS_TOPIC, UndecodableStatus, decode

_logger = logging.getLogger(__name__)

_BACK_MS = 30_000
_BACK_RECORDS_MAX = 3_000
_BATCH_RECORDS_MAX = 100
_BATCH_BYTES_MAX = 2_097_152


class _Stuck(Exception):
    """The log has records that its reader does not give, or is not the log that was read."""


class StatusReader:
    """Reads `log`'s status records into `fold`, from about 30 seconds ago on.

    A log that is away, or has no status topic yet, is reported to the fold and tried again, for
    ever. When nothing comes for `quiet_s` the log is asked whether it is there.
    """

    def __init__(
        self,
        log: Log,
        fold: StatusFold,
        *,
        clock: Clock,
        rng: random.Random,
        topic: str = STATUS_TOPIC,
        quiet_s: float = 3.0,
        answer_timeout_s: float = 5.0,
    ) -> None:
        self._log = log
        self._fold = fold
        self._clock = clock
        self._topic = topic
        self._quiet_s = quiet_s
        self._answer_timeout_s = answer_timeout_s
        self._backoff = Backoff(rng)
        self._position = 0

    async def run(self, stop: trio.Event) -> None:
        """Read until asked to stop."""
        self._report("it has not been read yet")
        try:
            await run_until(stop, self._follow)
        finally:
            self._report("nobody reads it")

    async def _follow(self) -> None:
        while True:
            try:
                await self._tail()
            except LogUnavailable as error:
                self._report(f"the log is unavailable: {error}")
            except trio.TooSlowError:
                self._report("the log does not answer")
            except UnknownTopic:
                self._report(f"the log has no topic {self._topic} yet")
            except (OffsetOutOfRange, _Stuck) as error:
                self._report(f"it is read anew: {error}")
            self._fold.forget(self._clock.monotonic_s())
            await trio.sleep(self._backoff.next_s())

    async def _tail(self) -> None:
        self._position = await self._start()
        async with self._log.reader(self._topic, {0: self._position}) as reader:
            while True:
                batch: Sequence[StoredRecord] = ()
                with trio.move_on_after(self._quiet_s):
                    batch = await reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX)
                if batch:
                    await self._take(batch)
                else:
                    await self._check(reader)
                self._report("")
                self._backoff.reset()

    async def _start(self) -> int:
        """Where to begin: far enough back to know all nodes, and not farther."""
        log, topic = self._log, self._topic
        with trio.fail_after(self._answer_timeout_s):
            end = (await log.end_positions(topic))[0]
            recent = (await log.position_at(topic, self._clock.now_ms() - _BACK_MS))[0]
        # Another clock than the log's may ask for much more than half a minute.
        return min(end, max(recent, end - _BACK_RECORDS_MAX))

    async def _take(self, batch: Sequence[StoredRecord]) -> None:
        fold = self._fold
        for stored in batch:
            now_s = self._clock.monotonic_s()
            try:
                fold.take(self._log.dc, decode(stored.value), stored.timestamp_ms, now_s)
            except UndecodableStatus:
                fold.undecodable += 1
            self._position = stored.offset + 1
            for rival in fold.new_rivals():
                _logger.warning(
                    "two processes report as node %s of %s (boot ids %s and %s); "
                    "give each its own name: node in its configuration",
                    rival.node,
                    rival.dc,
                    rival.boot_id,
                    rival.other_boot_id,
                )
            # A large record takes milliseconds.
            await trio.lowlevel.checkpoint()
        fold.forget(self._clock.monotonic_s())

    async def _check(self, reader: Reader) -> None:
        """Nothing came: is the log there, is it the same, and is there really nothing?"""
        with trio.fail_after(self._answer_timeout_s):
            end = (await self._log.end_positions(self._topic))[0]
        if end < self._position:
            raise _Stuck(f"it ends at {end}, {self._position} was read already")
        # A wait that was cancelled may have read ahead.
        reader.seek(0, self._position)
        if end > self._position:
            with trio.move_on_after(self._quiet_s):
                await self._take(await reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX))
                return
            raise _Stuck(f"it ends at {end}, and nothing after {self._position} comes")

    def _report(self, trouble: str) -> None:
        clock = self._clock
        self._fold.report(self._log.dc, trouble, clock.now_ms(), clock.monotonic_s())
