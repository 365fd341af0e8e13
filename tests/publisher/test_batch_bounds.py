"""What bounds a batch: quotas, what is under way, and what an edge cannot see."""

import json

import trio
from batch_exchange import ENVELOPES, Exchange, call

from hermes_actors.config import PropagationConfig, ThroughputConfig


async def test_a_compressed_batch_is_refused_instead_of_being_cut_at_its_line_feeds(world) -> None:
    exchange = await call(world, b"\x1f\x8b\n1", content_encoding="gzip")
    assert exchange.status == 415
    assert "gzip" in exchange.lines[0]["message"]
    assert (await call(world, b"1", content_encoding="identity")).status == 200


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
    big = "k" * 50_000
    line = json.dumps({"message": 1, "key": big, "headers": {"trace": big}}).encode() + b"\n"
    async with open_world(
        propagation=PropagationConfig(enabled=True),
        batch_in_flight_bytes_max=1_000_000,
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
