"""`hermes publish --batch`: many lines in a request, each with a fate of its own."""

import json

import pytest

from hermes_actors.runtime.clock import SystemClock


def answers(*lines):
    return 200, b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def stored(number):
    return {"status": 201, "id": f"id-{number}"}


def test_lines_go_in_one_request_and_each_id_is_printed(hermes, server):
    server.on("POST /topics/a.b/batch", answers(stored(1), stored(2), stored(3)))
    result = hermes("publish", "a.b", "--batch", "10", "--connections", "1", stdin="1\n2\n\n3\n")
    assert (result.exit_code, result.stdout) == (0, "id-1\nid-2\nid-3\n")
    (call,) = server.calls
    assert call.body == b"1\n2\n3\n"
    assert call.headers["content-type"] == "application/x-ndjson"


def test_keys_travel_with_their_messages(hermes, server):
    server.on("POST /topics/a.b/batch", answers(stored(1), stored(2)))
    lines = '{"c":"é"}\n{"c":null}\n'
    result = hermes(
        "publish", "a.b", "--batch", "10", "--key-field", "c", "--connections", "1", stdin=lines
    )
    assert result.exit_code == 0
    (call,) = server.calls
    assert call.headers["content-type"] == "application/vnd.hermes.messages+ndjson"
    assert [json.loads(line) for line in call.body.splitlines()] == [
        {"key": "é", "message": {"c": "é"}},
        {"message": {"c": None}},
    ]


def test_only_what_was_busy_or_unanswered_is_sent_again(hermes, server):
    busy = {"status": 503, "id": "x", "message": "later", "code": "OTHER"}
    refused = {"status": 400, "id": "y", "message": "no", "code": "VALIDATION_ERROR"}
    end = {"status": 503, "message": "shutting down", "code": "OTHER"}
    server.on(
        "POST /topics/a.b/batch",
        answers(stored(1), busy, refused, end),
        answers(stored(2), stored(4)),
    )
    result = hermes(
        "publish", "a.b", "--batch", "10", "--connections", "1", "-o", "json", stdin="1\n2\n3\n4\n"
    )
    assert result.exit_code == 1
    assert [call.body for call in server.calls] == [b"1\n2\n3\n4\n", b"2\n4\n"]
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["number"], each["status"], each["attempts"]) for each in told] == [
        (1, 201, 1),
        (3, 400, 1),
        (2, 201, 2),
        (4, 201, 2),
    ]
    assert "VALIDATION_ERROR: no" in told[1]["error"]


@pytest.mark.slow
def test_a_batch_waits_as_long_as_retry_after_asks(hermes, server):
    server.headers[429] = {"Retry-After": "1"}
    busy = {"message": "quota", "code": "THROUGHPUT_QUOTA_VIOLATION"}
    server.on("POST /topics/a.b/batch", (429, busy), answers(stored(1)))
    began_s = SystemClock().monotonic_s()
    assert hermes("publish", "a.b", "--batch", "10", stdin="1\n").exit_code == 0
    assert SystemClock().monotonic_s() - began_s >= 1


def test_messages_kept_on_the_nodes_disk_are_counted_apart(hermes, server):
    kept = {"status": 202, "id": "id-2"}
    server.on("POST /topics/a.b/batch", answers(stored(1), kept, kept))
    result = hermes(
        "publish", "a.b", "--batch", "9", "--connections", "1", "-o", "json", stdin="1\n2\n3\n"
    )
    assert result.exit_code == 0
    assert "accepted 3 (2 kept on the node's disk, sent later), not accepted 0" in result.stderr
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["isKept"] for each in told] == [False, True, True]
    assert {each["topic"] for each in told} == {"a.b"}
    assert all(each["sentMs"] > 1_700_000_000_000 for each in told)
