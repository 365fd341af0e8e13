"""Since when a node has had a subscription, and from whom, where its failures are asked for."""

import pytest
import trio

from hermes_actors.coordination.commands import Join, Leave, TermClaim
from hermes_actors.coordination.reasons import NODE_LEFT, Reason
from hermes_actors.management.balancing.placements import takeover
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import NodeHeader, StatusRecord, SubscriptionStatus
from tests.management.coordination_scene import ORDERS, T0_MS, Followed


def plan(followed, *boots, reasons=()):
    """The partitions of the one subscription, in turn, to these boots."""
    targets = [(boot, (number,)) for number, boot in enumerate(boots)]
    followed.plan(ORDERS, *targets, reasons=reasons)


@pytest.fixture
def followed():
    followed = Followed(Join("b1", "node-a", 1.0), Join("b2", "node-b", 1.0), TermClaim("b1", 1))
    plan(followed, "b2")
    return followed


def test_who_took_it_over_tells_since_when_from_whom_and_why(followed):
    followed.say(Leave("b2"))
    plan(followed, "b1", reasons=(Reason(NODE_LEFT, {"node": "node-b"}),))
    followed.say(TermClaim("b1", 9), TermClaim("b1", 9))
    assert takeover(followed.state, ORDERS, "node-a") == {
        "ownedForS": 0.2,
        "takenOverFrom": ["node-b"],
        "takenOverBecause": "node node-b left",
    }
    assert takeover(followed.state, ORDERS, "node-b") == {}


def test_the_first_owner_has_it_from_nobody_and_one_that_is_joined_neither(followed):
    assert takeover(followed.state, ORDERS, "node-b") == {"ownedForS": 0.0}
    plan(followed, "b2", "b1")
    assert takeover(followed.state, ORDERS, "node-a") == {"ownedForS": 0.0}
    assert takeover(followed.state, ORDERS, "node-b") == {"ownedForS": pytest.approx(0.1)}


def test_of_what_nobody_knows_nothing_is_told(followed):
    assert takeover(followed.state, "shop.orders$other", "node-a") == {}
    assert takeover(followed.state, ORDERS, "node-x") == {}


async def test_why_tells_it_of_each_node_while_the_coordination_is_followed(api, followed):
    fold = StatusFold()
    api.administered_with(status=fold, coordinations={"dc1": followed})
    await api.with_topic()
    await api.with_subscription()
    header = NodeHeader(
        node="node-b",
        dc="dc1",
        boot_id="b",
        sequence=1,
        round=1,
        roles=("consumers",),
        written_at_ms=T0_MS,
    )
    now_s = trio.current_time()
    fold.report("dc1", "", T0_MS, now_s)
    record = StatusRecord(header, (), (SubscriptionStatus(name=ORDERS),))
    fold.take("dc1", record, now_s)

    async def node():
        shown = (await api.get("/topics/shop.orders/subscriptions/billing/why")).json()
        ((found,),) = [each["nodes"] for each in shown["datacenters"]]
        return found

    assert (await node())["ownedForS"] == 0.0
    followed.trouble = "the log is away"
    assert "ownedForS" not in await node()
