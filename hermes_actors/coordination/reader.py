"""Reads a datacentre's coordination log and folds it into its `Coordination`."""

import logging
import random
from collections.abc import Sequence

import trio
from msgspec.structs import replace

from hermes_actors.actors.supervisor import run_until
from hermes_actors.coordination.beginning import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    find_beginning,
    is_strange,
    said_by,
)
from hermes_actors.coordination.commands import SETTINGS, Loads, Plan, Said, Snapshot
from hermes_actors.coordination.values import LEASE_MS
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import EARLIEST, LogUnavailable
from hermes_actors.log.tail import LogChanged, LogTail
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock

_logger = logging.getLogger(__name__)

_COST_MAX = 250
"""Maximum cost of the records folded between two yields, see `_cost`: 2 to 5 ms."""
_STRANGERS_GONE_S = 10.0
_LISTENS_S = LEASE_MS / 1_000
"""How long to listen to a log that was cut: living members send a heartbeat each half second."""
_LONG_SILENCE_MS = 300_000
"""Ten snapshot intervals: nobody was a member for that long."""


class CoordinationReader:
    """Follows the log into one Coordination. Create a new one for each start.

    While the log is unavailable, the state stays and leases expire by themselves. If the log is
    shorter than what was read, or another log, it is read again from its newest snapshot, and the
    lease is lost at once. The same happens when the log continues after a silence in which
    retention removed all earlier records, because a node that begins now does not know them.
    """

    def __init__(
        self,
        coordination: Coordination,
        *,
        clock: Clock,
        rng: random.Random,
        quiet_s: float = 1.0,
        answer_timeout_s: float = 5.0,
        makes_topic: bool = True,
    ) -> None:
        """After `quiet_s` without records, the log is asked whether it is still there. The topic is
        created if it does not exist, except in another datacentre's log, where the reader waits for
        it.
        """
        self._coordination = coordination
        self._log = coordination.log
        self._topic = coordination.topic
        self._clock = clock
        self._answer_timeout_s = answer_timeout_s
        self._makes_topic = makes_topic
        self._tail = LogTail(
            coordination.log,
            coordination.topic,
            Backoff(rng, wait_max_s=0.5),
            records_max=BATCH_RECORDS_MAX,
            bytes_max=BATCH_BYTES_MAX,
            quiet_s=quiet_s,
            answer_timeout_s=answer_timeout_s,
        )
        # A restarted reader continues where the previous one stopped.
        self._must_begin = coordination.generation == 0

    async def run(self, stop: trio.Event) -> None:
        """Follow the log until asked to stop."""
        try:
            await run_until(stop, self._follow)
        finally:
            self._coordination.report("the reader of the coordination log is not running")

    async def _follow(self) -> None:
        await self._tail.run(
            self._read_until_doubted,
            self._coordination.report,
            lambda reason: self._coordination.report(
                f"the coordination log is read again: {reason}"
            ),
            "the coordination log",
        )

    async def _read_until_doubted(self) -> None:
        with trio.CancelScope() as scope:
            self._coordination.ask_when_doubted(scope.cancel)
            await self._read()

    async def _read(self) -> None:
        """Continue from the state's position, or begin; then follow. Never returns."""
        if self._makes_topic:
            with trio.fail_after(self._answer_timeout_s):
                await self._prepare()
        start, end = await self._tail.bounds()
        if self._must_begin or not await self._goes_on(start, end):
            await self._begin(start, end)
        position = self._coordination.state.position
        await self._tail.follow(
            position,
            self._take,
            end=end,
            caught_up=self._caught_up,
            verifies=True,
            last=self._coordination.last,
        )

    async def _caught_up(self, end: int) -> int:
        self._coordination.report("")
        return end

    async def _prepare(self) -> None:
        """Create the topic, and let the log stamp its records, so that leases depend on one
        clock.
        """
        log, topic = self._log, self._topic
        settings = await log.topics.describe(topic)
        try:
            # Several nodes may do this at once. A policy of the log may forbid it.
            if settings is None:
                await log.topics.create(topic, SETTINGS)
            elif not settings.log_append_time:
                _logger.warning(
                    "%s was stamped by its writers; from now on the log stamps it", topic
                )
                partitions = settings.partitions
                await log.topics.alter(topic, replace(SETTINGS, partitions=partitions))
        except ValueError as error:
            raise LogUnavailable(
                f"it refuses topic {topic}: {error}; have it made with one partition, stamped by "
                "the log (message.timestamp.type=LogAppendTime), and kept for hours"
            ) from error

    async def _goes_on(self, start: int, end: int) -> bool:
        """True if this is the log that was folded, with no records missing; else the fold begins
        again.
        """
        position = self._coordination.state.position
        is_there = start <= position <= end
        if is_there and (position == start or await self._tail.holds(self._coordination.last)):
            return True
        self._begin_next()
        _logger.warning(
            "the coordination log of %s is read again, and this node joins under a new id: it has "
            "offsets [%d, %d), and was read up to %d",
            self._coordination.dc,
            start,
            end,
            position,
        )
        return False

    def _begin_next(self) -> None:
        self._must_begin = True
        self._coordination.lose_lease()

    async def _begin(self, start: int, end: int) -> None:
        """Fold everything that is in the log before showing it, so that nobody sees an old
        state.
        """
        # Usually half a minute of records, in the worst case hours.
        with trio.fail_after(60 + self._answer_timeout_s):
            beginning = await find_beginning(self._log, self._topic, start, end)
        state = beginning.state
        # Until when unknown members may show up.
        until_s = float("-inf") if beginning.is_whole else self._clock.monotonic_s() + _LISTENS_S
        last: StoredRecord | None = None

        async def listen(batch: Sequence[StoredRecord]) -> None:
            nonlocal until_s, last
            for stored in batch:
                said = said_by(stored)
                if not beginning.is_whole:
                    # Snapshots below the end were tried already, and are unusable.
                    if isinstance(said, Snapshot) and stored.offset >= end:
                        raise LogChanged("a snapshot has come")
                    if is_strange(state, said):
                        until_s = self._clock.monotonic_s() + _STRANGERS_GONE_S
                        self._coordination.report(
                            "the coordination log was cut; waiting for a snapshot, or until "
                            "its former members are gone"
                        )
                state.apply(stored.offset, stored.timestamp_ms, said)
                last = stored
            if state.position >= end and self._clock.monotonic_s() >= until_s:
                is_over.cancel()
            await trio.lowlevel.checkpoint()

        with trio.CancelScope() as is_over:
            if state.position < end or not beginning.is_whole:
                await self._tail.follow(state.position, listen)
        self._must_begin = False
        self._coordination.begin_anew(state, last, has_listened=not beginning.is_whole)

    async def _take(self, batch: Sequence[StoredRecord]) -> None:
        cost = 0
        for stored in batch:
            await self._outlive_silence(stored)
            said = said_by(stored)
            self._coordination.fold(stored, said)
            cost += _cost(said)
            if cost >= _COST_MAX:
                cost = 0
                await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    async def _outlive_silence(self, stored: StoredRecord) -> None:
        """Raise LogChanged if, after a long silence, nothing before this record is left. Terms and
        plans build on earlier ones, so all nodes must know the same ones.
        """
        last_ms = self._coordination.state.timestamp_ms
        if last_ms is None or stored.timestamp_ms - last_ms <= _LONG_SILENCE_MS:
            return
        with trio.fail_after(self._answer_timeout_s):
            start = (await self._log.positions(self._topic, EARLIEST))[0]
            if start == 0:
                return
            if start < stored.offset:
                beginning = await find_beginning(self._log, self._topic, start, stored.offset)
                if beginning.is_whole:
                    return
        self._begin_next()
        raise LogChanged(f"nothing is left of what was said before {stored.offset}")


def _cost(said: Said | None) -> int:
    """The cost of folding a record, in units of 10 to 20 µs."""
    if isinstance(said, Plan):
        return 1 + len(said.assignments)
    if isinstance(said, Loads):
        return 1 + len(said.tasks) // 2
    return 1
