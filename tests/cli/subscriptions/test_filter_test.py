"""`hermes subscription filter-test`: what is asked of the server, and how its answer is shown."""

import base64
import json

TRY = "POST /filters/shop.orders"
COUNTRY = {"type": "jsonpath", "path": "$.country", "matcher": "PL"}
MESSAGE = '{"country":"PL"}'


def body(call):
    asked = call.json()
    return {**asked, "message": base64.b64decode(asked["message"]).decode()}


def test_a_message_is_tried_on_filters_that_are_given(hermes, server, tmp_path):
    server.on(TRY, (200, {"status": "ERROR", "errorMessage": "filters[0]: too slow"}))
    file = tmp_path / "order.json"
    file.write_text(MESSAGE)
    options = ["--filter", json.dumps(COUNTRY), "--file", str(file), "-H", "Channel: web"]
    result = hermes("subscription", "filter-test", "shop.orders", *options)
    assert (result.exit_code, result.stdout) == (0, "ERROR: filters[0]: too slow\n")
    assert body(server.calls[0])["headers"] == {"Channel": "web"}
