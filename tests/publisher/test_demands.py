"""What a publish may ask for, through the whole edge: keys of its own, events, headers, quotas."""

import gzip
import json

import pytest
import trio

from hermes_actors.config import (
    PropagationConfig,
    ThroughputConfig,
)
from hermes_actors.model.keyed_id import keyed_id
from hermes_actors.model.message import from_record

EVENT = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "shop.order"}
CE_HEADERS = {f"ce_{name}": value for name, value in EVENT.items()}


def stored(world) -> list[dict[str, bytes]]:
    return [dict(record.headers) for record in world.stored]


async def test_a_repeat_is_answered_again_and_not_stored_again(world, autojump_clock) -> None:
    first = await world.publish(body=b"1", idempotency_key='"order-17"')
    again = await world.publish(body=b"1", idempotency_key="order-17")
    assert (first.status_code, again.status_code) == (201, 201)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["hermes-message-id"] == first.headers["hermes-message-id"]
    assert first.headers["hermes-message-id"] == keyed_id("shop.orders", "order-17")
    assert [headers["id"].decode() for headers in stored(world)] == [
        keyed_id("shop.orders", "order-17")
    ]
    assert world.frontend.drain.in_flight == 0
    assert "hermes_frontend_idempotency_replays_total 1" in world.text()
    assert "hermes_frontend_idempotency_keys 1" in world.text()


async def test_another_payload_under_the_same_key_is_422(world, autojump_clock) -> None:
    await world.publish(body=b"1", idempotency_key="k")
    for body, more in ((b"2", {}), (b"1", {"partition_key": "p"})):
        answer = await world.publish(body=body, idempotency_key="k", **more)
        assert (answer.status_code, answer.json()["code"]) == (422, "VALIDATION_ERROR")
        assert "Idempotency-Key" in answer.json()["message"]
    assert len(world.stored) == 1


async def test_concurrent_uses_of_a_key_are_409_and_one_is_stored(world, autojump_clock) -> None:
    world.log.faults.delay_s = (0.03, 0.03)
    answers = []

    async def publish() -> None:
        answers.append(await world.publish(body=b"1", idempotency_key="k"))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(publish)
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert refused.json()["code"] == "OTHER"
    assert "under way" in refused.json()["message"]
    assert refused.headers["retry-after"] == "1"
    assert len(world.stored) == 1


async def test_a_failure_is_forgotten_and_the_retry_is_stored_under_the_same_id(
    world, autojump_clock
) -> None:
    world.log.faults.silent = True
    failed = await world.publish(body=b"1", idempotency_key="k")
    assert failed.status_code == 503
    world.log.faults.silent = False
    await trio.sleep(6)
    again = await world.publish(body=b"1", idempotency_key="k")
    assert again.status_code == 201
    assert "idempotency-replayed" not in again.headers
    assert again.headers["hermes-message-id"] == failed.headers["hermes-message-id"]


@pytest.fixture
async def replaying(open_world, autojump_clock):
    """A frontend that takes replays."""
    async with open_world(replay=True) as world:
        await world.add_topic("shop.orders")
        yield world


async def test_a_replayed_message_is_stored_once_under_its_own_id(replaying) -> None:
    named = {"hermes_replay_id": "%C5%BC%2F1"}
    first = await replaying.publish(body=b"1", **named)
    again = await replaying.publish(body=b"1", **named)
    other = await replaying.publish(body=b"2", **named)
    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.headers["idempotency-replayed"] == "true"
    assert other.json()["message"].startswith("Hermes-Replay-Id was used for another message")
    assert [headers["id"].decode() for headers in stored(replaying)] == ["ż/1"]


async def test_a_replay_for_one_subscription_says_so_in_the_record(replaying) -> None:
    answer = await replaying.publish(hermes_replay_id="x", hermes_replay_for="billing")
    assert answer.status_code == 201
    (record,) = replaying.stored
    assert dict(record.headers)["only-for"] == b"billing"
    message = from_record(record)
    assert (message.id, message.only_for) == ("x", "billing")


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ({"hermes_replay_id": ""}, "Hermes-Replay-Id is not an id"),
        ({"hermes_replay_id": "%00"}, "Hermes-Replay-Id is not an id"),
        ({"hermes_replay_id": "%ff"}, "not percent-encoded UTF-8"),
        ({"hermes_replay_id": "a" * 256}, "1 to 255 printable characters"),
        ({"hermes_replay_for": "billing"}, "goes with Hermes-Replay-Id"),
        (
            {"hermes_replay_id": "a", "hermes_replay_for": "a b"},
            "this is not a subscription's name",
        ),
        ({"hermes_replay_id": "a", "idempotency_key": "k"}, "exclude each other"),
    ],
)
async def test_a_replay_that_makes_no_sense_is_refused(replaying, headers, complaint) -> None:
    answer = await replaying.publish(**headers)
    assert (answer.status_code, replaying.stored) == (400, [])
    assert complaint in answer.json()["message"]


async def test_without_the_setting_nobody_chooses_ids(world, autojump_clock) -> None:
    answer = await world.publish(hermes_replay_id="x")
    assert (answer.status_code, world.stored) == (403, [])
    assert "frontend.replay = true" in answer.json()["message"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, '"'])
async def test_a_key_that_is_none_is_400_naming_the_header(world, key: str) -> None:
    answer = await world.publish(idempotency_key=key)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert "Idempotency-Key" in answer.json()["message"]
    assert not world.stored
    assert world.frontend.drain.in_flight == 0


async def test_a_binary_event_is_stored_with_its_attributes_and_key(world, autojump_clock) -> None:
    answer = await world.publish(
        body=b"<a/>", content_type="text/xml", ce_partitionkey="p%201", **CE_HEADERS
    )
    assert answer.status_code == 201
    (record,) = world.stored
    message = from_record(record)
    assert (message.body, message.key) == (b"<a/>", b"p 1")
    assert dict(message.attributes) == {
        **EVENT,
        "datacontenttype": "text/xml",
        "partitionkey": "p 1",
    }


async def test_a_structured_event_is_stored_as_its_data(world, autojump_clock) -> None:
    event = json.dumps({**EVENT, "partitionkey": "p", "data": {"n": 1}}).encode()
    kind = "application/cloudevents+json; charset=utf-8"
    assert (await world.publish(body=event, content_type=kind)).status_code == 201
    own = await world.publish(body=event, content_type=kind, partition_key="mine")
    assert own.status_code == 201
    messages = [from_record(record) for record in world.stored]
    assert [message.key for message in messages] == [b"p", b"mine"]
    for message in messages:
        assert message.body == b'{"n": 1}'
        assert dict(message.attributes) == {**EVENT, "partitionkey": "p"}


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        (b"{}", {"ce_specversion": "1.0", "ce_id": "1", "ce_type": "t"}, "'source' is missing"),
        (b"{}", {**CE_HEADERS, "ce_type": ""}, "'type'"),
        (b"{}", {"content_type": "application/cloudevents+json"}, "'specversion' is missing"),
        (b"[]", {"content_type": "application/cloudevents-batch+json"}, "/batch"),
        (b"?", {"content_type": "application/cloudevents+json"}, "must be an object"),
    ],
)
async def test_what_is_no_event_is_400_naming_the_attribute(world, body, headers, text) -> None:
    answer = await world.publish(body=body, **headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert text in answer.json()["message"]
    assert not world.stored
    assert world.frontend.drain.in_flight == 0


async def test_events_are_like_any_message_when_that_is_wanted(open_world, autojump_clock) -> None:
    async with open_world(cloud_events=False) as world:
        await world.add_topic("shop.orders")
        answer = await world.publish(body=b"[]", content_type="application/cloudevents-batch+json")
        assert answer.status_code == 201
        assert (await world.publish(ce_specversion="0.1")).status_code == 201
        assert [record.value for record in world.stored] == [b"[]", b"{}"]


async def test_headers_travel_when_that_is_on(open_world, autojump_clock) -> None:
    config = PropagationConfig(enabled=True, allowed=["trace-id", "empty"])
    async with open_world(propagation=config) as world:
        await world.add_topic("shop.orders")
        assert (await world.publish(trace_id="t", empty="", other="o")).status_code == 201
        (headers,) = stored(world)
        assert {n: v for n, v in headers.items() if n.startswith("h-")} == {"h-trace-id": b"t"}


async def test_the_name_of_a_header_keeps_its_case_where_the_server_tells(
    open_world, autojump_clock
) -> None:
    async with open_world(propagation=PropagationConfig(enabled=True)) as world:
        await world.add_topic("shop.orders")
        status, _, _ = await world.call(
            [b"{}"], {"Content-Length": "2", "Trace-ID": "t", "Partition-Key": "p"}
        )
        assert status == 201
        assert world.stored[0].key == b"p"
        assert stored(world)[0]["h-Trace-ID"] == b"t"


async def test_a_topic_over_its_quota_is_429_and_says_when_to_come_back(
    open_world, autojump_clock
) -> None:
    quota = ThroughputConfig(type="fixed", fixed_max_bytes_per_s=10)
    async with open_world(throughput=quota) as world:
        await world.add_topic("shop.orders")
        await world.add_topic("shop.audit")
        assert (await world.publish(body=bytes(600))).status_code == 201
        # The second check, after the body: its bytes count.
        assert (await world.publish(body=bytes(600))).status_code == 429
        # The first one: the body is not waited for.
        status, body, headers = await world.call([1_000.0], {"content-length": "600"})
        answer = json.loads(body)
        assert (status, answer["code"]) == (429, "THROUGHPUT_QUOTA_VIOLATION")
        assert "20 bytes/s, above the limit of 10 bytes/s" in answer["message"]
        assert headers["retry-after"] == "36"
        assert headers["hermes-message-id"]
        assert (await world.publish("shop.audit")).status_code == 201
        assert len(world.stored) == 2
        await trio.sleep(36)
        assert (await world.publish(body=b"")).status_code == 201
        assert 'status_code="429"} 2' in world.text()
        assert world.frontend.drain.in_flight == 0


@pytest.mark.parametrize("coding", ["gzip", "identity", "nonsense"])
async def test_an_encoded_body_is_stored_as_it_came_and_its_header_travels(
    open_world, autojump_clock, coding
) -> None:
    body = gzip.compress(b'{"n":1}', mtime=0)
    for propagation in (PropagationConfig(), PropagationConfig(enabled=True)):
        async with open_world(propagation=propagation) as world:
            await world.add_topic("shop.orders")
            answer = await world.publish(body=body, content_encoding=coding)
            assert answer.status_code == 201
            (record,) = world.stored
            assert record.value == body
            travelled = dict(from_record(record).propagated)
            expected = coding if propagation.enabled else None
            assert travelled.get("content-encoding") == expected


async def test_an_encoded_structured_event_is_refused(world) -> None:
    answer = await world.publish(
        body=gzip.compress(b"{}", mtime=0),
        content_type="application/cloudevents+json",
        content_encoding="gzip",
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
    assert world.stored == []
