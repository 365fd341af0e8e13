"""`hermes balancer`: tables for people, and nodes that are drained on purpose."""

import json

import pytest
import trio

from hermes_actors.cli.balancer import operating
from hermes_actors.cli.balancer.tables import numbers
from hermes_actors.cli.command_line.failures import CommandFailed
from hermes_actors.cli.output.render import span, time_of

ORDERS = "shop.orders$billing"
SKEW = {
    "nodes": 2,
    "highestNode": "node-a",
    "maxToMean": 1.2,
    "maxToIdeal": 1.2,
}


def member(node, **fields):
    return {
        "node": node,
        "boot": f"boot-{node}",
        "version": "1",
        "cores": 4.0,
        "isLeader": False,
        "isDraining": False,
        "tasks": 3,
        "targets": 3,
        "partitions": 6,
        "weight": 12.0,
        "cpu": 0.5,
        "cpuAvailable": 3.75,
        "heardAgoMs": 400,
        "leaseLeftMs": 2_600,
        "memberForS": 90.0,
        **fields,
    }


def owner(node, partitions, **fields):
    return {
        "node": node,
        "boot": f"boot-{node}",
        "partitions": partitions,
        "epoch": 17,
        "share": 0.5,
        "wantedShare": 0.5,
        "ownedForS": 300.0,
        "isToRelease": False,
        **fields,
    }


DC1 = {
    "datacenter": "dc1",
    "isKnown": True,
    "term": 3,
    "leader": {"node": "node-a", "boot": "boot-node-a", "leaseAgeMs": 400},
    "skew": SKEW,
    "members": [member("node-a", isLeader=True), member("node-b", targets=4, cpu=None)],
    "subscriptions": [
        {
            "subscription": ORDERS,
            "owners": [
                owner("node-a", [0, 1, 2, 5]),
                owner("node-b", [3], share=0.25, isToRelease=True),
            ],
            "waiting": [
                {
                    "node": "node-c",
                    "partitions": [3],
                    "waitsFor": ["node-b"],
                    "waitingForS": 0.4,
                }
            ],
        }
    ],
    "unassigned": [{"subscription": "shop.pages$x", "reason": "the leader has not planned it yet"}],
    "drained": [
        {
            "node": "node-b",
            "since": 1_700_000_000.0,
            "by": "ann",
            "reason": "disks\x1b",
            "isMember": True,
            "tasks": 2,
            "targets": 0,
        }
    ],
}
DC2 = {
    "datacenter": "dc2",
    "isKnown": False,
    "reason": "the coordination log is not followed: it is away",
    "term": 0,
    "members": [],
    "drained": [],
    "subscriptions": [],
    "unassigned": [],
}


def test_status_shows_leader_members_owners_and_what_is_wrong(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    server.on("GET /balancer", (200, {"datacenters": [DC1, DC2]}))
    result = hermes("balancer", "status")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "dc1: term 3, led by node-a, heard of 0.4 s ago; "
        "node-a carries most: 1.20 times the mean, 1.20 times the least possible"
    )
    assert lines[1] == "dc2: the coordination log is not followed: it is away"
    assert lines[2] == "dc2: term 0, without a leader"
    cells = [line.split("  ") for line in lines]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in cells]
    assert rows[4] == [
        "dc1", "node-a", "LEADER", "4", "3", "12", "0.50 of 3.75", "0.4 s", "boot-node-a",
    ]  # fmt: skip
    assert rows[5][:5] == ["dc1", "node-b", "MEMBER", "4", "3 → 4"]
    assert rows[7][0:3] == ["DC", "Subscription", "Node"]
    assert rows[8][1:] == [ORDERS, "node-a", "0-2, 5", "50 %", "17", "5 min"]
    assert rows[9][2:] == ["node-b", "3", "25 % → 50 %", "17", "5 min", "is to release them"]
    assert rows[10][2:] == ["node-c", "3", "-", "-", "0.4 s", "waits for node-b"]
    assert lines[11:] == [
        "dc1 shop.pages$x: nobody runs it: the leader has not planned it yet",
        "dc1 node-b: drained by ann since 2023-11-14T22:13:20Z (disks\\x1b): 2 tasks left",
    ]


def test_status_is_narrowed_down_by_the_server_and_json_is_its_answer(hermes, server):
    query = "/balancer?subscription=shop.orders%24billing&node=node-a"
    server.on(f"GET {query}", (200, {"datacenters": [DC1]}))
    result = hermes("balancer", "status", "--subscription", ORDERS, "--node", "node-a", "--json")
    assert json.loads(result.stdout) == {"datacenters": [DC1]}


def test_a_node_that_follows_nothing_is_said_to_be_one(hermes, server):
    server.on("GET /balancer", (200, {"datacenters": []}))
    result = hermes("balancer", "status")
    assert result.stdout == "the node that was asked follows no datacentre's coordination\n"


def part(node, *partitions):
    return {"node": node, "partitions": list(partitions), "share": 0.5}


def test_a_plan_is_shown_with_its_reasons_and_what_it_comes_to(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    change = {
        "subscription": ORDERS,
        "reason": "weight 12 from node-a to node-b",
        "moves": 1,
        "before": [part("node-a", 0, 1, 2)],
        "after": [part("node-b", 0, 1, 2)],
    }
    found = {"datacenter": "dc1", "plan": {"changes": [change], "moves": 1}}
    server.on("GET /balancer/plan?dc=dc1", (200, found))
    result = hermes("balancer", "plan", "--dc", "dc1")
    assert result.exit_code == 0, result.stderr
    _, row, end = result.stdout.splitlines()
    assert row.split()[:4] == [ORDERS, "node-a[0-2]", "node-b[0-2]", "weight"]
    assert end == "dc1: 1 task would move; nothing was changed"
    server.on("GET /balancer/plan", (200, {"datacenter": "dc1", "plan": {"changes": []}}))
    assert hermes("balancer", "plan").stdout.startswith("nothing would change\n")


def test_explain_shows_where_it_is_and_lists_the_moves_newest_first(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    move = {"subscription": ORDERS, "reason": "new, owners: 1", "term": 3, "offset": 7}
    found = {
        **DC1,
        "moves": [
            {**move, "movedAt": 1_700_000_060.0, "before": ["node-a"], "after": ["node-b"]},
            {**move, "movedAt": 1_700_000_000.0, "before": [], "after": ["node-a"]},
        ],
        "departures": [{"node": "node-c", "leftAt": 1_700_000_030.0, "isExpired": True}],
    }
    server.on(
        "GET /balancer/explain?about=shop.orders%24billing",
        (200, {"about": ORDERS, "datacenters": [found]}),
    )
    result = hermes("balancer", "explain", "shop.orders", "billing")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert any("waits for node-b" in line for line in lines)
    assert [line.split()[0] for line in lines[-3:]] == [
        "2023-11-14T22:14:20Z", "2023-11-14T22:13:50Z", "2023-11-14T22:13:20Z",
    ]  # fmt: skip
    assert "node node-c is gone: its lease ran out" in lines[-2]
    assert hermes("balancer", "explain", ORDERS).stdout == result.stdout
    newest = hermes("balancer", "explain", ORDERS, "--limit", "1").stdout.splitlines()
    assert newest[-1] == lines[-3]


def status_of(node, dc="dc1", tasks=2, **fields):
    drained = {"node": node, "since": 1.0, "by": "ann", "isMember": True, "targets": 0}
    entry = {**drained, "tasks": tasks, **fields}
    return {**DC1, "datacenter": dc, "members": [member(node)], "drained": [entry]}


def test_a_node_is_drained_where_it_takes_part(hermes, server):
    server.on("GET /balancer", (200, {"datacenters": [DC1, DC2]}))
    server.on("PUT /balancer/drains/dc1/node-b", (201, b""))
    result = hermes("balancer", "drain", "node-b", "--reason", "disks")
    assert result.stdout == (
        "dc1 node-b: its work moves away; --undo lets it own something again\n"
    )
    assert server.calls[-1].json() == {"reason": "disks"}


def test_waiting_shows_progress_until_the_node_is_empty(hermes, server, monkeypatch):
    monkeypatch.setattr(operating, "POLL_S", 0.0)
    server.on("PUT /balancer/drains/dc2/node-a", (200, b""))
    left = [status_of("node-a", "dc2", tasks) for tasks in (12, 12, 1, 0)]
    server.on("GET /balancer?node=node-a", *[(200, {"datacenters": [DC1, x]}) for x in left])
    result = hermes("balancer", "drain", "node-a", "--dc", "dc2", "--wait")
    assert result.exit_code == 0, result.stderr
    assert [line.rpartition(": ")[2] for line in result.stdout.splitlines()[1:]] == [
        "12 tasks left",
        "1 task left",
        "empty",
    ]


async def test_waiting_ends_in_time(autojump_clock, capsys):
    def looked():
        return {"node": "a", "since": 1.0, "isMember": True, "tasks": 1, "targets": 1}

    began_s = trio.current_time()
    with pytest.raises(CommandFailed, match="has 1 task after 60 s"):
        await operating.wait_empty(looked, "dc1 a", 60.0)
    assert trio.current_time() - began_s == pytest.approx(60.0, abs=operating.POLL_S)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("dc1 a: drained since 1970-01-01T00:00:01Z: 1 task left; for 1 of them ")


def test_a_draining_that_somebody_undoes_is_not_waited_for(hermes, server):
    server.on("PUT /balancer/drains/dc1/node-a", (200, b""))
    server.on("GET /balancer?node=node-a", (200, {"datacenters": [{**DC1, "drained": []}]}))
    result = hermes("balancer", "drain", "node-a", "--dc", "dc1", "--wait")
    assert result.exit_code == 1
    assert "somebody has undone it" in result.stderr


@pytest.mark.parametrize(
    ("was_drained", "said"), [(True, "may own something again"), (False, "was not drained")]
)
def test_a_draining_is_undone(hermes, server, was_drained, said):
    server.on("GET /balancer", (200, {"datacenters": [DC1]}))
    server.on("DELETE /balancer/drains/dc1/node-b", (200, {"wasDrained": was_drained}))
    assert hermes("balancer", "drain", "node-b", "--undo").stdout == f"dc1 node-b: {said}\n"


def test_which_of_two_nodes_is_meant_has_to_be_said(hermes, server):
    both = [status_of("node-a"), status_of("node-a", "dc2")]
    server.on("GET /balancer", (200, {"datacenters": both}))
    result = hermes("balancer", "drain", "node-a")
    assert result.exit_code == 2
    assert "say by --dc where node-a is; nodes are dc1: node-a; dc2: node-a" in result.stderr
    result = hermes("balancer", "drain", "node-x")
    assert result.exit_code == 2
    assert "say by --dc where node-x is" in result.stderr


def test_the_server_refuses_a_node_that_nobody_knows_unless_it_is_forced(hermes, server):
    refusal = {"message": "No consuming node 'x' is known; force it", "code": "VALIDATION_ERROR"}
    server.on("GET /balancer", (200, {"datacenters": [DC1]}))
    server.on("PUT /balancer/drains/dc1/x", (400, refusal))
    server.on("PUT /balancer/drains/dc1/x?force=true", (201, b""))
    result = hermes("balancer", "drain", "x")
    assert result.exit_code == 1
    assert result.stderr.endswith("force it: --force\n")
    assert hermes("balancer", "drain", "x", "--force").exit_code == 0


def test_undo_goes_with_nothing_else(hermes, server):
    assert hermes("balancer", "drain", "node-a", "--undo", "--wait").exit_code == 2
    assert server.made() == []


def test_constraints_are_listed(hermes, server):
    found = {
        "topicConstraints": {"shop.orders": {"consumersNumber": 4}},
        "subscriptionConstraints": {ORDERS: {"consumersNumber": 1, "reason": "slow endpoint"}},
    }
    server.on("GET /workload-constraints", (200, found))
    lines = hermes("balancer", "constraints").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["shop.orders", "4"],
        [ORDERS, "1", "slow", "endpoint"],
    ]
    assert json.loads(hermes("balancer", "constraints", "-o", "json").stdout) == found


def test_a_subscription_is_constrained_and_not_any_more(hermes, server):
    server.on("PUT /workload-constraints/subscription", (201, b""))
    server.on("GET /topics/shop.orders/subscriptions/billing", (200, {}))
    server.on("DELETE /workload-constraints/subscription/shop.orders/billing", (200, b""))
    name = ("balancer", "constrain", "shop.orders", "billing")
    result = hermes(*name, "--nodes", "1", "--reason", "one connection")
    assert (result.stdout, result.stderr) == (f"{ORDERS}: is to be consumed by 1 node\n", "")
    assert server.calls[0].json() == {
        "subscriptionName": ORDERS,
        "constraints": {"consumersNumber": 1, "reason": "one connection"},
    }
    assert hermes(*name, "--remove").stdout == f"{ORDERS}: is not constrained\n"


def test_a_constraint_of_what_is_not_there_is_set_with_a_warning(hermes, server):
    missing = {"message": "no such topic", "code": "TOPIC_NOT_EXISTS"}
    server.on("PUT /workload-constraints/topic", (201, b""))
    server.on("DELETE /workload-constraints/topic/shop.orders", (200, b""))
    server.on("GET /topics/shop.orders", (404, missing))
    result = hermes("balancer", "constrain", "shop.orders", "--nodes", "4")
    assert result.exit_code == 0
    assert result.stderr == "hermes: warning: shop.orders does not exist yet\n"
    assert hermes("balancer", "constrain", "shop.orders", "--remove").exit_code == 0


@pytest.mark.parametrize("options", [(), ("--nodes", "0"), ("--nodes", "2", "--remove")])
def test_a_constraint_is_set_or_removed(hermes, server, options):
    assert hermes("balancer", "constrain", "shop.orders", *options).exit_code == 2
    assert server.made() == []


@pytest.mark.parametrize("verb", ["status", "plan", "explain", "drain", "constraints", "constrain"])
def test_each_commands_help_has_examples(hermes, verb):
    result = hermes("balancer", verb, "--help")
    assert f"hermes balancer {verb}" in result.stdout.partition("Examples:")[2]


def test_figures_are_written_short():
    assert numbers([7, 0, 1, 2, 3]) == "0-3, 7"
    assert (numbers([]), numbers(None), numbers([4, 5])) == ("", "", "4-5")
    assert [span(each) for each in (0.4, 59, 119, 600, 7_200, 200_000, None)] == [
        "0.4 s", "59 s", "119 s", "10 min", "2 h", "2 d", "?",
    ]  # fmt: skip
    assert (time_of(0), time_of("x"), time_of(10**30)) == ("?", "?", "9999-12-31T23:59:59Z")
