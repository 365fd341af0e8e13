"""A lease is open for 2 s after the sending of the last own heartbeat that was seen."""

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.coordination.lease import Lease


class SetClock:
    def __init__(self):
        self.at_s = 100.0

    def now_ms(self):
        return 0

    def monotonic_s(self):
        return 0.0

    def boottime_s(self):
        return self.at_s


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def lease(clock):
    return Lease("boot", clock)


def test_once_lost_it_never_opens_again(lease):
    lease.sending(1)
    lease.folded(1)
    lease.lose()
    assert not lease.is_open()
    lease.sending(2)
    lease.folded(2)
    assert not lease.is_open()
    assert lease.is_lost


async def test_who_waits_for_it_goes_on_when_it_opens(lease, clock, autojump_clock):
    opened = []

    async def wait():
        await lease.wait_opened()
        opened.append(clock.at_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        lease.sending(1)
        lease.folded(1)
    lease.sending(2)
    clock.at_s += 5
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert opened == [100.0]
        clock.at_s += 5
        lease.sending(3)
        lease.folded(3)
    assert opened == [100.0, 110.0]


async def test_who_waits_for_a_lost_one_waits_on(lease, autojump_clock):
    lease.sending(1)
    lease.folded(1)
    lease.lose()
    with trio.move_on_after(60) as scope:
        await lease.wait_opened()
    assert scope.cancelled_caught
    await lease.wait_lost()


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["send", "fold", "lose", "pass"]),
            st.integers(1, 6),
            st.floats(0, 3),
        )
    )
)
def test_it_is_open_exactly_within_two_seconds_of_a_seen_heartbeats_sending(steps):
    clock = SetClock()
    lease = Lease("boot", clock)
    sent_s, until_s, number, is_lost = {}, float("-inf"), 0, False
    for step, back, wait_s in steps:
        if step == "send":
            number += 1
            sent_s[number] = clock.at_s
            lease.sending(number)
        elif step == "fold":
            # Heartbeats are seen in the order of their sending, some of them never.
            if number - back >= 0 and (seen := number - back + 1) in sent_s:
                until_s = max(until_s, sent_s[seen] + 2.0)
                sent_s = {n: at for n, at in sent_s.items() if n > seen}
                lease.folded(seen)
        elif step == "lose":
            is_lost = True
            lease.lose()
        clock.at_s += wait_s
        assert lease.is_open() == (not is_lost and clock.at_s < until_s)
