"""The actor that leads when no other node does: it says who is to own what, and takes snapshots.

Each consuming node has one. Which of them leads is in the coordination log: a plan or a claim that
comes too late, from whomever, changes nothing there.
"""

import logging
import random
import sys
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.balancer.departures import Departures
from hermes_actors.balancer.presence import Presence
from hermes_actors.coordination.commands import (
    RECORD_BYTES_MAX,
    Assignment,
    Plan,
    Resign,
    Said,
    Snapshot,
    TermClaim,
    encode,
)
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import LEASE_MS
from hermes_actors.coordination.view import Coordination
from hermes_actors.log.base import Stored
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import in_turns

FAILURES_MAX = 3
"""How many failures within the window make the leader give up its lead."""

WINDOW_S = 600.0
"""As long as a supervisor remembers an actor's failures, whose restarts it delays by them: with
fewer failures than the most, a lead is never without its actor for longer than half a second."""


class LeaderAttempts:
    """Remembers the failures of one node's leader, over its restarts. Times are monotonic."""

    def __init__(self) -> None:
        self._failed_s: deque[float] = deque(maxlen=FAILURES_MAX)

    def failed(self, now_s: float) -> bool:
        """Planning has failed now; True when that is once too often."""
        self._failed_s.append(now_s)
        return self.is_poor(now_s)

    def is_poor(self, now_s: float) -> bool:
        """True while others should rather lead, if there are any."""
        failed_s = self._failed_s
        return len(failed_s) == FAILURES_MAX and now_s - failed_s[0] <= WINDOW_S


_logger = logging.getLogger(__name__)

BALANCE_INTERVAL_S = 30.0
SNAPSHOT_INTERVAL_S = 30.0
_FIRST_SNAPSHOT_S = 1.0
_CLAIM_JITTER_S = 0.2
_STAND_BACK_S = 5.0
_DEBOUNCE_S = 0.05
_RETRY_S = 0.25
_FOLD_TIMEOUT_S = 2.0
_APPEND_TIMEOUT_S = 5.0
_REASON_LENGTH_MAX = 200
_PLAN_BYTES_MAX = RECORD_BYTES_MAX - 10_000
_PLAN_ASSIGNMENTS_MAX = 250
"""Each node folds a record in one go: so many take a few milliseconds."""
# Bytes are base64 in JSON: 4 for each 3.
_PART_BYTES_MAX = RECORD_BYTES_MAX * 7 // 10


class Ownable(Struct, frozen=True):
    """A subscription that is to be owned. `constraint` is how many owners somebody asked for."""

    partitions: int
    constraint: int | None = None
    is_suspended: bool = False


class Workload(Struct, frozen=True):
    """The subscriptions that are to be owned, by name, and the names of draining nodes.

    `has_run`: some of it was consumed here at some time, so that nodes may own it of whom a log
    that is new, or was cut, tells nothing.
    """

    subscriptions: Mapping[str, Ownable]
    draining: Sequence[str] = ()
    has_run: bool = False


class WorkloadSource(Protocol):
    """Where the leader asks what there is to be owned."""

    def __call__(self) -> Workload | None:
        """Return the whole workload now; None while it is not known: then nothing is planned."""


class Planner(Protocol):
    """Says who is to own what."""

    def plan(
        self, state: CoordinationState, workload: Workload
    ) -> Generator[None, None, tuple[Assignment, ...]]:
        """The changes to what the state's targets say; none if all is well. It looks at both
        before it yields first, and yields each few milliseconds.
        """


class WorkloadChanged(Struct, frozen=True):
    """Something in the workload is another now; plan soon."""


class Leader:
    """Claims to lead when nobody does, and leads while the log says so. Before each word it looks
    whether the node's lease is open. Where planning fails again and again it gives the lead up, and
    stands back for others.
    """

    def __init__(
        self,
        coordination: Coordination,
        presence: Presence,
        planner: Planner,
        workload: WorkloadSource,
        *,
        clock: Clock,
        rng: random.Random,
        balance_interval_s: float = BALANCE_INTERVAL_S,
        attempts: LeaderAttempts | None = None,
    ) -> None:
        """`attempts` are the same ones after a restart."""
        self._coordination = coordination
        self._presence = presence
        self._planner = planner
        self._workload = workload
        self._clock = clock
        self._rng = rng
        self._balance_interval_s = balance_interval_s
        self._is_wanted = trio.Event()
        self._departures = Departures(coordination.dc)
        self._attempts = attempts or LeaderAttempts()

    async def run(self, inbox: Inbox[WorkloadChanged]) -> None:
        """Take part in leading until asked to stop."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stand)
            async for _ in inbox:
                self._is_wanted.set()
            nursery.cancel_scope.cancel()

    async def _stand(self) -> None:
        while True:
            lease = await self._presence.wait_life()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stand_in, lease)
                await lease.wait_lost()
                nursery.cancel_scope.cancel()

    async def _stand_in(self, lease: Lease) -> None:
        """Claim and lead in one life of the node."""
        coordination = self._coordination
        predecessor = ""
        while True:
            await lease.wait_opened()
            if self._leads(lease):
                await self._lead(lease, predecessor)
            elif self._is_stopping(lease):
                # Whatever it claims is refused until this life is over.
                await trio.sleep_forever()
            elif not coordination.state.leader:
                await self._claim(lease)
            else:
                predecessor = coordination.state.leader
                await coordination.until(lambda state: not state.leader)

    def _leads(self, lease: Lease) -> bool:
        return self._coordination.state.leader == lease.boot

    def _is_stopping(self, lease: Lease) -> bool:
        member = self._coordination.state.members.get(lease.boot)
        return member is not None and member.is_stopping

    async def _claim(self, lease: Lease) -> None:
        coordination = self._coordination
        if len(coordination.state.members) > 1:
            if self._attempts.is_poor(self._clock.monotonic_s()):
                with trio.move_on_after(_STAND_BACK_S):
                    await coordination.until(lambda state: bool(state.leader))
            await trio.sleep(self._rng.uniform(0, _CLAIM_JITTER_S))
        state = coordination.state
        if state.leader or self._is_stopping(lease) or not lease.is_open():
            return
        term = state.term + 1
        if await self._append(TermClaim(lease.boot, term)) is None:
            await trio.sleep(_RETRY_S)
        with trio.move_on_after(_FOLD_TIMEOUT_S):
            await coordination.until(lambda state: bool(state.leader) or state.term >= term)

    async def _lead(self, lease: Lease, predecessor: str) -> None:
        departures = self._departures
        departures.begin(self._coordination.state, predecessor)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._plan_regularly, lease)
            nursery.start_soon(self._take_snapshots, lease)
            with self._coordination.watch() as watch:
                departures.tell(self._coordination.state, watch.take_nowait().subscriptions)
                while self._leads(lease):
                    await watch.wait()
                    seen = watch.take_nowait()
                    # Who was counted out in a pause sees what others have told since.
                    if seen.members and self._leads(lease):
                        departures.tell(self._coordination.state, seen.subscriptions)
                        self._is_wanted.set()
            nursery.cancel_scope.cancel()

    # Plans.

    async def _plan_regularly(self, lease: Lease) -> None:
        await self._outwait_unknown_owners(lease)
        while True:
            await lease.wait_opened()
            self._is_wanted = trio.Event()
            async with self._attempt(lease):
                is_done = await self._plan(lease)
            with trio.move_on_after(self._balance_interval_s if is_done else _RETRY_S):
                await self._is_wanted.wait()
                # What comes together is planned together.
                await trio.sleep(_DEBOUNCE_S)

    async def _outwait_unknown_owners(self, lease: Lease) -> None:
        """Let a lease's time pass in a log without any plan, for work that was somebody's before:
        the log may have been deleted or emptied under owners who have not noticed yet. Nothing new
        opens their leases.
        """
        coordination = self._coordination
        while coordination.state.plan_offset < 0 and not coordination.has_listened:
            await lease.wait_opened()
            workload = self._workload()
            if workload is None:
                await trio.sleep(_RETRY_S)
                continue
            if workload.has_run:
                _logger.info(
                    "the coordination log of %s has no plan, and messages were delivered here "
                    "before: the first plan waits for as long as a lease",
                    coordination.dc,
                )
                await trio.sleep(LEASE_MS / 1_000)
            return

    @asynccontextmanager
    async def _attempt(self, lease: Lease) -> AsyncIterator[None]:
        """Let what fails in the block fail the actor, which is restarted; once too often, the lead
        is given up as well.
        """
        try:
            yield
        finally:
            error = sys.exc_info()[1]
            if isinstance(error, Exception):
                is_once_too_often = self._attempts.failed(self._clock.monotonic_s())
                # Where planning fails on every node no lead lasts until the regular one.
                await self._take_overdue_snapshot(lease)
                if is_once_too_often:
                    await self._resign(lease, error)

    async def _resign(self, lease: Lease, error: Exception) -> None:
        state = self._coordination.state
        # Nobody could do better where nobody else is.
        if len(state.members) < 2 or not (self._leads(lease) and lease.is_open()):
            return
        if not state.is_of_one_version:
            # Who does not know the word would go on following the old leader.
            return
        _logger.error(
            "node %s gives up leading %s: planning has failed %d times, the last time with %r",
            state.node_of(lease.boot),
            self._coordination.dc,
            FAILURES_MAX,
            error,
            # The supervisor may never see it: this is cancelled as soon as the word is read.
            exc_info=error,
        )
        reason = f"planning failed {FAILURES_MAX} times, last with {error!r}"[:_REASON_LENGTH_MAX]
        await self._append(Resign(lease.boot, state.term, reason))

    async def _plan(self, lease: Lease) -> bool:
        """Plan, and append the changes; False when it has to be tried again soon."""
        workload = self._workload()
        if workload is None:
            return False
        state = self._coordination.state
        base, term = state.plan_offset, state.term
        assignments = await in_turns(self._planner.plan(state, workload))
        for part in in_parts(assignments, _PLAN_ASSIGNMENTS_MAX, _PLAN_BYTES_MAX):
            if state.plan_offset != base or not (self._leads(lease) and lease.is_open()):
                return False
            await self._append(Plan(lease.boot, term, base, tuple(part)))
            # Also if the log did not say that it has it: it may come.
            await self._wait_for_a_plan_after(base)
            if state.plan_offset == base:
                return False
            base = state.plan_offset
        return True

    async def _wait_for_a_plan_after(self, base: int) -> None:
        with trio.move_on_after(_FOLD_TIMEOUT_S):
            await self._coordination.until(lambda state: state.plan_offset != base)

    # Snapshots.

    async def _take_snapshots(self, lease: Lease) -> None:
        await trio.sleep(_FIRST_SNAPSHOT_S)
        while True:
            await lease.wait_opened()
            await self._take_snapshot(lease)
            await trio.sleep(SNAPSHOT_INTERVAL_S)

    async def _take_overdue_snapshot(self, lease: Lease) -> None:
        coordination = self._coordination
        last_ms, now_ms = coordination.snapshot_ms, coordination.state.timestamp_ms
        is_overdue = (
            last_ms is None or now_ms is None or now_ms - last_ms > SNAPSHOT_INTERVAL_S * 1_000
        )
        if is_overdue and self._leads(lease) and lease.is_open():
            await self._take_snapshot(lease)

    async def _take_snapshot(self, lease: Lease) -> None:
        state = self._coordination.state
        term, as_of = state.term, state.position - 1
        packed = await in_turns(state.snapshot_in_steps())
        count = -(-len(packed) // _PART_BYTES_MAX)
        for part in range(count):
            piece = packed[part * _PART_BYTES_MAX : (part + 1) * _PART_BYTES_MAX]
            if not lease.is_open():
                break
            await self._append(Snapshot(lease.boot, term, as_of, piece, part, count))

    async def _append(self, said: Said) -> int | None:
        """Append a record and return its offset; None if it is not known to be stored."""
        log, topic = self._coordination.log, self._coordination.topic
        with trio.move_on_after(_APPEND_TIMEOUT_S):
            record = encode(said, self._clock.now_ms())
            outcome = (await log.append(topic, 0, [record], Ack.ALL))[0]
            if isinstance(outcome, Stored):
                return outcome.offset
        return None


def in_parts(
    assignments: Sequence[Assignment], count_max: int, bytes_max: int
) -> Iterator[Sequence[Assignment]]:
    """The assignments in their order, in as few pieces of so many and so many bytes at the most.

    One that is larger by itself is a piece of its own: the log refuses it.
    """
    part: list[Assignment] = []
    size_bytes = 0
    for assignment in assignments:
        size = len(msgspec.json.encode(assignment)) + 1
        if part and (size_bytes + size > bytes_max or len(part) >= count_max):
            yield part
            part, size_bytes = [], 0
        part.append(assignment)
        size_bytes += size
    if part:
        yield part
