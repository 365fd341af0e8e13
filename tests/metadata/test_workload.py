"""What people tell the balancer is in the catalog, whatever else is."""

import pytest

from hermes_actors.metadata.catalog import Catalog, OtherChanged
from hermes_actors.metadata.state import Register
from hermes_actors.metadata.workload import (
    constraint_body,
    constraint_key,
    drain_body,
    drain_key,
)
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.workload import Constraints, NodeDrain

TOPIC = TopicName("pl.shop", "orders")
BILLING = SubscriptionName(TOPIC, "billing")
THREE = Constraints(consumers_number=3, reason="large")
ONE = Constraints(consumers_number=1)


def register(key, body, stamp=10):
    return Register(key, 0, stamp, "dc1", body)


def test_constraints_are_found_by_the_name_they_are_for():
    catalog = Catalog()
    changed = catalog.apply(register(constraint_key(TOPIC), constraint_body(THREE)))
    catalog.apply(register(constraint_key(BILLING), constraint_body(ONE)))
    assert catalog.constraints == {"pl.shop.orders": THREE, "pl.shop.orders$billing": ONE}
    assert [type(each) for each in changed] == [OtherChanged]
    catalog.apply(register(constraint_key(TOPIC), None, 11))
    catalog.forget(constraint_key(BILLING))
    assert catalog.constraints == {}


@pytest.mark.parametrize("body", [b"nonsense", b"{}", b'{"consumersNumber":0}', b"[3]"])
def test_a_constraint_that_makes_no_sense_counts_as_none_and_is_shown(body):
    catalog = Catalog()
    catalog.apply(register(constraint_key(TOPIC), constraint_body(THREE)))
    catalog.apply(register(constraint_key(TOPIC), body, 11))
    assert catalog.constraints == {}
    assert list(catalog.undecodable) == [constraint_key(TOPIC)]


def test_a_datacentres_draining_nodes_are_known_sorted():
    catalog = Catalog()
    for dc, node in (("dc1", "node-b"), ("dc1", "node/a"), ("dc2", "node-c")):
        catalog.apply(register(drain_key(dc, node), drain_body(NodeDrain(since_ms=5, by="ann"))))
    assert catalog.draining_in("dc1") == ["node-b", "node/a"]
    assert catalog.drains["dc2", "node-c"] == NodeDrain(since_ms=5, by="ann")
    catalog.apply(register(drain_key("dc1", "node-b"), None, 11))
    assert catalog.draining_in("dc1") == ["node/a"]
