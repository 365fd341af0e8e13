"""Hand-made status records, and a clock that follows trio's."""

import pytest

from hermes_actors.status.collector import NodeIdentity
from hermes_actors.status.record import NodeHeader, StatusRecord, SubscriptionStatus, TopicStatus
from hermes_chaos.sim.environment.clock import EPOCH_MS, SimulatedClock


def make_identity(node="n1", dc="dc1", boot="b1"):
    return NodeIdentity(dc, node, boot, ("frontend", "consumers"), "0.1.0", EPOCH_MS)


def make_record(
    node="n1",
    *,
    boot="b1",
    sequence=1,
    in_round=None,
    topics=(),
    subscriptions=(),
    **header,
):
    return StatusRecord(
        NodeHeader(
            node=node,
            dc="dc1",
            boot_id=boot,
            sequence=sequence,
            round=sequence if in_round is None else in_round,
            **header,
        ),
        tuple(each if isinstance(each, TopicStatus) else TopicStatus(each) for each in topics),
        tuple(
            each if isinstance(each, SubscriptionStatus) else SubscriptionStatus(name=each)
            for each in subscriptions
        ),
    )


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def skewed_clock():
    return SimulatedClock


@pytest.fixture
def identity():
    return make_identity


@pytest.fixture
def record():
    return make_record
