"""The actor that tails one datacentre's previews into the register."""

import random
from collections.abc import Callable, Iterable

import trio

from hermes_actors.actors.supervisor import Supervisor, run_until
from hermes_actors.log.base import Log, LogUnavailable, OffsetOutOfRange, UnknownTopic
from hermes_actors.metadata.backoff import Backoff
from hermes_actors.status.previews import (
    PREVIEW_TOPIC,
    PreviewRegister,
    UndecodablePreview,
    decode,
)

_BACK_RECORDS_MAX = 3_000
_BATCH_RECORDS_MAX = 100
_BATCH_BYTES_MAX = 2_097_152
_ANSWER_TIMEOUT_S = 5.0
_PAUSE_MAX_S = 15.0


class PreviewReader:
    """Reads `log`'s previews into `register`, the newest ones of the past first.

    A log that is away, or has no such topic yet, is tried again, for ever.
    """

    def __init__(self, log: Log, register: PreviewRegister, *, rng: random.Random) -> None:
        self._log = log
        self._register = register
        self._backoff = Backoff(rng, wait_max_s=_PAUSE_MAX_S)

    async def run(self, stop: trio.Event) -> None:
        """Read until asked to stop."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        while True:
            try:
                await self._tail()
            except (LogUnavailable, UnknownTopic, OffsetOutOfRange, trio.TooSlowError):
                await trio.sleep(self._backoff.next_s())

    async def _tail(self) -> None:
        log = self._log
        with trio.fail_after(_ANSWER_TIMEOUT_S):
            start = (await log.start_positions(PREVIEW_TOPIC))[0]
            end = (await log.end_positions(PREVIEW_TOPIC))[0]
        position = max(start, end - _BACK_RECORDS_MAX)
        async with log.reader(PREVIEW_TOPIC, {0: position}) as reader:
            while True:
                for stored in await reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX):
                    try:
                        self._register.take(decode(stored.value))
                    except UndecodablePreview:
                        # Another version's, or nobody's: what it would show is not worth a failure.
                        continue
                    await trio.lowlevel.checkpoint()
                self._backoff.reset()


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
