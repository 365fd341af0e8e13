"""Tails one datacentre's previews into the register."""

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence

import trio

from hermes_actors.actors.supervisor import Supervisor, run_until
from hermes_actors.log.base import Log
from hermes_actors.log.tail import LogTail
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.status.previews import (
    PREVIEW_TOPIC,
    PreviewRegister,
    UndecodablePreview,
    decode,
)

_BACK_RECORDS_MAX = 3_000
_BATCH_RECORDS_MAX = 100
_BATCH_BYTES_MAX = 2_097_152
_QUIET_S = 15.0
_PAUSE_MAX_S = 15.0


class PreviewReader:
    """Reads `log`'s previews into `register`, the newest ones of the past first.

    A log that is away, or has no such topic yet, is tried again, for ever.
    """

    def __init__(self, log: Log, register: PreviewRegister, *, rng: random.Random) -> None:
        self._register = register
        self._tail = LogTail(
            log,
            PREVIEW_TOPIC,
            Backoff(rng, wait_max_s=_PAUSE_MAX_S),
            records_max=_BATCH_RECORDS_MAX,
            bytes_max=_BATCH_BYTES_MAX,
            quiet_s=_QUIET_S,
        )

    async def run(self, stop: trio.Event) -> None:
        """Read until asked to stop."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        await self._tail.run(self._read, _ignore, _ignore)

    async def _read(self) -> None:
        start, end = await self._tail.bounds()
        await self._tail.follow(max(start, end - _BACK_RECORDS_MAX), self._take)

    async def _take(self, batch: Sequence[StoredRecord]) -> None:
        for stored in batch:
            # Another version's, or nobody's, is not worth a failure.
            with contextlib.suppress(UndecodablePreview):
                self._register.take(decode(stored.value))
            await trio.lowlevel.checkpoint()


def _ignore(_reason: str) -> None:
    # Previews that are not shown need no word.
    pass


def follow_previews(
    supervisor: Supervisor, logs: Iterable[Log], split_rng: Callable[[], random.Random]
) -> PreviewRegister:
    """A register that a reader for each of these datacentres' logs fills."""
    register = PreviewRegister()

    def follow(log: Log) -> None:
        supervisor.start_task(
            f"preview reader {log.dc}",
            lambda stop: PreviewReader(log, register, rng=split_rng()).run(stop),
        )

    for log in logs:
        follow(log)
    return register
