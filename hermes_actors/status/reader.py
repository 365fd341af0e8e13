"""Follows one datacentre's status records into the fold, and reports when it cannot."""

import contextlib
import random
from collections.abc import Sequence

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import LATEST, Log
from hermes_actors.log.tail import LogTail
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import STATUS_TOPIC, UndecodableStatus, decode

_BACK_MS = 30_000
_BACK_RECORDS_MAX = 3_000
_BATCH_RECORDS_MAX = 100
_BATCH_BYTES_MAX = 2_097_152
_ANSWER_TIMEOUT_S = 5.0


class StatusReader:
    """Reads `log`'s status records into `fold`, beginning about 30 seconds ago.

    If the log is unavailable, or has no status topic yet, that is reported to the fold, and it is
    tried again without end. After `quiet_s` without records, the log is asked whether it is still
    there.
    """

    def __init__(
        self,
        log: Log,
        fold: StatusFold,
        *,
        clock: Clock,
        rng: random.Random,
        quiet_s: float = 3.0,
    ) -> None:
        self._log = log
        self._fold = fold
        self._clock = clock
        self._tail = LogTail(
            log,
            STATUS_TOPIC,
            Backoff(rng),
            records_max=_BATCH_RECORDS_MAX,
            bytes_max=_BATCH_BYTES_MAX,
            quiet_s=quiet_s,
        )

    async def run(self, stop: trio.Event) -> None:
        """Read until asked to stop."""
        self._report("it has not been read yet")
        try:
            await run_until(stop, self._follow)
        finally:
            self._report("its reader is not running")

    async def _follow(self) -> None:
        await self._tail.run(self._read, self._trouble, self._begin_again)

    def _trouble(self, reason: str) -> None:
        self._report(reason)
        self._fold.forget(self._clock.monotonic_s())

    def _begin_again(self, reason: str) -> None:
        self._trouble(f"it is read again: {reason}")

    async def _read(self) -> None:
        await self._tail.follow(await self._start(), self._take)

    async def _take(self, batch: Sequence[StoredRecord]) -> None:
        for stored in batch:
            # Skip records of another version, or foreign ones.
            with contextlib.suppress(UndecodableStatus):
                now_s = self._clock.monotonic_s()
                self._fold.take(self._log.dc, decode(stored.value), now_s)
            # A large record takes milliseconds.
            await trio.lowlevel.checkpoint()
        self._fold.forget(self._clock.monotonic_s())
        self._report("")

    async def _start(self) -> int:
        """Return where to begin: just far enough back to find all nodes."""
        with trio.fail_after(_ANSWER_TIMEOUT_S):
            end = (await self._log.positions(STATUS_TOPIC, LATEST))[0]
            since_ms = self._clock.now_ms() - _BACK_MS
            recent = (await self._log.positions(STATUS_TOPIC, since_ms))[0]
        # If the clocks differ, the time could mean far more than half a minute.
        return min(end, max(recent, end - _BACK_RECORDS_MAX))

    def _report(self, trouble: str) -> None:
        clock = self._clock
        self._fold.report(self._log.dc, trouble, clock.now_ms(), clock.monotonic_s())
