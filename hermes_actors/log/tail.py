"""Following a topic of one partition for ever: what every fold of a log does alike."""

from collections.abc import Awaitable, Callable, Sequence

import trio

from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Log,
    LogUnavailable,
    OffsetOutOfRange,
    Reader,
    UnknownTopic,
)
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.backoff import Backoff

VERIFY_INTERVAL_S = 5.0
"""A log that shrank and grew again, all between two readings, is noticed within this time."""

Fold = Callable[[Sequence[StoredRecord]], Awaitable[None]]


class LogChanged(Exception):
    """The log is not the one that was read, or has records that its reader does not give."""


class LogTail:
    """One follower of partition 0 of a topic.

    Where to begin, and what to do with the records, is the caller's. Nothing waits longer than
    `answer_timeout_s` for a log that does not answer: then trio.TooSlowError is raised.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        backoff: Backoff,
        *,
        records_max: int,
        bytes_max: int,
        quiet_s: float = 1.0,
        answer_timeout_s: float = 5.0,
    ) -> None:
        """A batch has at most so many records and bytes. When nothing comes for `quiet_s` the log
        is asked whether it is there.
        """
        self._log = log
        self._topic = topic
        self._backoff = backoff
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._quiet_s = quiet_s
        self._answer_timeout_s = answer_timeout_s

    async def run(
        self,
        read: Callable[[], Awaitable[None]],
        report: Callable[[str], None],
        changed: Callable[[str], None],
        name: str = "the log",
    ) -> None:
        """Call `read`, which follows the log, again and again, for ever.

        After each failure there is a pause. `report` gets the reason, in words that call the log
        `name`; `changed` gets it instead when the log does not hold what was read.
        """
        while True:
            try:
                await read()
            except LogUnavailable as error:
                report(f"{name} is unavailable: {error}")
            except trio.TooSlowError:
                report(f"{name} does not answer")
            except UnknownTopic:
                report(f"{name} has no topic {self._topic} yet")
            except (OffsetOutOfRange, LogChanged) as error:
                changed(str(error))
            await trio.sleep(self._backoff.next_s())

    async def follow(
        self,
        position: int,
        fold: Fold,
        *,
        end: int = 0,
        caught_up: Callable[[int], Awaitable[int]] | None = None,
        verifies: bool = False,
        last: StoredRecord | None = None,
    ) -> None:
        """Give `fold` the records from `position` on, for ever; an empty batch says that the log is
        there and that nothing came for a while.

        When `end` is reached `caught_up` is called with it, and gives the end that is to be reached
        now, usually the same. If it `verifies`, the log must still hold the last record each five
        seconds: `last`, before any was read. Raises LogChanged when it does not, when it ends below
        what was read, or when it does not give what it has.
        """
        is_caught_up = False
        verified_s = trio.current_time()
        async with self._log.reader(self._topic, {0: position}) as reader:
            while True:
                if position >= end and not is_caught_up:
                    if caught_up is not None:
                        end = await caught_up(end)
                    is_caught_up = position >= end
                    self._backoff.reset()
                batch = await self._next(reader, position)
                await fold(batch)
                if batch:
                    last = batch[-1]
                    position = last.offset + 1
                if verifies and trio.current_time() - verified_s >= VERIFY_INTERVAL_S:
                    verified_s = trio.current_time()
                    if not await self.holds(last):
                        raise LogChanged("it no longer holds what was read last")

    async def bounds(self) -> tuple[int, int]:
        """The offsets of the first record and after the last one."""
        with trio.fail_after(self._answer_timeout_s):
            start = (await self._log.positions(self._topic, EARLIEST))[0]
            return start, (await self._log.positions(self._topic, LATEST))[0]

    async def holds(self, last: StoredRecord | None) -> bool:
        """Whether this record is still in the log where it was; True for none."""
        if last is None:
            return True
        try:
            with trio.fail_after(self._answer_timeout_s):
                async with self._log.reader(self._topic, {0: last.offset}) as reader:
                    found = (await reader.next_batch(1, self._bytes_max))[0]
        except OffsetOutOfRange:
            return False
        there = (found.offset, found.timestamp_ms, found.value)
        return there == (last.offset, last.timestamp_ms, last.value)

    async def _next(self, reader: Reader, position: int) -> Sequence[StoredRecord]:
        with trio.move_on_after(self._quiet_s):
            return await reader.next_batch(self._records_max, self._bytes_max)
        with trio.fail_after(self._answer_timeout_s):
            end = (await self._log.positions(self._topic, LATEST))[0]
        if end < position:
            raise LogChanged(f"it ends at {end}, {position} was read already")
        # A wait that was cancelled may have read ahead.
        reader.seek(0, position)
        if end > position:
            with trio.move_on_after(self._quiet_s):
                return await reader.next_batch(self._records_max, self._bytes_max)
            raise LogChanged(f"it ends at {end}, and nothing after {position} comes")
        return ()
