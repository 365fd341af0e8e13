"""The receiver answers the broker as the delivery rules want it."""

from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import httpx
import pytest
from hypercorn.config import Config

from hermes_actors.consumer.recipients.signing import Signer
from hermes_actors.model.signing_secrets import hmac_secret, parse_secret
from hermes_actors.runtime.clock import SystemClock
from hermes_client import NotNow, Publisher, Receiver, Refuse
from hermes_local.ports import free_ports

SECRET = hmac_secret(b"s" * 32)


def receiver(**options):
    """A receiver of two topics, and what it has received."""
    received, app = [], Receiver(**{"secret": None, **options})

    @app.on("shop.orders")
    async def take(message):
        await anyio.lowlevel.checkpoint()
        match message.json():
            case "never":
                raise Refuse("the customer is unknown")
            case "later":
                raise NotNow("no database", retry_after_s=6.2)
            case "broken":
                raise RuntimeError("s3cret")
        received.append(message)

    app.on("shop.visits")(take)
    return app, received


def push(app, body=b'"ok"', path="/in/shop.orders", method="POST", **headers):
    fields = {"Hermes-Message-Id": "m1"} | {k.replace("_", "-"): v for k, v in headers.items()}

    async def main():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://me.test") as client:
            return await client.request(method, path, content=body, headers=fields)

    return anyio.run(main)


def test_the_end_of_the_function_becomes_the_answer(caplog):
    app, received = receiver()
    assert (push(app).status_code, received[0].id) == (200, "m1")
    refused = push(app, b'"never"')
    assert (refused.status_code, refused.text) == (422, "the customer is unknown")
    later = push(app, b'"later"')
    assert (later.status_code, later.headers["retry-after"]) == (503, "7")
    broken = push(app, b'"broken"')
    assert broken.status_code == 500
    assert "s3cret" not in broken.text
    assert "RuntimeError: s3cret" in caplog.text


def test_what_is_no_delivery_is_refused_before_the_function():
    app, received = receiver(body_bytes_max=10)
    assert push(app, b"x" * 11).status_code == 413
    assert push(app, b"[1", Hermes_Batch_Id="b1").status_code == 400
    got = push(app, method="GET")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert received == []


def test_the_topic_is_the_headers_or_else_the_paths_and_an_unknown_one_is_retried():
    app, received = receiver()
    assert push(app, path="/", Hermes_Topic_Name="shop.visits").status_code == 200
    unknown = push(app, path="/shop.order")
    assert unknown.status_code == 503
    assert "no function for topic 'shop.order'; there is shop.orders, shop.visits" in unknown.text
    only = Receiver(secret=None)
    only.on("shop.orders")(app)
    with pytest.raises(ValueError, match="already"):
        only.on("shop.orders")
    assert len(received) == 1


def test_a_receiver_of_one_topic_takes_every_path():
    app, received = Receiver(secret=None), []

    @app.on("shop.orders")
    async def take(message):
        received.append(message)

    assert push(app, path="/").status_code == 200
    assert push(app, b"[1,2]", path="/", Hermes_Batch_Id="b1").status_code == 200
    assert [each.body for each in received] == [b'"ok"', b"1", b"2"]
    assert push(app, Hermes_Topic_Name="shop.visits").status_code == 503


def test_only_signed_requests_are_taken_and_under_the_signed_id(caplog):
    app, received = receiver(secret=[hmac_secret(b"n" * 32), SECRET])
    lines = (
        Signer([parse_secret(SECRET)]).sign("m1", SystemClock().now_ms() // 1_000, b'"ok"').decode()
    )
    signed = dict(line.split(": ") for line in lines.splitlines())
    assert push(app, **signed).status_code == 200
    assert push(app).status_code == 401
    assert push(app, b'"no"', **signed).status_code == 401
    other = push(app, **signed, Hermes_Message_Id="m2")
    assert (other.status_code, len(received)) == (401, 1)
    logged = [each.getMessage() for each in caplog.records if each.name.startswith("hermes_client")]
    for cause, line in zip(("no signature", "wrong", "message's id"), logged, strict=True):
        assert cause in line


@asynccontextmanager
async def served(app, backend):
    """Hypercorn serving the app, as its command would; yields the URL."""
    (port,) = free_ports(1)
    config, stop = Config(), anyio.Event()
    config.bind = [f"127.0.0.1:{port}"]
    config.errorlog = None
    if backend == "trio":
        from hypercorn.trio import serve
    else:
        from hypercorn.asyncio import serve
    async with anyio.create_task_group() as group:
        group.start_soon(partial(serve, app, config, shutdown_trigger=stop.wait))
        while True:
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
                break
            except OSError:
                await anyio.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
        stop.set()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_broker_delivers_to_a_receiver_on_a_server_alone_and_in_batches(broker, backend):
    topic = broker.topic()

    async def main():
        app, received = Receiver(secret=SECRET), []
        done = anyio.Event()

        @app.on(topic)
        async def take(message):
            received.append(message)
            if message.json()["n"] == 3 and message.attempt == 1:
                raise NotNow(retry_after_s=0)
            retried = {each.subscription for each in received if each.attempt == 2}
            if retried == {"single", "batch"} and message.json()["n"] == 3:
                done.set()

        async with served(app, backend) as url:
            signing = {"signing": {"secrets": [SECRET]}, "subscriptionIdentityHeadersEnabled": True}
            broker.subscription(topic, "single", f"{url}/", cloudEventsEnabled=True, **signing)
            batch = {"batchSize": 4, "batchTime": 500, "messageBackoff": 10}
            broker.subscription(
                *(topic, "batch", f"{url}/"),
                deliveryType="BATCH",
                subscriptionPolicy=batch,
                **signing,
            )
            async with Publisher(broker.publish) as publisher:
                await publisher.publish_many(topic, [{"n": n} for n in range(4)])
            with anyio.fail_after(30):
                await done.wait()
        return received

    received = anyio.run(main, backend=backend)
    assert {each.topic for each in received} == {topic}
    for name in ("single", "batch"):
        own = [each for each in received if each.subscription == name]
        assert {each.json()["n"] for each in own} == {0, 1, 2, 3}
        assert len({each.id for each in own}) == 4
        assert all(each.event.get("type") == topic for each in own if name == "single")
