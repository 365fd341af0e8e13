"""`hermes top` shows nodes, topics and subscriptions, the worst first."""

import json

import pytest

from hermes_actors.cli.status import rows_that_fit

READY = {
    "datacenter": "dc1",
    "node": "n1",
    "state": "READY",
    "publishedRate": 10.0,
    "deliveredRate": 5.0,
    "loopLagMs": 3.2,
    "spooledMessages": 4,
    "elsewhereRate": 0.5,
}
GONE = {**READY, "node": "n2", "state": "GONE", "reasons": ["not heard of for 12 s"]}
TOPIC = {
    "topicName": "shop.orders",
    "isKnown": True,
    "rate": 10.04,
    "rejectedRate": 1.0,
    "failedRate": 0.0,
    "deliveryRate": 20.0,
    "subscriptions": 2,
    "unhealthySubscriptions": 1,
    "lag": 13,
    "inflight": 8,
}
ROW = {
    "topicName": "shop.orders",
    "name": "billing",
    "condition": "FAILING",
    "rate": 0.0,
    "lag": -1,
    "inflight": 3,
    "waitingRetries": 30,
    "reasons": [{"code": "FAILS", "text": "it is away"}, {"code": "X", "text": "since noon"}],
}
UP = {"datacenter": "dc1", "isKnown": True}


def answer(server, query):
    nodes = {"datacenters": [UP], "nodes": [READY, GONE], "notices": []}
    server.on("GET /status/nodes", (200, nodes))
    server.on(f"GET /status/topics?{query}", (200, {"topics": [TOPIC]}))
    server.on(f"GET /status/subscriptions?{query}", (200, {"subscriptions": [ROW]}))


def test_once_all_three_tables_are_shown_and_what_stands_out_below(hermes, server):
    answer(server, "sort=state&limit=20")
    result = hermes("top", "--once")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[0] == "DC Node State Publ./s Deliv./s Ill Spool Away/s Loop ms"
    # What a node that is gone told last is not shown as if it were so.
    assert lines[1] == "dc1 n2 GONE - - - - - -"
    assert lines[2] == "dc1 n1 READY 10.0 5.0 0 4 0.5 3"
    assert lines[5] == "shop.orders 10.0 1.0 0.0 20.0 2 1 13 8"
    assert lines[8] == "shop.orders billing FAILING 0.0 ? 3 30 it is away"
    assert result.stdout.splitlines()[9] == "dc1 n2: not heard of for 12 s"


def test_the_server_sorts_and_cuts_off_as_asked(hermes, server):
    answer(server, "sort=lag&limit=1")
    result = hermes("top", "--once", "--sort", "lag", "--limit", "1")
    assert "and 1 more node" in result.stdout
    assert "GET /status/topics?sort=lag&limit=1" in server.made()


def test_programs_get_one_object_and_the_end(hermes, server):
    answer(server, "sort=state")
    found = json.loads(hermes("top", "--json").stdout)
    assert [each["node"] for each in found["nodes"]] == ["n2", "n1"]
    assert (found["topics"], found["subscriptions"]) == ([TOPIC], [ROW])


def test_nodes_are_shown_also_while_topics_are_not_known(hermes, server):
    answer(server, "sort=state&limit=20")
    away = {"message": "The metadata is not there yet: Kafka of dc1 is away", "code": "OTHER"}
    server.on("GET /status/topics?sort=state&limit=20", (503, away))
    result = hermes("top", "--once")
    assert result.exit_code == 1
    assert "Kafka of dc1 is away" in result.stderr
    assert "dc1 n1 READY 10.0" in " ".join(result.stdout.split())
    assert "no topics" not in result.stdout
    assert result.stdout.splitlines()[-1] == "dc1 n2: not heard of for 12 s"
    server.on("GET /status/topics?sort=state", (503, away))
    result = hermes("top", "--json")
    assert (result.exit_code, len(json.loads(result.stdout)["nodes"])) == (1, 2)


def test_an_older_management_node_is_told_of(hermes, server):
    server.on("GET /status/nodes", (200, {"nodes": []}))
    result = hermes("top", "--once")
    assert result.exit_code == 1
    assert "refused GET /status/topics" in result.stderr


@pytest.mark.parametrize(("lines", "rows"), [(24, 3), (50, 12), (2, 3)])
def test_three_tables_fit_on_the_screen(lines, rows):
    assert rows_that_fit(True, lines) == rows
    assert rows_that_fit(False, lines) == 20
