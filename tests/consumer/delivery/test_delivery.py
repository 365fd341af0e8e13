"""What may become of a message between its reading and its settling, and what may not."""

import pytest

from hermes_actors.consumer.delivery.delivery import Delivery, State
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.model.record import StoredRecord

LEADS_TO = {
    "sent": State.IN_FLIGHT,
    "wait": State.WAITING,
    "returned": State.READ,
    "given_up": State.GIVEN_UP,
    "settled": State.SETTLED,
    "forgotten": State.FORGOTTEN,
}
MAY_FOLLOW = {
    State.READ: {"sent", "wait", "returned", "given_up", "forgotten"},
    State.WAITING: {"sent", "wait", "returned", "given_up", "forgotten"},
    State.IN_FLIGHT: {"wait", "returned", "given_up", "settled", "forgotten"},
    State.GIVEN_UP: {"settled"},
    State.SETTLED: set(),
    State.FORGOTTEN: set(),
}
WAYS = {
    State.READ: (),
    State.WAITING: ("wait",),
    State.IN_FLIGHT: ("sent",),
    State.GIVEN_UP: ("given_up",),
    State.SETTLED: ("sent", "settled"),
    State.FORGOTTEN: ("forgotten",),
}


def delivery_in(state):
    offsets = PartitionOffsets(0)
    assert offsets.begin(0)
    delivery = Delivery(StoredRecord(0, 0, 0, None, b"{}", ()), offsets)
    for each in WAYS[state]:
        go(delivery, each)
    assert delivery.state is state
    return delivery


def go(delivery, transition):
    getattr(delivery, transition)(*(1.0,) * (transition == "sent"))


@pytest.mark.parametrize("transition", LEADS_TO)
@pytest.mark.parametrize("state", State)
def test_each_transition_is_made_where_it_may_be_and_nowhere_else(state, transition):
    delivery = delivery_in(state)
    if transition in MAY_FOLLOW[state]:
        go(delivery, transition)
        assert delivery.state is LEADS_TO[transition]
    else:
        with pytest.raises(AssertionError):
            go(delivery, transition)
        assert delivery.state is state


@pytest.mark.parametrize("state", State)
def test_an_offset_is_settled_with_its_message_and_by_nothing_else(state):
    delivery = delivery_in(state)
    assert delivery.offsets.unsettled == (state is not State.SETTLED)
