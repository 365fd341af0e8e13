"""`hermes subscription list`: the sick one is found without knowing its topic."""

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


def test_what_fails_is_coloured_on_a_terminal(hermes, server, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    server.on(
        "GET /status/subscriptions", (200, {"subscriptions": [ROW, {**ROW, "condition": "IDLE"}]})
    )
    lines = hermes("subscription", "list").stdout.splitlines()
    assert any("\x1b[1;31mFAILING\x1b[0m" in line for line in lines)
    assert not any("\x1b" in line for line in lines if "IDLE" in line)
