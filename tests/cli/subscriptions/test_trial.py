"""`hermes subscription test`: request and answer for people, and an exit code for scripts."""

import base64

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


def test_the_message_may_be_given(hermes, server, tmp_path):
    server.on(f"POST {PATH}", (200, TAKEN))
    (tmp_path / "order.json").write_bytes(b'{"id":2}')
    hermes("subscription", "test", *NAMES, "-m", '{"id":1}')
    hermes("subscription", "test", *NAMES, "--file", str(tmp_path / "order.json"))
    sent = [base64.b64decode(call.json()["message"]) for call in server.calls]
    assert sent == [b'{"id":1}', b'{"id":2}']
