"""The actor that leads when no other node does: it plans who owns what, and takes snapshots.

Each consuming node has one. The coordination log decides which of them leads: a late claim or plan
has no effect there.
"""

import logging
import random
from collections.abc import Callable, Generator, Iterator, Sequence

import msgspec
import trio

from hermes_actors.actors.restart import RestartPolicy
from hermes_actors.actors.supervisor import Crash, open_supervisor, run_until
from hermes_actors.balancer.departures import log_departures
from hermes_actors.balancer.planning import Workload
from hermes_actors.balancer.presence import Presence
from hermes_actors.coordination.commands import (
    RECORD_BYTES_MAX,
    Assignment,
    Plan,
    Said,
    Snapshot,
    TermClaim,
    encode,
)
from hermes_actors.coordination.lease import Lease
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import LEASE_MS
from hermes_actors.coordination.view import Coordination
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import in_turns

_logger = logging.getLogger(__name__)

BALANCE_INTERVAL_S = 30.0
SNAPSHOT_INTERVAL_S = 30.0
_PLANNER = RestartPolicy(restarts_max=None, backoff_max_s=BALANCE_INTERVAL_S)
_FIRST_SNAPSHOT_S = 1.0
_CLAIM_JITTER_S = 0.2
_DEBOUNCE_S = 0.05
_RETRY_S = 0.25
_FOLD_TIMEOUT_S = 2.0
_APPEND_TIMEOUT_S = 5.0
_PLAN_BYTES_MAX = RECORD_BYTES_MAX - 10_000
_PLAN_ASSIGNMENTS_MAX = 250
"""Each node folds a record in one go; this many take a few milliseconds."""
# Bytes are base64 in JSON: 4 characters for 3 bytes.
_PART_BYTES_MAX = RECORD_BYTES_MAX * 7 // 10

Planning = Callable[[CoordinationState, Workload], Generator[None, None, tuple[Assignment, ...]]]
"""Computes the changes to the state's targets; empty if there are none. It reads state and workload
before its first yield, and yields every few milliseconds.
"""


class Leader:
    """Claims the leadership when there is no leader, and leads while the log says so. It checks the
    node's lease before each record.

    `workload` returns the subscriptions to own; None while that is unknown, and then nothing is
    planned.
    """

    def __init__(
        self,
        coordination: Coordination,
        presence: Presence,
        plan: Planning,
        workload: Callable[[], Workload | None],
        *,
        clock: Clock,
        rng: random.Random,
        on_crash: Callable[[Crash], None],
        balance_interval_s: float = BALANCE_INTERVAL_S,
    ) -> None:
        self._coordination = coordination
        self._presence = presence
        self._planning = plan
        self._workload = workload
        self._clock = clock
        self._rng = rng
        self._on_crash = on_crash
        self._balance_interval_s = balance_interval_s
        self._is_wanted = trio.Event()

    def plan_soon(self) -> None:
        """Plan before the interval is over, because the workload has changed."""
        self._is_wanted.set()

    async def run(self, stop: trio.Event) -> None:
        """Take part in leading until asked to stop."""
        await run_until(stop, self._stand, lambda: log_departures(self._coordination))

    async def _stand(self) -> None:
        while True:
            lease = await self._presence.wait_life()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stand_in, lease)
                await lease.wait_lost()
                nursery.cancel_scope.cancel()

    async def _stand_in(self, lease: Lease) -> None:
        """Claim and lead during one life of the node."""
        coordination = self._coordination
        while True:
            await lease.wait_opened()
            if self._leads(lease):
                await self._lead(lease)
            elif self._is_stopping(lease):
                # Its claims are refused until this life is over.
                await trio.sleep_forever()
            elif not coordination.state.leader:
                await self._claim(lease)
            else:
                await coordination.until(lambda state: not state.leader)

    def _leads(self, lease: Lease) -> bool:
        return self._coordination.state.leader == lease.boot

    def _is_stopping(self, lease: Lease) -> bool:
        member = self._coordination.state.members.get(lease.boot)
        return member is not None and member.is_stopping

    async def _claim(self, lease: Lease) -> None:
        coordination = self._coordination
        if len(coordination.state.members) > 1:
            await trio.sleep(self._rng.uniform(0, _CLAIM_JITTER_S))
        state = coordination.state
        if state.leader or self._is_stopping(lease) or not lease.is_open():
            return
        term = state.term + 1
        await self._append(TermClaim(lease.boot, term))
        with trio.move_on_after(_FOLD_TIMEOUT_S):
            await coordination.until(lambda state: bool(state.leader) or state.term >= term)

    async def _lead(self, lease: Lease) -> None:
        async with open_supervisor(self._rng, self._on_crash) as supervisor:
            # If a workload makes the planner crash, the leadership goes on, with snapshots.
            supervisor.start_task(
                f"planner of {self._coordination.dc}",
                lambda _stop: self._plan_regularly(lease),
                restart=_PLANNER,
            )
            supervisor.start_task("snapshots", lambda _stop: self._take_snapshots(lease))
            with self._coordination.watch() as watch:
                while self._leads(lease):
                    await watch.wait()
                    if watch.take_nowait().members:
                        self._is_wanted.set()

    # Plans.

    async def _plan_regularly(self, lease: Lease) -> None:
        await self._outwait_unknown_owners(lease)
        while True:
            await lease.wait_opened()
            self._is_wanted = trio.Event()
            is_done = await self._plan(lease)
            with trio.move_on_after(self._balance_interval_s if is_done else _RETRY_S):
                await self._is_wanted.wait()
                # Changes that arrive together are planned together.
                await trio.sleep(_DEBOUNCE_S)

    async def _outwait_unknown_owners(self, lease: Lease) -> None:
        """Wait for the length of a lease if the log has no plan although subscriptions were
        consumed before. The log may have been deleted or emptied while owners have not noticed yet;
        nothing in the new log renews their leases.
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

    async def _plan(self, lease: Lease) -> bool:
        """Plan and append the changes. False if it has to be tried again soon."""
        workload = self._workload()
        if workload is None:
            return False
        state = self._coordination.state
        base, term = state.plan_offset, state.term
        assignments = await in_turns(self._planning(state, workload))
        for part in in_parts(assignments, _PLAN_ASSIGNMENTS_MAX, _PLAN_BYTES_MAX):
            if state.plan_offset != base or not (self._leads(lease) and lease.is_open()):
                return False
            await self._append(Plan(lease.boot, term, base, tuple(part)))
            # Wait even if the append seemed to fail: the record may still arrive.
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

    async def _append(self, said: Said) -> None:
        """Append a record. Success shows only when the record is read."""
        log, topic = self._coordination.log, self._coordination.topic
        with trio.move_on_after(_APPEND_TIMEOUT_S):
            await log.append(topic, 0, [encode(said, self._clock.now_ms())], Ack.ALL)


def in_parts(
    assignments: Sequence[Assignment], count_max: int, bytes_max: int
) -> Iterator[Sequence[Assignment]]:
    """Split the assignments, in order, into as few parts as possible within both limits. An
    assignment that is too large is a part by itself, and the log refuses it.
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
