"""Many messages in one request: a line for each, in order, while they come, within bounds."""

import json
from collections.abc import AsyncIterator

import pytest
import trio

from hermes_actors.config import PropagationConfig
from hermes_actors.log.base import Stored
from hermes_actors.model.topic import Ack, ContentType
from tests.publisher.batch_exchange import ARRAY, ENVELOPES, EVENTS, LINES, Exchange, call


def under_way(world) -> int:
    """The messages of batches to shop.orders that are under way."""
    return world.frontend.batches.room.messages[world.frontend.routes.by_name["shop.orders"]]


@pytest.fixture
async def started(world) -> AsyncIterator:
    """Starts exchanges that the test goes on with."""
    async with trio.open_nursery() as nursery:

        def start(**options) -> Exchange:
            exchange = Exchange(options.pop("world", world), **options)
            nursery.start_soon(exchange.run)
            return exchange

        yield start
        nursery.cancel_scope.cancel()


async def test_each_line_is_a_message_and_has_an_answer_in_its_place(world, autojump_clock) -> None:
    exchange = await call(world, b'{"a": 1}\n{"b"', b": 2}\r\n\n  \n{c}")
    assert exchange.status == 200
    assert exchange.headers["content-type"] == LINES
    assert [record.value for record in world.stored] == [b'{"a": 1}', b'{"b": 2}', b"{c}"]
    assert [line["status"] for line in exchange.lines] == [201, 201, 201]
    stored_ids = [dict(record.headers)["id"].decode() for record in world.stored]
    assert [line["id"] for line in exchange.lines] == stored_ids
    assert len(set(stored_ids)) == 3
    assert all(dict(record.headers)["dc"] == b"dc1" for record in world.stored)


async def test_of_an_array_that_is_no_json_nothing_is_stored(world, autojump_clock) -> None:
    exchange = await call(world, b'[{"a":1}, nothing, 3]', content_type=ARRAY)
    assert world.stored == []
    (last,) = exchange.lines
    assert (last["status"], last["code"]) == (400, "VALIDATION_ERROR")
    assert "id" not in last
    assert "not a JSON array" in last["message"]


async def test_the_partition_key_header_is_that_of_all_messages(world, autojump_clock) -> None:
    await world.add_topic("shop.keyed", partitions=7)
    await call(world, b"1\n2\n3\n", topic="shop.keyed", partition_key="customer-1")
    assert [record.key for record in world.stored] == [b"customer-1"] * 3
    assert len({record.partition for record in world.stored}) == 1
    assert [record.value for record in world.stored] == [b"1", b"2", b"3"]


async def test_envelopes_carry_a_key_and_an_id_for_each_message(world, autojump_clock) -> None:
    await world.add_topic("shop.keyed", partitions=5)
    chosen = "8e03978e-40d5-43dd-bc93-6894a57f9324"
    lines = [
        {"message": {"n": 0}, "key": "a", "id": chosen},
        {"message": {"n": 1}},
        {"message": "two", "key": ""},
        {"message": 3, "key": "b"},
        {"message": [4], "key": "a"},
    ]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    exchange = await call(
        world, body, topic="shop.keyed", content_type=ENVELOPES, partition_key="default"
    )
    answers = exchange.lines
    assert [answer["status"] for answer in answers] == [201] * 5
    assert answers[0]["id"] == chosen
    by_id = {dict(record.headers)["id"].decode(): record for record in world.stored}
    stored = [by_id[answer["id"]] for answer in answers]
    assert [record.key for record in stored] == [b"a", b"default", b"", b"b", b"a"]
    assert [json.loads(record.value) for record in stored] == [{"n": 0}, {"n": 1}, "two", 3, [4]]
    # Where it is stored is where a single publish with this key would be.
    for record in stored:
        single = world.admit("shop.keyed", b"again", record.key)
        await trio.sleep(0.01)
        assert type(single.outcome) is Stored
        assert world.stored[-1].partition == record.partition


async def test_a_line_that_is_no_envelope_is_refused_in_its_place(world, autojump_clock) -> None:
    body = (
        b'{"message":1}\nnonsense\n{"key":"a"}\n{"message":2,"id":"x"}\n'
        b'{"message":3,"x":1}\n{"message":4}'
    )
    exchange = await call(world, body, content_type=ENVELOPES)
    assert [line["status"] for line in exchange.lines] == [201, 400, 400, 400, 400, 201]
    assert "UUID" in exchange.lines[3]["message"]
    assert all("id" in line for line in exchange.lines)
    assert [record.value for record in world.stored] == [b"1", b"4"]


async def test_the_headers_of_an_envelope_travel_with_its_message(
    open_world, autojump_clock
) -> None:
    async with open_world(propagation=PropagationConfig(True, ["x-trace", "x-shop"])) as world:
        await world.add_topic("shop.orders")
        body = b'{"message":1,"headers":{"X-Trace":"t1","X-Other":"no"}}\n{"message":2}'
        await call(world, body, content_type=ENVELOPES, x_shop="north")
        first, second = (dict(record.headers) for record in world.stored)
        assert first["h-X-Trace"] == b"t1"
        assert first["h-x-shop"] == second["h-x-shop"] == b"north"
        assert "h-X-Other" not in first
        assert "h-X-Trace" not in second


async def test_each_element_of_a_batch_of_cloud_events_is_an_event(world, autojump_clock) -> None:
    events = [
        {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 1}},
        {"specversion": "1.0", "id": "2", "type": "t"},
        {"specversion": "1.0", "id": "3", "source": "/s", "type": "t", "partitionkey": "k"},
    ]
    exchange = await call(world, json.dumps(events).encode(), content_type=EVENTS)
    assert [line["status"] for line in exchange.lines] == [201, 400, 201]
    assert "source" in exchange.lines[1]["message"]
    by_event = {dict(record.headers)["ce_id"]: record for record in world.stored}
    assert json.loads(by_event[b"1"].value) == {"n": 1}
    assert by_event[b"3"].key == b"k"


async def test_a_message_that_is_too_long_is_refused_and_the_others_go_on(
    open_world, autojump_clock
) -> None:
    async with open_world(body_bytes_max=2_000) as world:
        await world.add_topic("shop.orders", message_bytes_max=50)
        body = b"1\n" + b"x" * 51 + b"\n2\n" + b"y" * 5_000 + b"\n3\n"
        exchange = await call(world, body[:900], body[900:3_000], body[3_000:])
        assert [line["status"] for line in exchange.lines] == [201, 400, 201, 400, 201]
        assert "at most 50" in exchange.lines[1]["message"]
        assert "(its maxMessageSize)" in exchange.lines[1]["message"]
        assert "limit of 2000 (frontend.body_bytes_max)" in exchange.lines[3]["message"]
        assert [record.value for record in world.stored] == [b"1", b"2", b"3"]
        assert 'status_code="400"} 2' in world.text()


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"topic": "shop.none"}, 404, "TOPIC_NOT_EXISTS"),
        ({"content_type": "text/plain"}, 415, "VALIDATION_ERROR"),
        ({"content_type": ""}, 415, "VALIDATION_ERROR"),
        ({"idempotency_key": "k"}, 400, "VALIDATION_ERROR"),
        ({"topic": "shop.clicks"}, 500, "SCHEMA_COULD_NOT_BE_LOADED"),
    ],
)
async def test_what_the_headers_forbid_is_answered_as_for_one_message(
    world, autojump_clock, options, status, code
) -> None:
    await world.add_topic("shop.clicks", content_type=ContentType.AVRO)
    exchange = await call(world, b"1\n", **options)
    assert exchange.status == status
    assert json.loads(exchange.body)["code"] == code
    assert exchange.headers["hermes-message-id"]
    assert not world.stored


async def test_above_the_number_of_streams_a_batch_is_refused(open_world, autojump_clock) -> None:
    async with open_world(batch_streams_max=1) as world, trio.open_nursery() as nursery:
        await world.add_topic("shop.orders")
        first = Exchange(world)
        nursery.start_soon(first.run)
        await trio.sleep(0.01)
        second = Exchange(world)
        await second.run()
        assert second.status == 503
        assert second.headers["retry-after"] == "1"
        first.end()
        await first.is_done.wait()
        assert (await call(world, b"1\n")).status == 200


async def test_answers_come_while_the_body_does(world, started, autojump_clock) -> None:
    exchange = started()
    for number in range(3):
        exchange.feed(b"%d\n" % number)
        await trio.sleep(0.01)
        assert len(exchange.lines) == number + 1
        assert not exchange.is_complete
    exchange.end()
    await exchange.is_done.wait()
    assert exchange.is_complete


async def test_an_unanswered_message_holds_back_the_lines_after_it(
    world, started, autojump_clock
) -> None:
    await world.add_topic("shop.keyed", partitions=2)
    world.log.faults.delay_s = (0.030, 0.030)
    exchange = started(topic="shop.keyed", content_type=ENVELOPES)
    keys = ["a", "b", "c", "d", "e", "f"]
    exchange.feed(
        b"".join(b'{"message":"%b","key":"%b"}\n' % (k.encode(), k.encode()) for k in keys)
    )
    await trio.sleep(0.001)
    world.log.faults.delay_s = None
    exchange.feed(b'{"message":"late"}\n')
    exchange.end()
    await exchange.is_done.wait()
    by_id = {dict(record.headers)["id"].decode(): record.value for record in world.stored}
    values = [json.loads(by_id[line["id"]]) for line in exchange.lines]
    assert values == [*keys, "late"]


async def test_a_publisher_that_reads_nothing_is_read_no_further(
    open_world, autojump_clock
) -> None:
    async with open_world(batch_answer_bytes_max=1_000) as world, trio.open_nursery() as nursery:
        await world.add_topic("shop.orders")
        exchange = Exchange(world)
        exchange.stop_reading()
        exchange.feed(*[b"1\n" * 10] * 100)
        nursery.start_soon(exchange.run)
        await trio.sleep(5)
        # 58 bytes for each line: so many are owed, and a piece more.
        assert 17 <= len(world.stored) <= 40
        assert exchange.unread > 90
        exchange.read_on()
        exchange.end()
        await exchange.is_done.wait()
        assert len(exchange.lines) == len(world.stored) == 1_000


async def test_a_silent_log_stops_the_reading_and_each_message_has_its_time_limit(
    open_world, autojump_clock
) -> None:
    async with open_world(batch_records_max=10) as world, trio.open_nursery() as nursery:
        await world.add_topic("shop.orders")
        world.log.faults.silent = True
        exchange = Exchange(world)
        exchange.feed(*[b"1\n" * 10] * 100)
        nursery.start_soon(exchange.run)
        await trio.sleep(0.4)
        assert exchange.unread >= 95
        assert exchange.status == 0
        await trio.sleep(0.2)
        assert {line["status"] for line in exchange.lines} == {503}
        assert {line["code"] for line in exchange.lines} == {"SENDING_TO_KAFKA_TIMEOUT"}
        world.log.faults.silent = False
        exchange.end()
        await exchange.is_done.wait()
        assert len(exchange.lines) == 1_000


async def test_streams_of_one_topic_share_what_may_be_under_way(open_world, autojump_clock) -> None:
    async with open_world(batch_records_max=10) as world, trio.open_nursery() as nursery:
        await world.add_topic("shop.orders")
        world.log.faults.delay_s = (0.010, 0.010)
        exchanges = [Exchange(world) for _ in range(5)]
        for exchange in exchanges:
            exchange.feed(b"1\n" * 50)
            exchange.end()
            nursery.start_soon(exchange.run)
        for _ in range(20):
            await trio.sleep(0.005)
            assert under_way(world) <= 20
        for exchange in exchanges:
            await exchange.is_done.wait()
            assert [line["status"] for line in exchange.lines] == [201] * 50
        assert under_way(world) == 0


async def test_what_was_read_of_a_publisher_that_left_is_stored_and_nothing_leaks(
    open_world, autojump_clock
) -> None:
    async with open_world(batch_records_max=10) as world, trio.open_nursery() as nursery:
        await world.add_topic("shop.orders")
        world.log.faults.delay_s = (0.010, 0.010)
        exchange = Exchange(world)
        exchange.feed(b"1\n" * 55 + b"torn")
        exchange.leave()
        nursery.start_soon(exchange.run)
        await exchange.is_done.wait()
        await trio.sleep(0.1)
        assert len(world.stored) == 55
        assert not exchange.is_complete
        assert world.frontend.drain.in_flight == 0
        assert not len(world.frontend.batches)
        assert under_way(world) == 0
        assert (await call(world, b"2\n")).lines[0]["status"] == 201


async def test_a_stream_that_is_cut_short_while_it_waits_gives_everything_back(
    open_world, autojump_clock
) -> None:
    async with open_world(batch_records_max=10) as world:
        await world.add_topic("shop.orders")
        world.log.faults.delay_s = (0.050, 0.050)
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                exchange = Exchange(world)
                exchange.feed(b"1\n" * 45)
                nursery.start_soon(exchange.run)
            await trio.sleep(0.02)
            nursery.cancel_scope.cancel()
        await trio.sleep(1)
        assert world.frontend.drain.in_flight == 0
        assert under_way(world) == 0
        assert world.frontend.batches.room.size_bytes == 0


async def test_a_stream_without_a_piece_for_long_ends_with_a_line_that_says_so(
    world, started, autojump_clock
) -> None:
    exchange = started()
    exchange.feed(b"1\nhalf")
    await trio.sleep(29)
    assert not exchange.is_complete
    await trio.sleep(3)
    stored, last = exchange.lines
    assert stored["status"] == 201
    assert (last["status"], last["code"]) == (408, "TIMEOUT")
    assert exchange.is_complete
    assert len(world.stored) == 1


async def test_a_shutdown_ends_streams_after_what_they_have_read(
    open_world, autojump_clock
) -> None:
    async with open_world(graceful_shutdown_initial_wait_ms=1_000) as world:
        await world.add_topic("shop.orders")
        async with trio.open_nursery() as nursery:
            exchange = Exchange(world)
            nursery.start_soon(exchange.run)
            exchange.feed(b"1\n2\n")
            await trio.sleep(0.01)
            nursery.start_soon(world.frontend.drain.run)
            await trio.sleep(0.5)
            exchange.feed(b"3\n")
            await trio.sleep(0.01)
            assert [line["status"] for line in exchange.lines] == [201] * 3
            await trio.sleep(0.6)
            exchange.end()
            await exchange.is_done.wait()
            last = exchange.lines[-1]
            assert (last["status"], "id" in last) == (503, False)
            assert "shutting down" in last["message"]
        refused = Exchange(world)
        await refused.run()
        assert refused.status == 503


async def test_bundles_and_single_messages_share_a_batch_in_their_order(
    world, autojump_clock
) -> None:
    world.log.faults.delay_s = (0.010, 0.010)
    world.admit(body=b"first")
    await trio.sleep(0.001)
    async with trio.open_nursery() as nursery:
        exchange = Exchange(world)
        exchange.feed(b"1\n2\n")
        exchange.end()
        nursery.start_soon(exchange.run)
        await trio.sleep(0.001)
        world.admit(body=b"last")
    await trio.sleep(0.02)
    assert [record.value for record in world.stored] == [b"first", b"1", b"2", b"last"]
    assert [line["status"] for line in exchange.lines] == [201, 201]


async def test_the_counters_count_messages_not_requests(world, autojump_clock) -> None:
    await world.add_topic("shop.audit", ack=Ack.ALL)
    await call(world, b"12345\n" * 3, topic="shop.audit")
    text = world.text()
    labels = 'group="shop",topic="audit"'
    assert f"hermes_frontend_topic_requests_total{{{labels}}} 3" in text
    assert f"hermes_frontend_topic_throughput_bytes_total{{{labels}}} 15" in text
    labelled = 'group="shop",status_code="201",topic="audit"'
    assert f"hermes_frontend_topic_http_status_codes_total{{{labelled}}} 3" in text
    assert f"hermes_frontend_topic_ack_all_latency_seconds_count{{{labels}}} 3" in text
