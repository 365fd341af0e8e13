"""Each publication is answered by its deadline, also while its topic's producer is down.

All requests with one time limit stand in one lane. They join it when they start, so a lane is in
order of its deadlines and one sweep for the whole node looks only at the heads: a request needs
no timer of its own.
"""

from collections import deque
from typing import Protocol

import trio
from msgspec import Struct

from hermes_actors.runtime.clock import Clock

_SWEEP_INTERVAL_MIN_S = 0.001


class Expiring(Protocol):
    """What stands in a lane, until it has been answered."""

    is_answered: bool
    started_s: float

    def expire(self, limit_ms: int) -> None:
        """The limit is over."""


class Lane:
    """The requests that have the same time limit, in the order in which they started."""

    __slots__ = ("_deadlines", "_waiting", "limit_ms", "limit_s")

    def __init__(self, deadlines: "Deadlines", limit_ms: int) -> None:
        self._deadlines = deadlines
        self._waiting: deque[Expiring] = deque()
        self.limit_ms = limit_ms
        self.limit_s = limit_ms / 1_000

    def __len__(self) -> int:
        return len(self._waiting)

    def unanswered(self) -> list[Expiring]:
        """Those that wait for their answer."""
        return [request for request in self._waiting if not request.is_answered]

    def add(self, request: Expiring) -> None:
        """Join the lane; `request.started_s` must not lie before that of the one before it."""
        waiting = self._waiting
        # Whoever joins clears answered ones away, so that the lane stays about as long as the
        # number of requests under way, whatever the limit.
        while waiting and waiting[0].is_answered:
            waiting.popleft()
        waiting.append(request)
        if self._deadlines.is_parked:
            self._deadlines.wake()

    def sweep(self, now_s: float) -> float | None:
        """Expire all whose time is over; the earliest deadline left, None when there is none."""
        waiting = self._waiting
        latest_s = now_s - self.limit_s
        while waiting:
            head = waiting[0]
            if not head.is_answered and head.started_s > latest_s:
                return head.started_s + self.limit_s
            # Before it expires: whoever is told may answer others, or begin another request.
            waiting.popleft()
            if not head.is_answered:
                head.expire(self.limit_ms)
        return None


class Lanes(Struct, frozen=True):
    """The lanes that a request may go through: until a buffer is asked, until it is answered that
    none took it, and until it is answered that the buffer's disk did not.
    """

    first: Lane
    late: Lane
    kept: Lane


class Deadlines:
    """All lanes of a node, and the one task that sweeps them.

    Make all lanes before `run` looks at the first request: it sleeps for no longer than the
    shortest limit, so that no request that comes meanwhile is late.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._woken = trio.Event()
        self.is_parked = False

    def lane(self, limit_ms: int, stage: int = 0) -> Lane:
        """The lane for a time limit; the same one each time.

        What comes from another lane, whose limit is over, joins one of a later `stage`: it is older
        than what joins when it starts.
        """
        lane = self._lanes.get((limit_ms, stage))
        if lane is None:
            lane = self._lanes[limit_ms, stage] = Lane(self, limit_ms)
        return lane

    def wake(self) -> None:
        """Start sweeping again: a lane is no longer empty."""
        self.is_parked = False
        self._woken.set()

    def sweep(self, now_s: float) -> float | None:
        """Expire all whose time is over; the earliest deadline left, None when there is none."""
        earliest_s: float | None = None
        for lane in self._lanes.values():
            next_s = lane.sweep(now_s)
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
                shortest_s = min(lane.limit_s for lane in self._lanes.values())
                await trio.sleep(max(min(next_s - now_s, shortest_s), _SWEEP_INTERVAL_MIN_S))
