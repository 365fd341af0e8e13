"""Deadlines run in order, for the whole node, without a timer for each request."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import Refused
from hermes_actors.log.base import Stored
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.pending import Limits, Pending
from hermes_chaos.sim.environment.clock import SimulatedClock
from tests.hand_clock import HandClock
from tests.publisher.keeper import Keeper
from tests.publisher.pendings import pending_of, route_of

STORED = Stored(0)


def deadlines_of(*limits_ms: int) -> Deadlines:
    deadlines = Deadlines(SimulatedClock())
    for limit_ms in limits_ms:
        deadlines.expect(Limits(limit_ms, limit_ms, limit_ms))
    return deadlines


def request(limit_ms: int, ended: list[tuple[Pending, float]]) -> Pending:
    now_s = trio.current_time()
    limits = Limits(limit_ms, limit_ms, limit_ms)
    return pending_of(now_s, limits, lambda each: ended.append((each, trio.current_time())))


async def test_each_request_expires_at_its_own_limit(autojump_clock, nursery) -> None:
    deadlines = deadlines_of(400, 65, 500)
    nursery.start_soon(deadlines.run)
    ended: list[tuple[Pending, float]] = []
    for limit_ms in (400, 65, 500):
        deadlines.add(request(limit_ms, ended))
        await trio.sleep(0.010)
    await trio.sleep(1)
    assert len(ended) == 3
    for pending, at_s in ended:
        limit_ms = pending.limits.first_ms
        assert isinstance(pending.outcome, Refused)
        assert f"within {limit_ms} ms" in str(pending.outcome)
        assert -1e-9 <= at_s - pending.started_s - limit_ms / 1_000 < 0.002


async def test_an_answered_request_never_expires(autojump_clock, nursery) -> None:
    deadlines = deadlines_of(65)
    nursery.start_soon(deadlines.run)
    ended: list[tuple[Pending, float]] = []
    deadlines.add(pending := request(65, ended))
    await trio.sleep(0.064)
    pending.settle(STORED)
    await trio.sleep(1)
    assert [each.outcome for each, _ in ended] == [STORED]


async def test_the_sweep_goes_on_after_a_pause(autojump_clock, nursery) -> None:
    deadlines = deadlines_of(65)
    nursery.start_soon(deadlines.run)
    ended: list[tuple[Pending, float]] = []
    for number in range(3):
        await trio.sleep(10)
        assert deadlines.is_parked
        deadlines.add(request(65, ended))
        await trio.sleep(0.067)
        assert len(ended) == number + 1


def test_a_lane_stays_as_long_as_what_is_under_way() -> None:
    deadlines = deadlines_of(60_000)
    for number in range(10_000):
        pending = pending_of(number / 1_000, Limits(60_000, 60_000, 60_000))
        deadlines.add(pending)
        pending.settle(STORED)
    assert len(deadlines) == 1


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=50), st.floats(0, 60))
def test_a_sweep_expires_just_what_is_due(steps: list[tuple[float, bool]], now_s: float) -> None:
    deadlines = deadlines_of(1_000)
    expired: list[float] = []

    def note(pending: Pending) -> None:
        if pending.outcome is not STORED:
            expired.append(pending.started_s)

    requests, started_s = [], 0.0
    for step_s, is_answered in steps:
        started_s += step_s
        pending = pending_of(started_s, Limits(1_000, 1_000, 1_000), note)
        deadlines.add(pending)
        if is_answered:
            pending.settle(STORED)
        requests.append((started_s, is_answered))
    next_s = deadlines.sweep(now_s)
    open_ones = [started for started, is_answered in requests if not is_answered]
    assert expired == [started for started in open_ones if started <= now_s - 1.0]
    left = [started + 1.0 for started in open_ones if started > now_s - 1.0]
    assert next_s == (left[0] if left else None)


def test_a_request_that_begins_while_another_expires_costs_no_third_its_deadline() -> None:
    deadlines = deadlines_of(65)
    ended: list[Pending] = []
    first = pending_of(1.0, notify=lambda _: deadlines.add(pending_of(2.0)))
    waits = pending_of(1.0, notify=ended.append)
    deadlines.add(first)
    deadlines.add(waits)
    deadlines.sweep(1.5)
    assert ended == [waits]


def test_what_cannot_be_kept_has_the_rest_of_its_time() -> None:
    limits = Limits(50, 65, 1_065)
    deadlines = Deadlines(SimulatedClock())
    deadlines.expect(limits)
    deadlines.add(pending := pending_of(1.0, limits))
    assert deadlines.sweep(1.055) == 1.065
    assert deadlines.sweep(1.070) is None
    assert "within 65 ms" in str(pending.outcome)


def test_what_is_kept_by_topics_with_different_limits_is_answered_in_order_of_its_last_one() -> (
    None
):
    slow, fast = Limits(500, 600, 1_000), Limits(50, 65, 1_000)
    route = route_of(spool=Keeper(clock=HandClock()))
    deadlines = Deadlines(SimulatedClock())
    ended: list[float] = []
    for started_s, limits in ((0.0, slow), (0.1, fast)):
        deadlines.expect(limits)
        pending = pending_of(started_s, limits, lambda each: ended.append(each.started_s), route)
        pending.validating()
        pending.queued((), None, 0)
        deadlines.add(pending)
    for now_s in (0.151, 0.501):
        deadlines.sweep(now_s)
    assert not ended
    assert deadlines.sweep(1.001) == 1.1
    assert ended == [0.0]
    assert deadlines.sweep(1.101) is None
    assert ended == [0.0, 0.1]
