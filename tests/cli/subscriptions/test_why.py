"""`hermes subscription why` prints what management answers: a row and a line for each node."""

import pytest

PATH = "/topics/shop.orders/subscriptions/billing"
DETAILS = [{"code": "LAST_SUCCESS", "text": "last success noon"}, {"code": "X", "text": "so"}]


def node(name, state="IDLE", **more):
    shown = {"node": name, "state": state, "rate": 0.0, "lag": 0, "reason": "nothing to deliver"}
    return {**shown, "details": [], **more}


def in_dc(name, *nodes, **more):
    return {"datacenter": name, "isKnown": True, "nodes": list(nodes), **more}


@pytest.fixture
def why(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")

    def ask(*datacenters):
        found = {"state": "ACTIVE", "datacenters": list(datacenters)}
        server.on(f"GET {PATH}/why", (200, found))
        return hermes("subscription", "why", "shop.orders", "billing").stdout.splitlines()[2:]

    return ask


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_each_node_has_a_row_and_its_details_a_line_below(why):
    lines = why(
        in_dc("dc1", node("n1"), node("n2", "FAILING", lag=-1, reason="HTTP 503; slow")),
        in_dc("dc2", node("n3", rate=12.25, details=DETAILS)),
    )
    assert [cells(line) for line in lines[:3]] == [
        ["dc1", "n1", "IDLE", "0.0", "0", "nothing to deliver"],
        ["dc1", "n2", "FAILING", "0.0", "?", "HTTP 503; slow"],
        ["dc2", "n3", "IDLE", "12.2", "0", "nothing to deliver"],
    ]
    assert lines[3:] == ["dc2 n3: last success noon; so"]


def test_a_datacentre_of_which_no_node_tells_has_a_row_with_the_reason(why):
    lines = why(
        in_dc("dc1", reason="no node with the role consumers"),
        {"datacenter": "dc2", "isKnown": False, "reason": "away", "nodes": [node("n1", "UNKNOWN")]},
    )
    assert [cells(line) for line in lines] == [
        ["dc1", "no node with the role consumers"],
        ["dc2", "away"],
        ["dc2", "n1", "UNKNOWN", "0.0", "0", "nothing to deliver"],
    ]


def test_a_suspended_one_says_by_what_and_the_way_out(hermes, server):
    found = {"state": "SUSPENDED", "suspensionReason": "HTTP 410", "datacenters": []}
    server.on(f"GET {PATH}/why", (200, found))
    lines = hermes("subscription", "why", "shop.orders", "billing").stdout.splitlines()
    assert lines[1] == (
        "HTTP 410; to deliver again: 'hermes subscription activate shop.orders billing'"
    )


def test_in_a_pipe_details_are_one_line_and_on_a_terminal_they_break_between_words(
    hermes, server, monkeypatch
):
    long = [{"code": "X", "text": "word " * 40 + "end"}]
    body = {"state": "ACTIVE", "datacenters": [in_dc("dc1", node("n1", details=long))]}
    server.on(f"GET {PATH}/why", (200, body))
    monkeypatch.setenv("COLUMNS", "80")
    assert hermes("subscription", "why", "shop.orders", "billing").stdout.endswith("word end\n")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    lines = hermes("subscription", "why", "shop.orders", "billing").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("    ")
