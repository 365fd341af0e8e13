"""Spans of publishes and of what the spool sends, and what is in none of them."""

import random
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.log.base import Stored, UnavailableRecord
from hermes_actors.model.message import Message
from hermes_actors.model.topic import Ack
from hermes_actors.publisher.tracing import PublishSpans
from hermes_actors.telemetry.sampling import Sampling
from hermes_actors.telemetry.tracing import Tracing
from hermes_chaos.sim.environment.clock import SimulatedClock

TRACED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Kept(SpanExporter):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


class Recording:
    """A frontend's spans."""

    def __init__(self, ratio: float) -> None:
        self._kept = Kept()
        sampling = Sampling(ratio, follows_parent=True)
        tracing = Tracing(SimpleSpanProcessor(self._kept), sampling, Resource({}), random.Random(1))
        self.spans = PublishSpans(tracing, "dc1", SimulatedClock())

    def ended(self) -> list[ReadableSpan]:
        return self._kept.spans


@pytest.fixture
def recording():
    return lambda ratio=1.0: Recording(ratio)


def entry(traceparent):
    message = Message("an-id", b"secret", 1, dc="dc1", via="spool", traceparent=traceparent)
    return SpoolEntry("shop.orders", "shop.orders_1", 1, Ack.LEADER, 1, message)


async def test_each_replay_of_what_is_traced_is_recorded(recording, autojump_clock):
    record = recording()
    entries = [entry(TRACED), entry(""), entry(TRACED[:-1] + "0"), entry("nonsense")]
    gone = UnavailableRecord("away")
    record.spans.replayed(entries, "dc2", 3, [gone, gone, gone, gone], 0.5)
    record.spans.replayed(entries, "dc2", 3, [Stored(7), Stored(8), Stored(9), Stored(10)], 0.5)
    failed, stored = record.ended()
    for span in (failed, stored):
        assert span.name == "replay shop.orders"
        assert f"{span.context.trace_id:032x}-{span.parent.span_id:016x}" == TRACED[3:52]
        assert span.end_time - span.start_time == 500_000_000
        assert "secret" not in span.to_json()
    assert (failed.status.is_ok, failed.attributes["error.type"]) == (False, "unavailable")
    assert stored.attributes["hermes.offset"] == 7


async def test_a_record_carries_its_publish(recording, open_world, autojump_clock):
    record = recording()
    async with open_world() as world:
        world.hear(record.spans)
        await world.add_topic("shop.orders")
        for _ in range(3):
            assert (await world.publish(body=b"secret")).status_code == 201
        carried = {dict(each.headers)["traceparent"].decode() for each in world.stored}
    published = [span for span in record.ended() if span.name == "publish shop.orders"]
    assert {
        f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-03" for span in published
    } == carried
    assert len(carried) == 3


async def test_what_is_not_chosen_leaves_no_mark(recording, open_world, autojump_clock):
    record = recording(0.0)
    async with open_world() as world:
        world.hear(record.spans)
        await world.add_topic("shop.orders")
        assert (await world.publish(body=b"1")).status_code == 201
        assert [name for name, _ in world.stored[0].headers] == ["id", "dc", "via"]
    assert record.ended() == []


async def test_about_the_share_that_is_wanted_is_chosen(recording, open_world, autojump_clock):
    record = recording(0.5)
    chosen = [record.spans._tracing.is_chosen(None) for _ in range(2_000)]
    assert 900 < sum(chosen) < 1_100
