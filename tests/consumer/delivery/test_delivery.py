"""What may become of a message between its reading and its settling, and what may not."""

import pytest

from hermes_actors.consumer.delivery.delivery import Delivery, DeliveryState
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.model.record import StoredRecord

LEADS_TO = {
    "sent": DeliveryState.IN_FLIGHT,
    "wait": DeliveryState.WAITING,
    "returned": DeliveryState.READ,
    "given_up": DeliveryState.GIVEN_UP,
    "settled": DeliveryState.SETTLED,
    "forgotten": DeliveryState.FORGOTTEN,
}
MAY_FOLLOW = {
    DeliveryState.READ: {"sent", "wait", "returned", "given_up", "forgotten"},
    DeliveryState.WAITING: {"sent", "wait", "returned", "given_up", "forgotten"},
    DeliveryState.IN_FLIGHT: {"wait", "returned", "given_up", "settled", "forgotten"},
    DeliveryState.GIVEN_UP: {"settled"},
    DeliveryState.SETTLED: set(),
    DeliveryState.FORGOTTEN: set(),
}
WAYS = {
    DeliveryState.READ: (),
    DeliveryState.WAITING: ("wait",),
    DeliveryState.IN_FLIGHT: ("sent",),
    DeliveryState.GIVEN_UP: ("given_up",),
    DeliveryState.SETTLED: ("sent", "settled"),
    DeliveryState.FORGOTTEN: ("forgotten",),
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
@pytest.mark.parametrize("state", DeliveryState)
def test_each_transition_is_made_where_it_may_be_and_nowhere_else(state, transition):
    delivery = delivery_in(state)
    if transition in MAY_FOLLOW[state]:
        go(delivery, transition)
        assert delivery.state is LEADS_TO[transition]
    else:
        with pytest.raises(AssertionError):
            go(delivery, transition)
        assert delivery.state is state


@pytest.mark.parametrize("state", DeliveryState)
def test_an_offset_is_settled_with_its_message_and_by_nothing_else(state):
    delivery = delivery_in(state)
    assert delivery.offsets.unsettled == (state is not DeliveryState.SETTLED)
