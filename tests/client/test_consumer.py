"""Clients of a pull subscription on a real node: unacknowledged messages come again."""

import json

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client import (
    AckRefused,
    CallFailed,
    HermesError,
    NotAccepted,
    NotNow,
    PullConsumer,
    Retries,
    sync,
)
from hermes_client.pulling import Holdings
from hermes_local.ports import free_ports
from tests.client.conftest import scripted

QUICK = Retries(attempts_max=2, backoff_s=0.001, backoff_max_s=0.001)


@pytest.fixture
def worker(broker, monkeypatch):
    """Publishes 0 to n-1; returns the arguments of their consumer. Deadlines are a second."""
    monkeypatch.setattr("hermes_client.consumer.LAST_WAIT_S", 0.1)
    topic = broker.topic()
    policy = {"ackDeadlineSeconds": 1, "messageBackoff": 10}
    broker.subscription(topic, "worker", subscriptionPolicy=policy)

    def publish(count):
        with sync.Publisher(broker.publish) as publisher:
            publisher.publish_many(topic, range(count))
        return broker.management, topic, "worker"

    return publish


@pytest.mark.slow
def test_a_function_that_outlasts_the_deadline_keeps_its_message(worker, run):
    arguments = worker(1)

    async def main():
        async with PullConsumer(*arguments) as first, PullConsumer(*arguments) as second:
            message = await anext(first)
            # The deadline passes twice, while another client asks.
            with anyio.move_on_after(2):
                await anext(second)
                raise AssertionError("both have it")
            await message.ack()

    run(main)


def test_what_fails_comes_again_and_what_succeeds_does_not(worker, run, caplog):
    arguments = worker(20)
    seen = []

    async def take(message):
        seen.append((message.json(), message.attempt))
        await anyio.lowlevel.checkpoint()
        if message.attempt == 1 and message.json() == 3:
            raise NotNow(retry_after_s=0.01)
        if message.attempt == 1 and message.json() == 4:
            raise RuntimeError("broken")
        if message.json() == 5:
            await message.ack()

    async def main():
        async with PullConsumer(*arguments, prefetch=7, follow=False) as consumer:
            await consumer.run(take, concurrency=4)
        async with PullConsumer(*arguments, follow=False) as consumer:
            return [message async for message in consumer]

    assert run(main) == []
    assert sorted(seen) == sorted([*((n, 1) for n in range(20)), (3, 2), (4, 2)])
    assert "RuntimeError: broken" in caplog.text


def test_who_leaves_gives_back_what_is_not_done(worker, run):
    arguments = worker(5)

    async def main():
        with pytest.raises(RuntimeError, match="out of memory"):
            async with PullConsumer(*arguments) as consumer:
                async for message in consumer:
                    await message.ack()
                    raise RuntimeError("out of memory")
        async with PullConsumer(*arguments) as consumer:
            left = [await anext(consumer) for _ in range(4)]
            for message in left:
                await message.ack()
            return left

    left = run(main)
    assert len({each.json() for each in left}) == 4
    assert {each.attempt for each in left} == {2}


def test_who_is_cancelled_gives_back_too(worker, run):
    arguments = worker(1)

    async def main():
        with anyio.CancelScope() as scope:
            async with PullConsumer(*arguments) as consumer:
                await anext(consumer)
                async with anyio.create_task_group() as others:
                    others.start_soon(anext, consumer)
                    await anyio.lowlevel.checkpoint()
                    scope.cancel()
        assert scope.cancelled_caught
        async with PullConsumer(*arguments) as consumer:
            message = await anext(consumer)
            await message.ack()
            assert message.attempt == 2

    run(main)


@pytest.mark.slow
def test_an_ack_that_comes_too_late_says_so(worker, run):
    arguments = worker(1)

    async def main():
        async with (
            PullConsumer(*arguments, hold_max_s=0) as slow,
            PullConsumer(*arguments) as other,
        ):
            message = await anext(slow)
            again = await anext(other)
            assert (again.id, again.attempt) == (message.id, 2)
            with pytest.raises(AckRefused, match="NOT_OUT: it was acknowledged") as refused:
                await message.ack()
            assert refused.value.codes == {message.ack_id: "NOT_OUT"}
            await again.ack()

    run(main)


def test_without_async_a_loop_does_the_same(worker):
    arguments, attempts = worker(3), []
    with sync.PullConsumer(*arguments, follow=False) as consumer:
        for message in consumer:
            attempts.append(message.attempt)
            if message.attempt == 1 and message.json() == 1:
                message.nack(delay_s=0)
            else:
                message.ack()
                with pytest.raises(AckRefused):
                    message.ack()
    assert sorted(attempts) == [1, 1, 1, 2]


def test_a_pulled_message_is_as_it_was_published(broker, run):
    topic = broker.topic()
    broker.subscription(topic, "worker")
    bodies = [b'{"price": 1.10,  "n": 12345678901234567890.5}', b"no json\xff", b"", b'"\xc3\xbc"']
    event = {"ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/s", "ce-type": "made"}

    async def main():
        with sync.Publisher(broker.publish) as publisher:
            ids = {publisher.publish(topic, body, key="k", headers=event).id for body in bodies}
        async with PullConsumer(broker.management, topic, "worker", follow=False) as consumer:
            return ids, [message async for message in consumer]

    ids, messages = run(main)
    assert sorted(each.body for each in messages) == sorted(bodies)
    assert {each.id for each in messages} == ids
    for each in messages:
        assert (each.key, each.topic, each.subscription) == ("k", topic, "worker")
        assert each.event.items() >= {"id": "e1", "type": "made"}.items()
        assert each.published_at.tzinfo is not None


def test_a_consumer_goes_on_when_the_broker_is_back_and_says_that_it_waits(run, caplog):
    message = {"messageId": "m1", "publishTime": "", "json": 7}
    item = {"ackId": "1.1.1.a.1", "deliveryAttempt": 1, "ackDeadline": "", "message": message}
    found = json.dumps({"receivedMessages": [item]}).encode()
    # The first acknowledgement has its effect, but its answer is lost.
    before = (
        b'{"accepted": 0, "refused": [{"ackId": "1.1.1.a.1", "code": "NOT_OUT", "message": ""}]}'
    )
    unavailable = (503, {}, b"")
    pulled = [(0, {}, b""), *[unavailable] * 4, (200, {}, found)]
    acked = [(0, {}, b""), (200, {}, before)]
    # A kept connection that the server closes is one more attempt.
    retries = Retries(attempts_max=5, backoff_s=0.001, backoff_max_s=0.001)

    async def main(url):
        async with PullConsumer(url, "shop.orders", "worker", retries=retries) as consumer:
            message = await anext(consumer)
            await message.ack()
            return message

    nothing = (200, {}, b'{"receivedMessages": []}')
    with scripted(*pulled, *[nothing] * 100, acks=acked) as (url, _):
        received = run(main, url)
    assert (received.json(), received.published_at) == (7, None)
    assert "messages cannot be pulled: the broker answered 503; trying again" in caplog.text


def test_what_can_never_be_pulled_ends_at_once_with_the_reason(broker, worker, run):
    management, topic, _ = worker(0)
    dead = f"http://127.0.0.1:{free_ports(1)[0]}"

    async def pull(url, name, **options):
        async with PullConsumer(url, topic, name, retries=QUICK, **options) as consumer:
            await consumer.run(anyio.sleep)

    with pytest.raises(CallFailed, match="none"):
        run(pull, management, "none")
    with pytest.raises(NotAccepted, match="no answer"):
        run(lambda: pull(dead, "worker", follow=False))


def test_a_client_that_settles_nothing_is_stopped(worker, run, monkeypatch):
    arguments = worker(4)
    monkeypatch.setattr("hermes_client.consumer.HELD_MAX", 2)

    async def main():
        async with PullConsumer(*arguments, prefetch=2) as consumer:
            with pytest.raises(HermesError, match="2 messages are neither acknowledged nor given"):
                async for _ in consumer:
                    pass

    run(main)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 4)), max_size=40))
def test_a_held_message_is_extended_before_each_deadline_and_no_longer_than_allowed(events):
    held, deadlines, ends, now_s = Holdings(), {}, {}, 0.0
    for name, is_settled, pause_s in events:
        if is_settled:
            held.drop([name])
            deadlines.pop(name, None)
        elif name not in deadlines:
            held.add([name], now_s, 60.0)
            deadlines[name], ends[name] = now_s + 1.0, now_s + 60.0
        # The client looks each 0.3 s.
        for _ in range(int(pause_s / 0.3) + 1):
            now_s += 0.3
            for each in held.due(now_s):
                assert now_s < ends[each]
                deadlines[each] = now_s + 30.0
            assert all(now_s < at_s or ends[each] <= now_s for each, at_s in deadlines.items())
    assert held.keys() == deadlines.keys()
