"""`hermes balancer status --odd` and `explain --limit`: as little as there is to look at."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.cli.balancer.odd import newest

OWNER = {
    "node": "n1",
    "partitions": [0],
    "epoch": 1,
    "share": 1.0,
    "wantedShare": 1.0,
    "ownedForS": 60.0,
    "isToRelease": False,
}


def node(name, **fields):
    calm = {"node": name, "cores": 1.0, "tasks": 3, "targets": 3, "cpu": 0.3, "cpuAvailable": 1.0}
    return {**calm, "heardAgoMs": 400, "memberForS": 90.0, "isDraining": False, **fields}


def run_by(name, *owners, **fields):
    return {"subscription": name, "owners": list(owners), "waiting": [], **fields}


def dc(name="dc1", **fields):
    calm = {
        "datacenter": name,
        "isKnown": True,
        "leader": {"node": "n1", "leaseAgeMs": 400},
        "skew": {"nodes": 2, "highestNode": "n1", "maxToIdeal": 1.01},
        "members": [node("n1"), node("n2")],
        "subscriptions": [run_by("a.b$s", OWNER), run_by("a.b$t", OWNER)],
        "unassigned": [],
        "drained": [],
    }
    return {**calm, **fields}


@pytest.fixture
def odd(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")

    def ask(*datacenters):
        server.on("GET /balancer", (200, {"datacenters": list(datacenters)}))
        result = hermes("balancer", "status", "--odd")
        assert result.exit_code == 0, result.stderr
        return result.stdout.splitlines()

    return ask


def test_where_all_is_well_one_line_says_of_how_much(odd):
    assert odd(dc(), dc("dc2")) == [
        "all is as it should be: 2 datacentres, 4 nodes, 4 subscriptions that run"
    ]
    assert odd() == ["the node that was asked follows no datacentre's coordination"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"heardAgoMs": 2_000}, "not heard of for 2.0 s"),
        ({"targets": 5}, "has 3 tasks and is to have 5"),
        ({"cpuAvailable": 0.5}, "its machine leaves it 0.50 of 1 cores"),
        ({"cpu": 0.97}, "uses 0.97 of the 1.00 cores that it has"),
        ({"cpu": None}, "has not told what it uses"),
    ],
)
def test_a_node_is_shown_with_what_is_odd_of_it_and_the_others_are_not(odd, fields, said):
    assert odd(dc(members=[node("n1"), node("n2", **fields)]), dc("dc2")) == [f"dc1 n2: {said}"]


def test_a_node_that_has_just_joined_need_not_have_told_anything_yet(odd):
    fresh = node("n2", cpu=None, cpuAvailable=None, memberForS=5.0)
    assert odd(dc(members=[node("n1"), fresh]))[0].startswith("all is as it should be")


def test_two_processes_of_one_name_are_odd_both(odd):
    lines = odd(dc(members=[node("n1"), node("n2"), node("n2")]))
    assert lines == ["dc1 n2: two processes take part under this name"] * 2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"leader": None}, "dc1: without a leader"),
        ({"isKnown": False, "reason": "its log is away\x1b"}, "dc1: its log is away\\x1b"),
        (
            {"skew": {"highestNode": "n2", "maxToIdeal": 1.5}},
            "dc1: n2 carries 1.50 times the least possible",
        ),
        (
            {"unassigned": [{"subscription": "a.b$x", "reason": "no node"}]},
            "dc1 a.b$x: nobody runs it: no node",
        ),
        (
            {"drained": [{"node": "n2", "since": 1.0, "isMember": True, "tasks": 0}]},
            "dc1 n2: drained since 1970-01-01T00:00:01Z: empty",
        ),
    ],
)
def test_what_is_odd_of_a_datacentre_is_a_line(odd, fields, said):
    assert odd(dc(**fields), dc("dc2")) == [said]


@pytest.mark.parametrize(
    "changed",
    [
        {"owners": []},
        {"owners": [{**OWNER, "isToRelease": True}]},
        {"owners": [{**OWNER, "share": 0.2}]},
        {"waiting": [{"node": "n2", "partitions": [1], "waitsFor": "node n1"}]},
    ],
)
def test_a_subscription_on_its_way_is_shown_and_settled_ones_are_not(hermes, server, changed):
    moving = {**run_by("a.b$t", OWNER), **changed}
    found = dc(subscriptions=[run_by("a.b$s", OWNER), moving])
    server.on("GET /balancer", (200, {"datacenters": [found]}))
    shown = hermes("balancer", "status", "--odd", "--json")
    (left,) = json.loads(shown.stdout)["datacenters"]
    assert left["subscriptions"] == [moving]
    assert left["members"] == []
    if changed != {"owners": []}:
        assert "a.b$t" in hermes("balancer", "status", "--odd").stdout
    assert "a.b$s" not in hermes("balancer", "status", "--odd").stdout


def moved(at):
    return {"subscription": "a.b$s", "reason": f"at {at}", "term": 1, "movedAt": at}


def gone(at):
    return {"node": "n1", "leftAt": at, "cause": "it left"}


def test_the_newest_are_shown_whichever_datacentre_and_kind_they_are_of(
    hermes, server, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "160")
    found = {
        "about": "",
        "datacenters": [
            dc(moves=[moved(90.0), moved(50.0)], departures=[gone(70.0)]),
            dc("dc2", moves=[moved(80.0)], departures=[gone(60.0)]),
        ],
    }
    server.on("GET /balancer/explain", (200, found))
    lines = hermes("balancer", "explain", "--limit", "3").stdout.splitlines()
    assert [line.split()[0][-4:] for line in lines[3:-1]] == [":30Z", ":20Z", ":10Z"]
    assert lines[-1] == "2 older ones are not shown; without --limit all are"
    shown = json.loads(hermes("balancer", "explain", "--limit", "1", "--json").stdout)
    assert shown["datacenters"][0]["moves"] == [moved(90.0)]
    assert shown["datacenters"][0]["departures"] == []
    assert shown["datacenters"][1]["moves"] == []
    assert len(hermes("balancer", "explain", "--limit", "9").stdout.splitlines()) == 8
    assert json.loads(hermes("balancer", "explain", "--json").stdout) == found


TIMES = st.lists(st.integers(0, 5), max_size=5)


@given(first=TIMES, second=TIMES, left=TIMES, limit=st.integers(0, 20))
def test_as_many_as_asked_for_are_left_and_none_that_was_left_out_is_newer(
    first, second, left, limit
):
    there = [
        {"moves": [moved(at) for at in first], "departures": [gone(at) for at in left]},
        {"moves": [moved(at) for at in second]},
    ]

    def times(datacenters):
        moves = [each["movedAt"] for found in datacenters for each in found["moves"]]
        return sorted(moves + [each["leftAt"] for each in datacenters[0]["departures"]])

    kept, out = newest(there, limit)
    everything = times(there)
    assert times(kept) == everything[max(0, len(everything) - limit) :]
    assert out == len(everything) - len(times(kept))
