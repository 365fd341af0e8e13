"""What bounds a batch: quotas, what is under way, and what an edge cannot see."""

import json

import pytest
import trio

from hermes_actors.config import PropagationConfig, ThroughputConfig
from tests.publisher.batch_exchange import ENVELOPES, LINES, Exchange, call
from tests.publisher.test_http2_connection import PATH, Client


async def test_a_compressed_batch_is_refused_instead_of_being_cut_at_its_line_feeds(world) -> None:
    exchange = await call(world, b"\x1f\x8b\n1", content_encoding="gzip")
    assert exchange.status == 415
    assert "gzip" in exchange.lines[0]["message"]
    assert (await call(world, b"1", content_encoding="identity")).status == 200


@pytest.mark.slow
async def test_what_a_stream_sends_above_its_quota_does_not_prolong_it(
    open_world, autojump_clock
) -> None:
    quota = ThroughputConfig(type="fixed", fixed_max_bytes_per_s=10)
    async with open_world(throughput=quota) as world:
        await world.add_topic("shop.orders")
        line = b"x" * 999 + b"\n"
        # One after the other, as a stream that goes on for long sends them.
        exchange = await call(world, *[line] * 900)
        statuses = [each["status"] for each in exchange.lines]
        assert statuses[-1] == 429
        refused = await world.publish()
        assert refused.status_code == 429
        # As for single messages: the one that went above the limit counts, those after it do not.
        assert int(refused.headers["retry-after"]) < 120


async def test_keys_and_headers_count_as_what_is_under_way(open_world, autojump_clock) -> None:
    big = "k" * 8_000
    line = json.dumps({"message": 1, "key": big, "headers": {"trace": big}}).encode() + b"\n"
    async with open_world(
        propagation=PropagationConfig(enabled=True),
        batch_in_flight_bytes_max=160_000,
        max_publish_request_duration_ms=5_000,
    ) as world:
        await world.add_topic("shop.orders")
        world.log.faults.silent = True
        exchange = Exchange(world, content_type=ENVELOPES)
        world.nursery.start_soon(exchange.run)
        exchange.feed(*[line] * 100)
        await trio.sleep(0.5)
        assert exchange.unread >= 85
        world.log.faults.silent = False


@pytest.mark.parametrize("said", [{"key": "k" * 16_385}, {"headers": {"trace": "t" * 16_385}}])
async def test_a_line_says_no_more_of_its_message_than_a_head_may(
    open_world, autojump_clock, said
) -> None:
    # Where a key leads is worked out on the loop, byte by byte.
    async with open_world(propagation=PropagationConfig(enabled=True)) as world:
        await world.add_topic("shop.orders")
        fits = {"key": "k" * 8_000, "headers": {"trace": "t" * 8_000}}
        lines = [json.dumps({"message": 1} | each).encode() + b"\n" for each in (said, fits)]
        exchange = await call(world, *lines, content_type=ENVELOPES)
        assert [each["status"] for each in exchange.lines] == [400, 201]
        assert "at most 16384 (frontend.header_bytes_max)" in exchange.lines[0]["message"]
        assert len(world.stored) == 1


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_stream_ends_with_the_life_of_its_topic(world, autojump_clock, comes_back) -> None:
    exchange = Exchange(world)
    world.nursery.start_soon(exchange.run)
    exchange.feed(b"1\n")
    await trio.sleep(0.1)
    world.frontend.routes.remove("shop.orders", world.nursery)
    if comes_back:
        await world.add_topic("shop.orders", incarnation=2)
    exchange.feed(b"2\n3\n")
    await exchange.is_done.wait()
    status = 503 if comes_back else 404
    assert [line["status"] for line in exchange.lines] == [201, status, status, status]
    assert ["id" in line for line in exchange.lines] == [True, True, True, False]
    assert len(world.stored) == 1
    again = await call(world, b"2\n")
    assert (again.status, again.lines[0].get("status")) == (
        (200, 201) if comes_back else (404, None)
    )


async def test_a_batch_in_frames_of_one_byte_is_taken_in_several_turns_of_the_loop(
    world, autojump_clock
):
    client = Client(world)
    client.ask(1, path=f"{PATH}/batch", content_type=LINES)
    for _ in range(50):
        client.frames.send_data(1, b"7")
        client.frames.send_data(1, b"\n")
    world.log.faults.silent = True
    client.send()
    # The batch's own request is one of them.
    assert world.frontend.drain.in_flight < 10
    world.log.faults.silent = False
    client.frames.end_stream(1)
    await client.talk()
    lines = client.bodies[1].splitlines()
    assert [json.loads(line)["status"] for line in lines] == [201] * 50
