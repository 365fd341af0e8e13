"""Answers each publish by its deadline, also while its topic's producer is down.

All requests with the same time limit share a lane. They join it when they start, so a lane is
sorted by deadline, and one sweep for the whole node looks only at the heads: no request needs a
timer. The few that also have a later limit wait for it in a heap.
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
        # Key: the first limit in ms.
        self._lanes: dict[int, deque[Pending]] = {}
        # Those past their first limit: the next deadline, a tie-breaker, and that limit in ms.
        self._later: list[tuple[float, int, int, Pending]] = []
        self._numbers = count()
        self._rest = trio.CancelScope()
        self.is_parked = False

    def __len__(self) -> int:
        """The number of pendings held; some may already be answered."""
        return sum(map(len, self._lanes.values())) + len(self._later)

    def expect(self, limits: Limits) -> None:
        """Announce that requests with these limits will come. The sweep never sleeps longer than
        the shortest limit, so that a request that starts meanwhile is not late.
        """
        self._lanes.setdefault(limits.first_ms, deque())

    def add(self, pending: Pending) -> None:
        """Answer it when its limits have passed. Its limits must have been announced, and it must
        be the latest to start in its lane.
        """
        lane = self._lanes[pending.limits.first_ms]
        # Each newcomer removes answered ones, so that the lane stays about as long as the number of
        # requests under way, whatever the limit.
        while lane and lane[0].state is SETTLED:
            lane.popleft()
        lane.append(pending)
        if self.is_parked:
            # No request is due earlier; the task need not wake now.
            self.is_parked = False
            self._rest.deadline = trio.current_time() + min(self._lanes) / 1_000

    def sweep(self, now_s: float) -> float | None:
        """Expire all that are due. Returns the earliest deadline left, None if there is none."""
        earliest_s: list[float] = []
        for limit_ms, lane in self._lanes.items():
            limit_s = limit_ms / 1_000
            while lane and (lane[0].is_answered or lane[0].started_s <= now_s - limit_s):
                # Remove it first: its listeners may answer other requests or begin one.
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
                with trio.CancelScope() as self._rest:
                    self.is_parked = True
                    await trio.sleep_forever()
            else:
                shortest_s = min(self._lanes) / 1_000
                await trio.sleep(max(min(next_s - now_s, shortest_s), _SWEEP_INTERVAL_MIN_S))
