"""Which of an endpoint's addresses is connected to, and when the next one is tried."""

from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.senders.connecting import NEXT_ADDRESS_S, connect_to_first, interleaved


class Hosts:
    """Addresses that answer after a time, or fail; `tried` is when each was tried."""

    def __init__(self, **answers):
        self.answers = answers
        self.tried = {}
        self.cancelled = []

    async def connect(self, address):
        self.tried[address] = trio.current_time()
        after_s, is_well = self.answers[address]
        try:
            await trio.sleep(after_s)
        except trio.Cancelled:
            self.cancelled.append(address)
            raise
        if not is_well:
            raise OSError(f"{address} refused")
        return address


async def first_of(hosts):
    begun_s = trio.current_time()
    made = await connect_to_first(list(hosts.answers), hosts.connect)
    hosts.tried = {each: at_s - begun_s for each, at_s in hosts.tried.items()}
    return made


async def test_a_second_address_is_tried_beside_a_silent_one_and_the_first_answer_counts(
    autojump_clock,
):
    hosts = Hosts(a=(60, True), b=(0.1, True), c=(0.1, True))
    assert await first_of(hosts) == ["b"]
    assert hosts.tried == {"a": 0.0, "b": pytest.approx(NEXT_ADDRESS_S)}
    assert hosts.cancelled == ["a"]


async def test_after_a_refusal_the_next_address_is_tried_at_once(autojump_clock):
    hosts = Hosts(a=(0, False), b=(0.1, True))
    assert await first_of(hosts) == ["b"]
    assert hosts.tried["b"] == pytest.approx(0.0)


async def test_where_no_address_answers_the_first_refusal_is_told(autojump_clock):
    with pytest.raises(OSError, match="a refused"):
        await first_of(Hosts(a=(0, False)))
    with pytest.raises(OSError, match="a refused"):
        await first_of(Hosts(a=(0.1, False), b=(0.1, False)))


@given(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "::1", "::2", "::3"]), min_size=1))
def test_families_take_turns_and_the_preferred_one_begins(addresses):
    ordered = interleaved(addresses)
    assert sorted(ordered) == sorted(addresses)
    assert ordered[0] == addresses[0]
    families = [":" in each for each in ordered]
    shared = 2 * min(families.count(True), families.count(False))
    assert all(a != b for a, b in pairwise(families[:shared]))
