"""Each publish is answered by its deadline, also while its topic's producer is down.

All requests with one time limit stand in one lane. They join it when they start, so a lane is in
order of its deadlines and one sweep for the whole node looks only at the heads: a request needs
no timer of its own. A later limit has a lane for each lane that they come from, for the same order.
"""

from collections import deque
from collections.abc import Iterator

import trio

from hermes_actors.publisher.pending import FIRST, LAST, LATE, SETTLED, Limits, Pending, Stage
from hermes_actors.runtime.clock import Clock

_SWEEP_INTERVAL_MIN_S = 0.001
_WAYS = ((FIRST, LATE), (FIRST, LAST), (LATE, LAST))
"""From which limit a request comes to which."""


class _Lane:
    """The requests that run up to the same limit, in the order in which they started."""

    __slots__ = ("limit_s", "stage", "waiting")

    def __init__(self, limit_ms: int, stage: Stage) -> None:
        self.limit_s = limit_ms / 1_000
        self.stage = stage
        self.waiting: deque[Pending] = deque()


class Deadlines:
    """All lanes of a node, and the one task that sweeps them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the first limit in ms; and those for a later one, by the limit that was met before.
        self._first: dict[int, _Lane] = {}
        self._later: dict[tuple[Stage, Stage, Limits], _Lane] = {}
        self._woken = trio.Event()
        self.is_parked = False

    def __len__(self) -> int:
        """How many stand in lanes; those answered may be among them for a while."""
        return sum([len(lane.waiting) for lane in self._all()])

    def expect(self, limits: Limits) -> None:
        """Requests will come that have these limits: the sweep sleeps for no longer than the
        shortest one, so that whoever comes meanwhile is not late.
        """
        if limits.first_ms not in self._first:
            self._first[limits.first_ms] = _Lane(limits.first_ms, FIRST)
        for before, stage in _WAYS:
            if (before, stage, limits) not in self._later:
                self._later[before, stage, limits] = _Lane(limits[stage], stage)

    def add(self, pending: Pending) -> None:
        """Answer it when its limits are over, which are expected; of those with the same first one
        it must be the last that has started.
        """
        waiting = self._first[pending.limits.first_ms].waiting
        # Whoever joins clears answered ones away, so that the lane stays about as long as the
        # number of requests under way, whatever the limit.
        while waiting and waiting[0].state is SETTLED:
            waiting.popleft()
        waiting.append(pending)
        if self.is_parked:
            self.is_parked = False
            self._woken.set()

    def unanswered(self) -> Iterator[Pending]:
        """All that wait for their answers."""
        for lane in self._all():
            for pending in lane.waiting:
                if not pending.is_answered:
                    yield pending

    def sweep(self, now_s: float) -> float | None:
        """Expire all whose time is over; the earliest deadline left, None when there is none."""
        earliest_s: float | None = None
        for lane in self._all():
            next_s = self._sweep(lane, now_s)
            if next_s is not None and (earliest_s is None or next_s < earliest_s):
                earliest_s = next_s
        return earliest_s

    async def run(self) -> None:
        """Sweep until cancelled; costs nothing while no request is under way."""
        while True:
            now_s = self._clock.monotonic_s()
            next_s = self.sweep(now_s)
            if next_s is None:
                self._woken = trio.Event()
                self.is_parked = True
                await self._woken.wait()
            else:
                shortest_s = min(lane.limit_s for lane in self._all())
                await trio.sleep(max(min(next_s - now_s, shortest_s), _SWEEP_INTERVAL_MIN_S))

    def _all(self) -> list[_Lane]:
        """From an earlier one a request comes to a later one."""
        return [*self._first.values(), *self._later.values()]

    def _sweep(self, lane: _Lane, now_s: float) -> float | None:
        waiting = lane.waiting
        latest_s = now_s - lane.limit_s
        while waiting:
            head = waiting[0]
            if not head.is_answered and head.started_s > latest_s:
                return head.started_s + lane.limit_s
            # Before it expires: whoever is told may answer others, or begin another request.
            waiting.popleft()
            if not head.is_answered:
                following = head.expire(lane.stage)
                if following is not None:
                    self._later[lane.stage, following, head.limits].waiting.append(head)
        return None
