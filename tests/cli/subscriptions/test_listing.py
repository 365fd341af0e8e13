"""`hermes subscription list`: the sick one is found without knowing its topic."""

import json

import pytest

ROW = {
    "topicName": "shop.orders",
    "name": "billing",
    "condition": "FAILING",
    "rateLevel": "SLOW",
    "rate": 0.25,
    "lag": 812,
    "deadLetters": 3,
    "openDeadLetters": 2,
    "problems": [{"code": "MALFUNCTIONING", "description": "dc1 n1: the endpoint takes nothing"}],
    "lastFailure": "HTTP 503",
    "lastFailureAt": 1_769_860_000.5,
}
FOUND = {
    "subscriptions": [ROW],
    "datacenters": [{"datacenter": "dc2", "isKnown": False, "reason": "it is away\x1b"}],
}


def test_without_a_topic_all_subscriptions_have_a_row(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    server.on("GET /status/subscriptions", (200, FOUND))
    lines = hermes("subscription", "list").stdout.splitlines()
    assert lines[1].split()[:7] == [
        "shop.orders",
        "billing",
        "FAILING",
        "SLOW",
        "0.2",
        "812",
        "2",
    ]
    assert lines[1].endswith("  dc1 n1: the endpoint takes nothing")
    assert lines[2] == "dc2: it is away\\x1b"


def test_unhealthy_and_sorted_ones_are_the_servers_choice(hermes, server):
    query = "topicName=shop.orders&sort=lag&unhealthy=true"
    server.on(f"GET /status/subscriptions?{query}", (200, {"subscriptions": []}))
    result = hermes("subscription", "list", "shop.orders", "--unhealthy", "--sort", "lag")
    assert result.stdout == "no subscription has a problem\n"


def test_as_json_it_is_the_servers_own(hermes, server):
    server.on("GET /status/subscriptions", (200, FOUND))
    assert json.loads(hermes("subscription", "list", "--json").stdout) == FOUND


def test_a_topics_names_are_listed_as_ever(hermes, server):
    server.on("GET /topics/shop.orders/subscriptions?tracked=true", (200, ["billing"]))
    result = hermes("subscription", "list", "shop.orders", "--tracked")
    assert result.stdout.split() == ["Subscription", "billing"]


@pytest.mark.parametrize("options", [["--tracked"], ["shop.orders", "--tracked", "--unhealthy"]])
def test_tracked_ones_are_names_of_one_topic(hermes, server, options):
    result = hermes("subscription", "list", *options)
    assert result.exit_code == 2
    assert server.made() == []


def test_80_columns_take_a_row_for_each_and_its_reasons_below(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    long = {**ROW, "topicName": "payments.settlement-requested", "name": "ledger-projection"}
    server.on("GET /status/subscriptions", (200, {"subscriptions": [long] * 16}))
    lines = hermes("subscription", "list").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 1 + 16 * 3
    assert sum("ledger-projection" in line for line in lines) == 16


def test_what_fails_is_coloured_on_a_terminal(hermes, server, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    server.on(
        "GET /status/subscriptions", (200, {"subscriptions": [ROW, {**ROW, "condition": "IDLE"}]})
    )
    lines = hermes("subscription", "list").stdout.splitlines()
    assert any("\x1b[1;31mFAILING\x1b[0m" in line for line in lines)
    assert not any("\x1b" in line for line in lines if "IDLE" in line)


def test_what_not_all_datacentres_tell_is_at_least_that_or_not_known(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    part = {**ROW, "condition": "UNKNOWN", "lag": -1, "openDeadLetters": -1, "isKnown": False}
    silent = {**part, "rate": 0.0}
    server.on("GET /status/subscriptions", (200, {**FOUND, "subscriptions": [part, silent]}))
    lines = hermes("subscription", "list").stdout.splitlines()
    assert [line.split()[2:7] for line in lines[1:3]] == [
        ["UNKNOWN", "SLOW", "0.2+", "?", "?"],
        ["UNKNOWN", "SLOW", "?", "?", "?"],
    ]
