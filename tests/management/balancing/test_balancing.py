"""What management says of the balancers: who runs what, why, and what a plan would change."""

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from hermes_actors.config.delivery import BalancerConfig
from hermes_actors.coordination.commands import Assignment, Join, Leave, Plan, Target, TermClaim
from hermes_actors.coordination.reasons import BALANCE, NEW, Reason
from hermes_actors.status.fold import StatusFold
from tests.management.coordination_scene import ORDERS, T0_MS, Followed

PAGES = "shop.pages$search"


NEW_OWNER = (Reason(NEW, {"owners": 1}),)
BALANCED = (Reason(BALANCE, {"weight": 10, "source": "node-a", "sink": "node-b"}),)


class Planning:
    """A planner that would move all of a subscription to a boot."""

    def __init__(self):
        self.on_propose = lambda: None
        self.may_end = trio.Event()
        self.may_end.set()

    async def propose(self):
        self.on_propose()
        await self.may_end.wait()
        return (Assignment(ORDERS, (Target("b2", (0, 1)),), BALANCED),)


@pytest.fixture
def here():
    here = Followed()
    here.say(Join("b1", "node-a", 2.0), Join("b2", "node-b", 2.0), TermClaim("b1", 1))
    here.plan(ORDERS, ("b1", (0, 1)), reasons=NEW_OWNER)
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
        propose_plan=planning.propose,
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
        "node-a", 1, True, 1.0,
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
    here.plan(PAGES, ("b2", (0,)), reasons=NEW_OWNER)
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
    assert (change["subscription"], change["reason"]) == (
        ORDERS, "weight 10 from node-a to node-b",
    )  # fmt: skip
    assert [each["node"] for each in change["before"]] == ["node-a"]
    assert [each["node"] for each in change["after"]] == ["node-b"]
    assert (plan["moves"], plan["base"]) == (1, 3)


async def test_a_plan_that_was_overtaken_is_not_shown(balancer, here, planning):
    planning.on_propose = lambda: here.plan(PAGES, ("b2", (0,)), reasons=NEW_OWNER)
    answer = await balancer.get("/balancer/plan")
    assert answer.status_code == 503
    assert "try again" in balancer.message(answer)


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
    for query, status_code, word in (("?dc=dc2", 400, "management node of dc2"),):
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
    here.plan(ORDERS, ("b2", (0, 1)), reasons=BALANCED)
    here.say(Leave("b2"))
    one = (await explained(balancer))["dc1"]
    assert [each["reason"] for each in one["moves"]] == [
        "weight 10 from node-a to node-b", "new, owners: 1",
    ]  # fmt: skip
    assert one["moves"][1]["reasons"] == [{"code": "new", "params": {"owners": 1}}]
    assert [each["before"] for each in one["moves"]] == [["node-a"], []]
    assert [(each["node"], each["isExpired"]) for each in one["departures"]] == [("node-b", False)]


async def test_a_subscription_is_explained_by_its_owners_and_moves(balancer, here):
    here.plan(PAGES, ("b2", (0,)), reasons=NEW_OWNER)
    here.plan(ORDERS, ("b2", (0, 1)), reasons=BALANCED)
    one = (await explained(balancer, ORDERS))["dc1"]
    assert [each["subscription"] for each in one["moves"]] == [ORDERS, ORDERS]
    (shown,) = one["subscriptions"]
    ((owner,), (waiting,)) = shown["owners"], shown["waiting"]
    assert (owner["node"], owner["isToRelease"]) == ("node-a", True)
    assert (waiting["node"], waiting["waitsFor"]) == ("node-b", ["node-a"])


async def test_a_node_is_explained_by_what_it_has_and_moves_also_when_it_is_gone(balancer, here):
    here.plan(PAGES, ("b2", (0,)), reasons=NEW_OWNER)
    one = (await explained(balancer, "node-b"))["dc1"]
    assert [each["node"] for each in one["members"]] == ["node-b"]
    assert [each["subscription"] for each in one["subscriptions"]] == [PAGES]
    assert [each["subscription"] for each in one["moves"]] == [PAGES]
    here.say(Leave("b2"))
    one = (await explained(balancer, "node-b"))["dc1"]
    assert (one["members"], len(one["departures"])) == ([], 1)


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
    "no node has room: nodes: 2, each with its maximum of tasks (1); start more nodes, or "
    "raise consumers.balancer.tasks_per_node_max"
)


@pytest.mark.parametrize("tasks_max", [1], indirect=True)
async def test_what_no_node_has_room_for_is_told_wherever_one_looks(balancer, here, fold):
    here.plan("shop.other$one", ("b2", (0, 1)), reasons=NEW_OWNER)
    fold.report("dc1", "", T0_MS, trio.current_time())
    one = (await status(balancer))["dc1"]
    assert one["unassigned"] == [{"subscription": PAGES, "reason": NO_ROOM}]
    path = "/topics/shop.pages/subscriptions/search"
    (found,) = (await balancer.get(f"{path}/why")).json()["datacenters"]
    nobody = f"dc1: no node runs it: {NO_ROOM}"
    assert (found["isDelivering"], found["reason"]) == (False, nobody)
    problem = {"code": "LAGGING", "description": nobody}
    assert (await balancer.get(f"{path}/health")).json() == {
        "status": "UNHEALTHY", "problems": [problem],
    }  # fmt: skip
    (row,) = (await balancer.get("/status/subscriptions?unhealthy=true")).json()["subscriptions"]
    assert (row["name"], row["condition"], row["problems"]) == ("search", "STOPPED", [problem])
    assert (await balancer.get("/status/nodes")).json()["notices"] == [
        {"datacenter": "dc1", "text": f"subscriptions that no node runs: 1: {NO_ROOM}"}
    ]
    # A suspended one needs no node.
    await balancer.put(f"{path}/state", "SUSPENDED")
    assert (await balancer.get("/status/subscriptions?unhealthy=true")).json()[
        "subscriptions"
    ] == []


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
    assert (await balancer.delete("/balancer/drains/dc1/node-b")).status_code == 200
    one = (await status(balancer))["dc1"]
    assert [each["isIgnored"] for each in one["drained"]] == [False]
    assert (await balancer.get("/status/nodes")).json()["notices"] == []
