"""`hermes trace`: a message's life as management tells it, and what its exit code says."""

import pytest

EVENTS = [
    {"event": "HEDGED", "timestamp": 1_000, "datacenter": "dc2", "node": "one", "via": "hedge"},
    {
        "event": "PUBLISHED",
        "timestamp": 1_021,
        "datacenter": "dc2",
        "node": "one",
        "partition": 3,
        "offset": 17,
    },
    {
        "event": "FAILED",
        "timestamp": 1_033,
        "datacenter": "dc2",
        "node": "two",
        "subscription": "billing",
        "partition": 3,
        "offset": 17,
        "attempt": 1,
        "status": 500,
        "reason": "HTTP 500\x1b[31m",
    },
    {"event": "DELIVERED", "timestamp": 1_250, "datacenter": "dc2", "subscription": "billing"},
]
ENDED = {
    "topicName": "shop.orders",
    "subscription": "billing",
    "epoch": 0,
    "event": "DELIVERED",
    "datacenter": "dc2",
}
GAP = {
    "datacenter": "dc1",
    "node": "one",
    "since": 0,
    "until": 1_000,
    "missingBatches": 2,
    "dropped": 7,
}


def answer(**fields):
    events = [{"topicName": "shop.orders", **each} for each in EVENTS]
    return {"messageId": "m1", "events": events, "ended": [ENDED], "gaps": [], **fields}


def test_each_event_has_a_line_with_its_time_after_the_first(hermes, server, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    server.on("GET /tracking/m1", (200, answer()))
    result = hermes("trace", "m1")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[2:5] for line in lines[1:5]] == [
        ["+0", "ms", "dc2"],
        ["+21", "ms", "dc2"],
        ["+33", "ms", "dc2"],
        ["+250", "ms", "dc2"],
    ]
    assert "shop.orders$billing 3/17" in lines[3]
    assert "attempt 1, status 500" in lines[3]
    assert "\x1b" not in result.stdout
    assert lines[5] == "shop.orders$billing: DELIVERED in dc2"


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"gaps": [GAP]}, 4, "2 batches lost, 7 events dropped"),
        ({"gaps": [GAP]}, 4, "from its start to 1970-01-01 00:00:01.000 are missing"),
        ({"troubles": ["dc2: the log does not answer"]}, 4, "dc2: the log does not answer"),
        ({"events": [], "ended": []}, 3, "hermes topic update TOPIC trackingEnabled=true"),
    ],
)
def test_the_exit_code_says_what_is_missing(hermes, server, fields, code, said):
    server.on("GET /tracking/m1", (200, answer(**fields)))
    result = hermes("trace", "m1")
    assert result.exit_code == code
    assert said in " ".join(result.stdout.split())


def test_attempts_that_are_too_many_to_show_are_counted_and_nothing_is_missing(hermes, server):
    server.on("GET /tracking/m1", (200, answer(leftOut=1_942)))
    result = hermes("trace", "m1")
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert "1942 events between the first and the last are not shown" in said


def test_an_id_of_odd_characters_is_one_part_of_the_path(hermes, server):
    server.on("GET /tracking/a%2Fb%20%3F%E2%82%AC", (200, answer()))
    result = hermes("trace", "a/b ?€", "-o", "json")
    assert result.exit_code == 0
    assert '"messageId"' in result.stdout
