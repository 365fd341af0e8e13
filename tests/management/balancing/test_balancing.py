"""What management says of the balancers: who runs what, why, and what a plan would change."""

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from hermes_actors.config.delivery import BalancerConfig
from hermes_actors.coordination.commands import (
    Assignment,
    Join,
    Leave,
    Plan,
    Release,
    Resign,
    Target,
    TermClaim,
)
from hermes_actors.coordination.plan_views import Proposal
from hermes_actors.coordination.tally import PlannerWeights
from hermes_actors.status.fold import StatusFold
from tests.management.coordination_scene import ORDERS, T0_MS, Followed

PAGES = "shop.pages$search"


class Planning:
    """A planner that would move all of a subscription to a boot."""

    def __init__(self):
        self.on_propose = lambda: None
        self.may_end = trio.Event()
        self.may_end.set()

    def weights(self, state):
        return PlannerWeights(dict.fromkeys(state.subscriptions, 10.0))

    async def propose(self, state):
        self.on_propose()
        await self.may_end.wait()
        wanted = Assignment(ORDERS, (Target("b2", (0, 1)),), "weight 10 → node node-b")
        capacities = {member.boot: member.cores for member in state.members.values()}
        return Proposal((wanted,), self.weights(state), capacities, unplaced=1)


@pytest.fixture
def here():
    here = Followed()
    here.say(Join("b1", "node-a", 2.0), Join("b2", "node-b", 2.0), TermClaim("b1", 1))
    here.plan(ORDERS, ("b1", (0, 1)), reason="new: 1 owner")
    return here


@pytest.fixture
def there():
    return Followed()


@pytest.fixture
def planning():
    return Planning()


@pytest.fixture
def fold():
    return StatusFold()


@pytest.fixture
def tasks_max(request):
    return getattr(request, "param", 1_000)


@pytest.fixture
async def balancer(api, here, there, planning, fold, tasks_max):
    """Management of dc1, which follows dc2 too; both subscriptions are there."""
    consumers = replace(api.config.consumers, balancer=BalancerConfig(tasks_per_node_max=tasks_max))
    api.administered_with(
        config=replace(api.config, consumers=consumers),
        status=fold,
        coordinations={"dc2": there, "dc1": here},
        planning={"dc1": planning},
        weights=planning.weights,
    )
    await api.with_topic()
    await api.with_subscription()
    await api.with_topic("shop.pages")
    await api.with_subscription("search", "shop.pages")
    return api


async def status(api, query=""):
    answer = await api.get(f"/balancer{query}")
    assert answer.status_code == 200, answer.text
    return {each["datacenter"]: each for each in answer.json()["datacenters"]}


async def test_status_shows_leader_members_owners_and_what_nobody_runs(balancer):
    shown = await status(balancer)
    assert list(shown) == ["dc1", "dc2"]
    one = shown["dc1"]
    assert (one["isKnown"], one["term"], one["planOffset"]) == (True, 1, 3)
    assert one["leader"] == {"node": "node-a", "boot": "b1", "leaseAgeMs": 300}
    assert one["lastRecordAt"] == (T0_MS + 300) / 1_000
    first, second = one["members"]
    assert (first["node"], first["tasks"], first["isLeader"], first["weight"]) == (
        "node-a", 1, True, 10.0,
    )  # fmt: skip
    assert (second["node"], second["tasks"], second["leaseLeftMs"]) == ("node-b", 0, 2_800)
    assert one["skew"]["maxToMean"] == 2.0
    assert one["skew"]["maxToIdeal"] == 1.0
    (orders,) = one["subscriptions"]
    (owner,) = orders["owners"]
    assert (orders["subscription"], owner["node"], owner["partitions"], owner["share"]) == (
        ORDERS, "node-a", [0, 1], 1.0,
    )  # fmt: skip
    assert one["unassigned"] == [
        {"subscription": PAGES, "reason": "the leader has not planned it yet"}
    ]
    two = shown["dc2"]
    assert "leader" not in two
    assert {each["reason"] for each in two["unassigned"]} == {
        "no node with the role consumers takes part"
    }


async def test_status_can_be_narrowed_down(balancer, here):
    here.plan(PAGES, ("b2", (0,)), reason="new: 1 owner")
    one = (await status(balancer, "?node=node-b"))["dc1"]
    assert [each["node"] for each in one["members"]] == ["node-b"]
    assert [each["subscription"] for each in one["subscriptions"]] == [PAGES]
    one = (await status(balancer, "?subscription=shop.orders"))["dc1"]
    assert [each["subscription"] for each in one["subscriptions"]] == [ORDERS]
    one = (await status(balancer, f"?subscription={ORDERS}"))["dc1"]
    assert [each["subscription"] for each in one["subscriptions"]] == [ORDERS]
    assert len(one["members"]) == 2


@pytest.mark.parametrize("query", ["?node=node-x", "?subscription=shop.none", "?node=node"])
async def test_what_is_nowhere_is_not_found(balancer, query):
    answer = await balancer.get(f"/balancer{query}")
    assert answer.status_code == 404
    if "node" in query:
        assert "dc1: node-a, node-b" in balancer.message(answer)


async def test_a_log_that_is_away_is_said_and_what_was_read_is_shown(balancer, here):
    here.trouble = "the log is unavailable"
    one = (await status(balancer))["dc1"]
    assert one["isKnown"] is False
    assert "the log is unavailable" in one["reason"]
    assert len(one["members"]) == 2


async def test_a_drained_node_is_shown_until_it_is_empty(balancer, here):
    answer = await balancer.put("/balancer/drains/dc1/node-a", {"reason": "new disks"})
    assert answer.status_code == 201
    one = (await status(balancer, "?node=node-a"))["dc1"]
    (drained,) = one["drained"]
    assert (drained["node"], drained["tasks"], drained["targets"], drained["isMember"]) == (
        "node-a", 1, 1, True,
    )  # fmt: skip
    assert (drained["by"], drained["reason"]) == ("[anonymous user]", "new disks")
    assert one["members"][0]["isDraining"]
    here.say(Leave("b1"))
    (drained,) = (await status(balancer))["dc1"]["drained"]
    assert (drained["tasks"], drained["isMember"]) == (0, False)


async def test_members_can_be_drained_before_they_have_reported_any_status(balancer):
    answer = await balancer.put("/balancer/drains/dc1/node-c", {})
    assert answer.status_code == 400
    assert "node-a, node-b" in balancer.message(answer)


async def test_a_plan_is_shown_and_changes_nothing(balancer, here):
    before = here.state.snapshot()
    shown = (await balancer.get("/balancer/plan")).json()
    assert here.state.snapshot() == before
    assert shown["datacenter"] == "dc1"
    plan = shown["plan"]
    (change,) = plan["changes"]
    assert (change["subscription"], change["reason"]) == (ORDERS, "weight 10 → node node-b")
    assert [each["node"] for each in change["before"]] == ["node-a"]
    assert [each["node"] for each in change["after"]] == ["node-b"]
    assert [(each["tasksBefore"], each["tasksAfter"]) for each in plan["nodes"]] == [(1, 0), (0, 1)]
    assert (plan["moves"], plan["unplaced"], plan["base"]) == (1, 1, 3)


async def test_a_plan_that_was_overtaken_is_not_shown(balancer, here, planning):
    planning.on_propose = lambda: here.plan(PAGES, ("b2", (0,)), reason="new")
    answer = await balancer.get("/balancer/plan")
    assert answer.status_code == 503
    assert "ask again" in balancer.message(answer)


async def test_one_plan_is_made_at_a_time(balancer, planning):
    planning.may_end = trio.Event()
    answers = []

    async def ask():
        answers.append((await balancer.get("/balancer/plan")).status_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await ask()
        planning.may_end.set()
    assert answers == [503, 200]
    await ask()
    assert answers[-1] == 200


async def test_a_plan_is_refused_where_none_can_be_made(balancer, here):
    for query, status_code, word in (
        ("?dc=dc2", 400, "management node of dc2"),
        ("?dc=dc9", 400, "dc1, dc2"),
    ):
        answer = await balancer.get(f"/balancer/plan{query}")
        assert answer.status_code == status_code
        assert word in balancer.message(answer)
    here.trouble = "the log is unavailable"
    answer = await balancer.get("/balancer/plan")
    assert answer.status_code == 503
    assert "the log is unavailable" in balancer.message(answer)
    here.trouble = ""
    here.say(Leave("b1"), Leave("b2"))
    answer = await balancer.get("/balancer/plan")
    assert answer.status_code == 503
    assert "no consuming node" in balancer.message(answer)


async def explained(api, about=""):
    answer = await api.get("/balancer/explain", params={"about": about})
    assert answer.status_code == 200, answer.text
    return {each["datacenter"]: each for each in answer.json()["datacenters"]}


async def test_moves_and_departures_are_told_the_newest_first(balancer, here):
    here.plan(ORDERS, ("b2", (0, 1)), reason="weight 10 → node node-b")
    here.say(Leave("b2"))
    one = (await explained(balancer))["dc1"]
    assert [each["reason"] for each in one["moves"]] == ["weight 10 → node node-b", "new: 1 owner"]
    assert [each["before"] for each in one["moves"]] == [["node-a"], []]
    assert [(each["node"], each["cause"]) for each in one["departures"]] == [("node-b", "it left")]


async def test_a_subscription_is_explained_by_the_move_that_brought_it_where_it_is(balancer, here):
    body = {
        "topicName": "shop.orders",
        "constraints": {"consumersNumber": 1, "reason": "slow endpoint"},
    }
    await balancer.put("/workload-constraints/topic", body)
    here.plan(PAGES, ("b2", (0,)), reason="new: 1 owner")
    one = (await explained(balancer, ORDERS))["dc1"]
    assert one["why"] == [
        "node node-a has 2 partitions of it for 0 s: new: 1 owner",
        "the constraint of shop.orders asks for 1 node (slow endpoint)",
    ]
    assert [each["subscription"] for each in one["moves"]] == [ORDERS]
    assert (await explained(balancer, ORDERS))["dc2"]["why"][0].startswith(
        "nobody runs it: no node"
    )


async def test_an_owner_is_explained_by_what_gave_it_these_partitions(balancer, here):
    here.plan(ORDERS, ("b1", (0,)), ("b2", (1,)), reason="now 2 owners: the default")
    here.say(Release("b1", ORDERS, 3))
    here.plan(ORDERS, ("b1", (0,)), reason="now 1 owner: constraint")
    (why, *_) = (await explained(balancer, ORDERS))["dc1"]["why"]
    assert why == "node node-a has 1 partition of it for 0 s: now 2 owners: the default"


async def test_a_subscription_that_is_no_more_and_one_that_waits_are_explained(balancer, here):
    here.plan(ORDERS, ("b2", (0, 1)), reason="weight 10 → node node-b")
    await balancer.delete("/topics/shop.orders/subscriptions/billing")
    one = (await explained(balancer, ORDERS))["dc1"]
    assert one["why"] == [
        "it is no more: its nodes are about to release it",
        "node node-a has 2 partitions of it for 0 s: new: 1 owner; it is to release them",
        "node node-b is to have it and waits for node node-a to release partitions 0, 1",
    ]


async def test_status_tells_when_nodes_are_taken_to_be_restarted(balancer, here):
    assert "restartingForS" not in (await status(balancer))["dc1"]
    here.say(Leave("b2"))
    shown = await status(balancer)
    assert shown["dc1"]["restartingForS"] >= 0.0
    assert "restartingForS" not in shown["dc2"]


async def test_a_node_is_explained(balancer, here):
    await balancer.put("/balancer/drains/dc1/node-b", {"reason": "new disks"})
    one = (await explained(balancer, "node-a"))["dc1"]
    assert one["why"] == [
        "it takes part for 0 s with 2 cores: 1 task, weight 10, as the mean",
    ]
    (drained, *_) = (await explained(balancer, "node-b"))["dc1"]["why"]
    assert drained == "it is drained, by [anonymous user]: new disks"
    here.say(Leave("b2"))
    assert "it does not take part any more" in (await explained(balancer, "node-b"))["dc1"]["why"]


async def test_what_cannot_be_explained_is_not_found(balancer):
    for about in ("node-x", "shop.none$x"):
        answer = await balancer.get("/balancer/explain", params={"about": about})
        assert answer.status_code == 404
        assert about in balancer.message(answer)


async def test_a_node_that_follows_no_coordination_has_nothing_to_show(api):
    assert (await api.get("/balancer")).json() == {"datacenters": []}
    assert (await api.get("/balancer/explain")).json() == {"about": "", "datacenters": []}
    assert (await api.get("/balancer/plan")).status_code == 400


async def test_many_subscriptions_are_all_shown(balancer, here):
    names = [f"shop.t{at}$s" for at in range(120)]
    targets = (Target("b1", (0,)), Target("b2", (1,)))
    state = here.state
    here.say(
        Plan("b1", state.term, state.plan_offset, tuple(Assignment(n, targets) for n in names))
    )
    one = (await status(balancer))["dc1"]
    assert {each["subscription"] for each in one["subscriptions"]} == {ORDERS, *names}


NO_ROOM = (
    "no node has room: all 2 nodes have as many tasks as a node may have (1); start more nodes, or "
    "raise consumers.balancer.tasks_per_node_max"
)


@pytest.mark.parametrize("tasks_max", [1], indirect=True)
async def test_what_no_node_has_room_for_is_told_wherever_one_looks(balancer, here, fold):
    here.plan("shop.other$one", ("b2", (0, 1)), reason="new: 1 owner")
    fold.report("dc1", "", T0_MS, trio.current_time())
    one = (await status(balancer))["dc1"]
    assert one["unassigned"] == [{"subscription": PAGES, "reason": NO_ROOM}]
    why = (await balancer.get(f"/balancer/explain?about={PAGES.replace('$', '%24')}")).json()
    assert why["datacenters"][0]["why"] == [f"nobody runs it: {NO_ROOM}"]
    # The other has one owner where it would have two, and partitions for both.
    why = (await balancer.get(f"/balancer/explain?about={ORDERS.replace('$', '%24')}")).json()
    assert f"1 node more would have it: {NO_ROOM}" in why["datacenters"][0]["why"]
    why = (await balancer.get("/balancer/explain?about=node-b")).json()["datacenters"][0]["why"]
    assert any("as many tasks as a node may have" in each for each in why)
    path = "/topics/shop.pages/subscriptions/search"
    (found,) = (await balancer.get(f"{path}/why")).json()["datacenters"]
    nobody = f"dc1: nobody runs it: {NO_ROOM}"
    assert (found["isDelivering"], found["reason"]) == (False, nobody)
    problem = {"code": "LAGGING", "description": nobody}
    assert (await balancer.get(f"{path}/health")).json() == {
        "status": "UNHEALTHY", "problems": [problem],
    }  # fmt: skip
    (row,) = (await balancer.get("/status/subscriptions?unhealthy=true")).json()["subscriptions"]
    assert (row["name"], row["condition"], row["problems"]) == ("search", "STOPPED", [problem])
    assert (await balancer.get("/status/nodes")).json()["notices"] == [
        {"datacenter": "dc1", "text": f"nobody runs 1 subscription: {NO_ROOM}"}
    ]
    # A suspended one needs no node.
    await balancer.put(f"{path}/state", "SUSPENDED")
    assert (await balancer.get("/status/subscriptions?unhealthy=true")).json()[
        "subscriptions"
    ] == []


async def test_a_lead_that_was_given_up_is_told_for_ten_minutes(balancer, here):
    here.say(Resign("b1", 1, "planning failed 3 times"))
    (notice,) = (await balancer.get("/status/nodes")).json()["notices"]
    assert notice["text"] == (
        "node node-a has given up leading the balancer: planning failed 3 times; see its log"
    )
    explained = (await balancer.get("/balancer/explain?about=node-a")).json()["datacenters"][0]
    (resignation,) = explained["resignations"]
    assert (resignation["node"], resignation["term"]) == ("node-a", 1)
    here.state.apply(here.state.position, T0_MS + 700_000, None)
    assert (await balancer.get("/status/nodes")).json()["notices"] == []


async def test_that_drains_do_not_count_is_told(balancer):
    for node in ("node-a", "node-b"):
        answer = await balancer.put(f"/balancer/drains/dc1/{node}?force=true", {})
        assert answer.status_code == 201
    one = (await status(balancer))["dc1"]
    assert [each["isIgnored"] for each in one["drained"]] == [True, True]
    assert [each["isDraining"] for each in one["members"]] == [False, False]
    (notice,) = (await balancer.get("/status/nodes")).json()["notices"]
    assert notice["datacenter"] == "dc1"
    assert "node-a, node-b" in notice["text"]
    assert "does not count" in notice["text"]
    why = (await balancer.get("/balancer/explain?about=node-a")).json()["datacenters"][0]["why"]
    assert any("does not count now" in each for each in why)
    assert (await balancer.delete("/balancer/drains/dc1/node-b")).status_code == 200
    one = (await status(balancer))["dc1"]
    assert [each["isIgnored"] for each in one["drained"]] == [False]
    assert (await balancer.get("/status/nodes")).json()["notices"] == []
