"""`hermes subscription test`: request and answer for people, and an exit code for scripts."""

import base64
import json

import pytest

PATH = "/topics/shop.orders/subscriptions/billing/test"
NAMES = ("shop.orders", "billing")
REQUEST = {
    "method": "POST",
    "url": "http://billing.test:80/in",
    "headers": [["Host", "billing.test"], ["Authorization", "******"], ["Hermes-Test", "true"]],
    "body": '{"hermesTest":true}',
    "bodyBytes": 19,
}
ANSWER = {"status": 200, "headers": [["Content-Type", "text/plain"]], "body": "ok", "bodyBytes": 2}
TAKEN = {
    "datacenter": "dc1",
    "node": "n1",
    "isDelivered": True,
    "outcome": "HTTP 200",
    "tookMs": 12,
    "pushes": [{"request": REQUEST, "outcome": "HTTP 200", "tookMs": 11, "answer": ANSWER}],
}


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_request_and_answer_are_shown(hermes, server):
    server.on(f"POST {PATH}", (200, TAKEN))
    result = hermes("subscription", "test", *NAMES)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "delivered from dc1 n1 in 12 ms: HTTP 200",
        "",
        "> POST http://billing.test:80/in",
        "> Host: billing.test",
        "> Authorization: ******",
        "> Hermes-Test: true",
        ">",
        '> {"hermesTest":true}',
        "",
        "< HTTP 200 after 11 ms",
        "< Content-Type: text/plain",
        "<",
        "< ok",
    ]
    assert server.calls[0].json() == {}


def test_the_message_may_be_given(hermes, server, tmp_path):
    server.on(f"POST {PATH}", (200, TAKEN))
    (tmp_path / "order.json").write_bytes(b'{"id":2}')
    hermes("subscription", "test", *NAMES, "-m", '{"id":1}')
    hermes("subscription", "test", *NAMES, "--file", str(tmp_path / "order.json"))
    sent = [base64.b64decode(call.json()["message"]) for call in server.calls]
    assert sent == [b'{"id":1}', b'{"id":2}']


def test_a_failure_is_told_with_exit_code_1(hermes, server):
    push = {"request": REQUEST, "outcome": "connect: refused", "tookMs": 3}
    failed = {**TAKEN, "isDelivered": False, "outcome": "connect: refused", "pushes": [push]}
    server.on(f"POST {PATH}", (200, failed), (200, failed))
    result = hermes("subscription", "test", *NAMES)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "not delivered from dc1 n1 in 12 ms: connect: refused"
    assert lines[-1] == "< no answer after 3 ms: connect: refused"
    assert "the test was not delivered: connect: refused" in result.stderr
    result = hermes("subscription", "test", *NAMES, "-o", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, failed)


def test_what_an_endpoint_answers_cannot_steer_the_terminal_and_is_said_to_be_cut(hermes, server):
    answer = {"status": 200, "headers": [], "body": "a\x1b[2J\nb", "bodyBytes": 5_000}
    push = {**TAKEN["pushes"][0], "answer": answer}
    server.on(f"POST {PATH}", (200, {**TAKEN, "pushes": [push]}))
    result = hermes("subscription", "test", *NAMES)
    assert "\x1b" not in result.stdout
    assert result.stdout.splitlines()[-3:] == [
        "< a\\x1b[2J",
        "< b",
        "< ... of 5000 bytes",
    ]
