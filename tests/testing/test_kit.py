"""The test kit with a real broker."""

from functools import partial

import httpx
import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config

from hermes_actors.testing.kit import open_kit

pytestmark = pytest.mark.live


def test_the_broker_of_the_next_test_is_empty_and_names_can_be_used_again(hermes_broker):
    for _ in range(2):
        with open_kit(hermes_broker) as kit:
            assert httpx.get(f"{kit.management_url}/groups").json() == []
            kit.topic("shop.orders", schema={"type": "object", "required": ["id"]})
            for name in ("billing", "stock"):
                kit.subscribe("shop.orders", name, subscriptionPolicy={"attemptsMax": 1})
            kit.fail_next("shop.orders")
            kit.publish("shop.orders", {"id": 1}, headers={"Idempotency-Key": "order-1"})
            assert len(kit.wait_dead_letters("shop.orders")) == 1
            assert len(kit.wait_settled("shop.orders")) == 1


async def test_a_service_in_the_tests_own_loop_gets_what_is_passed_on(hermes):
    taken = []

    async def billing(scope, receive, send):
        assert scope["type"] == "http"
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event["body"]
            if not event["more_body"]:
                break
        taken.append((scope["path"], dict(scope["headers"])[b"hermes-message-id"], body))
        # Its first answer is a refusal that asks for a pause.
        status, retry_after = (503, [(b"retry-after", b"1")]) if len(taken) == 1 else (204, [])
        await send({"type": "http.response.start", "status": status, "headers": retry_after})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    config = Config()
    config.bind = ["127.0.0.1:0"]
    async with trio.open_nursery() as nursery:
        serve = partial(hypercorn.trio.serve, billing, config, mode="asgi")
        (url,) = await nursery.start(serve)
        hermes.topic("shop.orders")
        hermes.subscribe("shop.orders", "billing", to=f"{url}/orders")
        sent = hermes.publish("shop.orders", {"id": 1})
        (delivery,) = await hermes.delivered("shop.orders")
        nursery.cancel_scope.cancel()
    assert taken == [("/orders", sent.encode(), b'{"id":1}')] * 2
    assert [each.status for each in hermes.deliveries("shop.orders", "billing")] == [503, 204]
    assert (delivery.json, delivery.headers["hermes-message-id"]) == ({"id": 1}, sent)


def test_settled_covers_filtered_messages_dead_letters_and_what_a_puller_acknowledges(hermes):
    hermes.topic("shop.orders")
    hermes.subscribe("shop.orders", "worker", deliveryType="PULL")
    paid = {"type": "jsonpath", "path": "$.state", "matcher": "paid"}
    hermes.subscribe("shop.orders", "billing", filters=[paid])
    hermes.publish("shop.orders", {"state": "new"})
    with pytest.raises(AssertionError, match="1 of 2 subscriptions without lag"):
        hermes.wait_settled("shop.orders", timeout_s=0.5)
    worker = f"{hermes.management_url}/topics/shop.orders/subscriptions/worker"
    (taken,) = httpx.post(f"{worker}/pull", json={}).json()["receivedMessages"]
    httpx.post(f"{worker}/ack", json={"ackIds": [taken["ackId"]]})
    assert hermes.wait_settled("shop.orders") == []
    hermes.fail_next("shop.orders", status=400)
    hermes.publish("shop.orders", b'{"state": "paid"}')
    (letter,) = hermes.wait_dead_letters("shop.orders")
    assert (letter["reason"], letter["message"]) == ("client-error", '{"state": "paid"}')


def test_a_failure_says_what_arrived_and_why_the_rest_did_not(hermes):
    with pytest.raises(AssertionError, match=r"shop\.orders.*TOPIC_NOT_EXISTS"):
        hermes.wait_delivered("shop.orders", timeout_s=0.1)
    hermes.topic("shop.orders", schema={"type": "object", "required": ["id"]})
    with pytest.raises(AssertionError, match=r"400 .*id is missing"):
        hermes.publish("shop.orders", {})
    with pytest.raises(AssertionError, match="subscriptionPolicy"):
        hermes.subscribe("shop.orders", subscriptionPolicy={"rate": "fast"})
    hermes.subscribe("shop.orders", "billing")
    hermes.fail_next("shop.orders", status=422)
    hermes.publish("shop.orders", {"id": 1})
    hermes.wait_dead_letters("shop.orders")
    hermes.subscribe("shop.orders", "stock", to="http://127.0.0.1:1/")
    hermes.publish("shop.orders", {"id": 2})
    with pytest.raises(AssertionError) as failed:
        hermes.wait_delivered("shop.orders", 3, timeout_s=4)
    text = str(failed.value)
    assert text.startswith("shop.orders: ")
    for part in (
        "1 of 3 deliveries within 4 s",
        "messages stored: 2",
        'answered 422: {"id":1}',
        'answered 200: {"id":2}',
        'answered 502: {"id":2} (',
        "subscription billing: ",
        "subscription stock: ",
        "client-error, HTTP 422",
    ):
        assert part in text, text
