"""`hermes subscription health`: a word, the problems, and an exit code for scripts."""

import json

import pytest

PATH = "GET /topics/shop.orders/subscriptions/billing/health"
SICK = {
    "status": "UNHEALTHY",
    "problems": [
        {"code": "TIMING_OUT", "description": "5.0 of 10.0 attempts a second time out\x1b"},
        {"code": "LAGGING", "description": "dc2: nobody runs it: all nodes are full"},
    ],
}


@pytest.mark.parametrize(
    ("found", "code", "lines"),
    [
        ({"status": "HEALTHY", "problems": []}, 0, ["HEALTHY"]),
        (
            SICK,
            1,
            [
                "UNHEALTHY",
                "TIMING_OUT: 5.0 of 10.0 attempts a second time out\\x1b",
                "LAGGING: dc2: nobody runs it: all nodes are full",
            ],
        ),
        ({"status": "NO_DATA", "problems": []}, 2, ["NO_DATA"]),
        ({"status": "SOMETHING_NEW"}, 2, ["SOMETHING_NEW"]),
    ],
)
def test_the_exit_code_says_it_too(hermes, server, monkeypatch, found, code, lines):
    monkeypatch.setenv("COLUMNS", "200")
    server.on(PATH, (200, found))
    result = hermes("subscription", "health", "shop.orders", "billing")
    assert result.exit_code == code
    assert result.stdout.splitlines() == lines


def test_as_json_it_is_the_servers_own(hermes, server):
    server.on(PATH, (200, SICK))
    result = hermes("subscription", "health", "shop.orders", "billing", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == SICK


def test_who_gets_no_answer_cannot_tell(hermes, server):
    server.on(PATH, (503, {"message": "The metadata is not there yet", "code": "OTHER"}))
    result = hermes("subscription", "health", "shop.orders", "billing")
    assert result.exit_code == 2
    assert result.stdout == ""
