"""`hermes balancer`: tables for people, and nodes that are drained on purpose."""

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


def status_of(node, dc="dc1", tasks=2, **fields):
    drained = {"node": node, "since": 1.0, "by": "ann", "isMember": True, "targets": 0}
    entry = {**drained, "tasks": tasks, **fields}
    return {**DC1, "datacenter": dc, "members": [member(node)], "drained": [entry]}


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


def test_figures_are_written_short():
    assert numbers([7, 0, 1, 2, 3]) == "0-3, 7"
    assert (numbers([]), numbers(None), numbers([4, 5])) == ("", "", "4-5")
    assert [span(each) for each in (0.4, 59, 119, 600, 7_200, 200_000, None)] == [
        "0.4 s", "59 s", "119 s", "10 min", "2 h", "2 d", "?",
    ]  # fmt: skip
    assert (time_of(0), time_of("x"), time_of(10**30)) == ("?", "?", "9999-12-31T23:59:59Z")
