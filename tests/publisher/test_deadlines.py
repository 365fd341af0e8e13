"""Deadlines run in order, for the whole node, without a timer for each request."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.publisher.deadlines import Deadlines
from hermes_chaos.sim.environment.clock import SimulatedClock


class Request:
    """Notes when it expired."""

    def __init__(self, started_s: float) -> None:
        self.started_s = started_s
        self.is_answered = False
        self.expired: list[tuple[float, int]] = []

    def expire(self, limit_ms: int) -> None:
        self.is_answered = True
        self.expired.append((trio.current_time(), limit_ms))


async def test_each_request_expires_at_its_own_limit(autojump_clock, nursery) -> None:
    deadlines = Deadlines(SimulatedClock())
    for limit_ms in (400, 65, 500):
        deadlines.lane(limit_ms)
    nursery.start_soon(deadlines.run)
    start_s = trio.current_time()
    requests = []
    for limit_ms in (400, 65, 500):
        request = Request(trio.current_time())
        deadlines.lane(limit_ms).add(request)
        requests.append((limit_ms, request))
        await trio.sleep(0.010)
    await trio.sleep(1)
    for index, (limit_ms, request) in enumerate(requests):
        ((at_s, told_ms),) = request.expired
        assert told_ms == limit_ms
        assert -1e-9 <= at_s - start_s - index * 0.010 - limit_ms / 1_000 < 0.002


async def test_an_answered_request_never_expires(autojump_clock, nursery) -> None:
    deadlines = Deadlines(SimulatedClock())
    nursery.start_soon(deadlines.run)
    request = Request(trio.current_time())
    deadlines.lane(65).add(request)
    await trio.sleep(0.064)
    request.is_answered = True
    await trio.sleep(1)
    assert not request.expired


async def test_the_sweep_goes_on_after_a_pause(autojump_clock, nursery) -> None:
    deadlines = Deadlines(SimulatedClock())
    nursery.start_soon(deadlines.run)
    for _ in range(3):
        await trio.sleep(10)
        assert deadlines.is_parked
        request = Request(trio.current_time())
        deadlines.lane(65).add(request)
        await trio.sleep(0.067)
        assert request.expired


def test_a_lane_stays_as_long_as_what_is_under_way() -> None:
    lane = Deadlines(SimulatedClock()).lane(60_000)
    for number in range(10_000):
        request = Request(number / 1_000)
        lane.add(request)
        request.is_answered = True
    assert len(lane) == 1


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=50), st.floats(0, 60))
def test_a_sweep_expires_just_what_is_due(steps: list[tuple[float, bool]], now_s: float) -> None:
    deadlines = Deadlines(SimulatedClock())
    lane = deadlines.lane(1_000)
    expired: list[float] = []

    class Due(Request):
        def expire(self, limit_ms: int) -> None:
            self.is_answered = True
            expired.append(self.started_s)

    requests, started_s = [], 0.0
    for step_s, is_answered in steps:
        started_s += step_s
        request = Due(started_s)
        lane.add(request)
        request.is_answered = is_answered
        requests.append((started_s, is_answered))
    next_s = deadlines.sweep(now_s)
    open_ones = [started for started, is_answered in requests if not is_answered]
    assert expired == [started for started in open_ones if started <= now_s - 1.0]
    left = [started + 1.0 for started in open_ones if started > now_s - 1.0]
    assert next_s == (left[0] if left else None)


def test_a_request_that_begins_while_another_expires_costs_no_third_its_deadline() -> None:
    class Pair(Request):
        """Whoever is told of it begins another request at once."""

        def expire(self, limit_ms: int) -> None:
            self.is_answered = True
            lane.add(Request(2.0))

    lane = Deadlines(SimulatedClock()).lane(65)
    waits = Request(1.0)
    waits.expire = lambda limit_ms: waits.expired.append((0.0, limit_ms))  # type: ignore[method-assign]
    lane.add(Pair(1.0))
    lane.add(waits)
    lane.sweep(1.5)
    assert waits.expired == [(0.0, 65)]
