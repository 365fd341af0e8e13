"""Each publish is answered by its deadline, also while its topic's producer is down.

All requests with one time limit stand in one lane. They join it when they start, so a lane is in
order of its deadlines and one sweep for the whole node looks only at the heads: a request needs
no timer of its own. The few that have a later limit too stand in a heap until then.
"""

from collections import deque
from heapq import heappop, heappush
from itertools import count

import trio

from hermes_actors.publisher.pending import SETTLED, Limits, Pending
from hermes_actors.runtime.clock import Clock

_SWEEP_INTERVAL_MIN_S = 0.001


class Deadlines:
    """The deadlines of a node's publishes, and the one task that sweeps them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By the first limit in ms.
        self._lanes: dict[int, deque[Pending]] = {}
        # Those that have met it: the next deadline, a number for the order, and that limit in ms.
        self._later: list[tuple[float, int, int, Pending]] = []
        self._numbers = count()
        self._woken = trio.Event()
        self.is_parked = False

    def __len__(self) -> int:
        """How many are held; those answered may be among them for a while."""
        return sum(map(len, self._lanes.values())) + len(self._later)

    def expect(self, limits: Limits) -> None:
        """Requests will come that have these limits: the sweep sleeps for no longer than the
        shortest one, so that whoever comes meanwhile is not late.
        """
        self._lanes.setdefault(limits.first_ms, deque())

    def add(self, pending: Pending) -> None:
        """Answer it when its limits are over, which are expected; of those with the same first one
        it must be the last that has started.
        """
        lane = self._lanes[pending.limits.first_ms]
        # Whoever joins clears answered ones away, so that the lane stays about as long as the
        # number of requests under way, whatever the limit.
        while lane and lane[0].state is SETTLED:
            lane.popleft()
        lane.append(pending)
        if self.is_parked:
            self.is_parked = False
            self._woken.set()

    def sweep(self, now_s: float) -> float | None:
        """Expire all whose time is over; the earliest deadline left, None when there is none."""
        earliest_s: list[float] = []
        for limit_ms, lane in self._lanes.items():
            limit_s = limit_ms / 1_000
            while lane and (lane[0].is_answered or lane[0].started_s <= now_s - limit_s):
                # Before it expires: whoever is told may answer others, or begin another request.
                self._expire(lane.popleft(), limit_ms)
            if lane:
                earliest_s.append(lane[0].started_s + limit_s)
        while self._later and (self._later[0][3].is_answered or self._later[0][0] <= now_s):
            _, _, limit_ms, pending = heappop(self._later)
            self._expire(pending, limit_ms)
        if self._later:
            earliest_s.append(self._later[0][0])
        return min(earliest_s, default=None)

    def _expire(self, pending: Pending, limit_ms: int) -> None:
        if pending.is_answered:
            return
        next_ms = pending.expire(limit_ms)
        if next_ms is not None:
            deadline_s = pending.started_s + next_ms / 1_000
            heappush(self._later, (deadline_s, next(self._numbers), next_ms, pending))

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
                shortest_s = min(self._lanes) / 1_000
                await trio.sleep(max(min(next_s - now_s, shortest_s), _SWEEP_INTERVAL_MIN_S))
