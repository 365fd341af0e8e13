"""`hermes subscription filter-test`: what is asked of the server, and how its answer is shown."""

import base64
import json

import pytest

TRY = "POST /filters/shop.orders"
COUNTRY = {"type": "jsonpath", "path": "$.country", "matcher": "PL"}
MESSAGE = '{"country":"PL"}'


def body(call):
    asked = call.json()
    return {**asked, "message": base64.b64decode(asked["message"]).decode()}


def test_a_message_is_tried_on_a_subscriptions_filters(hermes, server):
    server.on("GET /topics/shop.orders/subscriptions/billing", (200, {"filters": [COUNTRY]}))
    server.on(TRY, (200, {"status": "MATCHED"}))
    result = hermes("subscription", "filter-test", "shop.orders", "billing", "-m", MESSAGE)
    assert (result.exit_code, result.stdout) == (0, "MATCHED\n")
    assert body(server.calls[1]) == {"filters": [COUNTRY], "message": MESSAGE, "headers": {}}


def test_a_message_is_tried_on_filters_that_are_given(hermes, server, tmp_path):
    server.on(TRY, (200, {"status": "ERROR", "errorMessage": "filters[0]: too slow"}))
    file = tmp_path / "order.json"
    file.write_text(MESSAGE)
    options = ["--filter", json.dumps(COUNTRY), "--file", str(file), "-H", "Channel: web"]
    result = hermes("subscription", "filter-test", "shop.orders", *options)
    assert (result.exit_code, result.stdout) == (0, "ERROR: filters[0]: too slow\n")
    assert body(server.calls[0])["headers"] == {"Channel": "web"}


def test_a_list_of_filters_is_taken_as_a_subscription_has_it(hermes, server):
    server.on(TRY, (200, {"status": "MATCHED"}))
    options = ["--filter", json.dumps([COUNTRY, COUNTRY]), "--filter", json.dumps(COUNTRY)]
    hermes("subscription", "filter-test", "shop.orders", "-m", MESSAGE, *options)
    assert body(server.calls[0])["filters"] == [COUNTRY] * 3


def test_as_json_it_is_the_servers_own(hermes, server):
    server.on(TRY, (200, b'{"status":  "NOT_MATCHED"}'))
    options = ["--filter", json.dumps(COUNTRY), "-m", MESSAGE, "-o", "json"]
    result = hermes("subscription", "filter-test", "shop.orders", *options)
    assert result.stdout == '{"status":  "NOT_MATCHED"}\n'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-m", "x"], "either SUBSCRIPTION"),
        (["billing", "-m", "x", "--filter", "{}"], "either SUBSCRIPTION"),
        (["billing"], "either --message"),
        (["billing", "-m", "x", "--file", "y"], "either --message"),
        (["billing", "--file", "/nowhere"], "--file /nowhere: cannot be read"),
        (["--filter", "{", "-m", "x"], "not JSON"),
        (["billing", "-m", "x", "-H", "web"], "expected NAME:VALUE"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_sent(hermes, server, arguments, words):
    result = hermes("subscription", "filter-test", "shop.orders", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert server.calls == []
