"""Follows a topic with one partition; shared by all folds of a log."""

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
"""A log that shrank and grew again between two reads is noticed within this time."""

Fold = Callable[[Sequence[StoredRecord]], Awaitable[None]]


class LogChanged(Exception):
    """The log is not the one that was read, or does not return the records that it has."""


class LogTail:
    """A follower of partition 0 of a topic.

    The caller decides where to begin and what to do with the records. If the log does not answer
    within `answer_timeout_s`, trio.TooSlowError is raised.
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
        """`records_max` and `bytes_max` limit a batch. After `quiet_s` without records, the log is
        asked whether it is still there.
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
        """Call `read`, which follows the log, again and again, with a pause after each failure.
        Never returns.

        `report` gets the reason of a failure, in which the log is called `name`. `changed` gets it
        instead if the log no longer holds what was read.
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
        """Call `fold` with the records from `position` on. Never returns. An empty batch means that
        the log answers, but has had no records for a while.

        When `end` is reached, `caught_up` is called with it; it returns the end to reach now,
        usually the same. If `verifies`, check every five seconds that the log still holds the last
        record; `last` is that record before any was read. Raises LogChanged if it does not, if the
        log ends below what was read, or if it does not return the records that it has.
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
        """Return the offset of the first record, and the offset after the last one."""
        with trio.fail_after(self._answer_timeout_s):
            start = (await self._log.positions(self._topic, EARLIEST))[0]
            return start, (await self._log.positions(self._topic, LATEST))[0]

    async def holds(self, last: StoredRecord | None) -> bool:
        """True if this record is still in the log at its offset; True for None."""
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
        # The cancelled read may have advanced the reader.
        reader.seek(0, position)
        if end > position:
            with trio.move_on_after(self._quiet_s):
                return await reader.next_batch(self._records_max, self._bytes_max)
            raise LogChanged(f"it ends at {end}, and nothing after {position} comes")
        return ()
