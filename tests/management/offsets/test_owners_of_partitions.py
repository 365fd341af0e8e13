"""Each node that consumes a subscription is shown with the partitions that it owns, no others."""

import trio

from hermes_actors.coordination.commands import Join, TermClaim
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import NodeHeader, StatusRecord, SubscriptionStatus
from tests.management.coordination_scene import ORDERS, Followed


def heard_of(fold, node):
    header = NodeHeader(node=node, dc="dc1", boot_id=node, sequence=1, roles=("consumers",))
    record = StatusRecord(header, (), (SubscriptionStatus(name=ORDERS),))
    fold.take("dc1", record, trio.current_time())


async def test_members_of_a_group_have_the_partitions_that_they_own(api):
    followed = Followed(Join("b1", "node-a"), Join("b2", "node-b"), TermClaim("b1", 1))
    followed.plan(ORDERS, ("b1", (0, 2)), ("b2", (1,)))
    fold = StatusFold()
    fold.report("dc1", "", 0, trio.current_time())
    api.administered_with(status=fold, coordinations={"dc1": followed})
    await api.with_topic()
    await api.with_subscription()
    for node in ("node-a", "node-b"):
        heard_of(fold, node)

    async def members():
        (group,) = await api.administration.standings.consumer_groups("shop.orders", "billing")
        return {
            each["host"]: [partition["partition"] for partition in each["partitions"]]
            for each in group["members"]
        }

    assert await members() == {"node-a": [0, 2], "node-b": [1]}
    # Where nobody knows, all are shown.
    followed.trouble = "the log is away"
    assert await members() == {node: list(range(10)) for node in ("node-a", "node-b")}
