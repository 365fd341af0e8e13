"""A message's trace over two datacentres, from a real OTLP receiver: over HTTP and over gRPC."""

from functools import partial

import pytest
import trio

from hermes_actors.runtime.threads import SystemThreads
from hermes_actors.telemetry.settings import telemetry_settings
from tests.nodes_scene import Endpoint, create_billing, publish, two_datacentres
from tests.otlp_collector import grpc_collector, http_collector

PUBLISHER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def traced(
    monkeypatch, collector, protocol, work, *statuses, policy=None, is_over=lambda: True, **env
):
    """Run `work(node, own log)` with two nodes, each in its datacentre, that are traced; return
    what the endpoint was pushed.
    """
    policy = policy or {"messageBackoff": 100}
    subscription = {
        "subscriptionPolicy": policy,
        "deliveryType": "BATCH" if "batchSize" in policy else "SERIAL",
    }
    endpoint = collector.endpoint
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "20",
        **env,
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    create = partial(
        create_billing, topic={"fallbackToRemoteDatacenterEnabled": True}, **subscription
    )
    settings, threads = telemetry_settings(env), SystemThreads()
    async with trio.open_nursery() as nursery:
        sink = Endpoint(nursery, *statuses)
        async with two_datacentres(sink, create, telemetry=settings, threads=threads) as (
            node,
            dc1,
            _,
        ):
            await work(node, dc1)
            with trio.fail_after(60):
                await sink.is_done.wait()
            # What was sent to a silent log is given up.
            await trio.sleep(60)
            dc1.faults.silent = False
            # The exporters' threads have no part in the clock of the test.
            while not is_over():  # noqa: ASYNC110
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    return sink.pushed


def only(spans, name):
    (span,) = [each for each in spans if each.name == name]
    return span


@pytest.mark.parametrize(
    ("receiver", "protocol"), [(http_collector, "http/protobuf"), (grpc_collector, "grpc")]
)
async def test_a_message_hedged_retried_twice_and_delivered_is_one_trace_over_two_datacentres(
    monkeypatch, receiver, protocol, autojump_clock
):
    async def work(node, own):
        own.faults.silent, own.faults.late_store = True, False
        status = await publish(
            node, b"a secret body", traceparent=PUBLISHER, tracestate="shop=1", cookie="a secret"
        )
        assert status == 201

    with receiver() as collector:
        pushed = await traced(monkeypatch, collector, protocol, work, 500, 503, 200)
        spans = [each for each in collector.spans if each.trace_id == PUBLISHER[3:35]]
    assert spans == collector.spans, "nothing else is traced"
    published = only(spans, "publish shop.orders")
    assert published.parent_id == PUBLISHER[36:52]
    assert published.attributes["http.response.status_code"] == 201
    assert published.attributes["messaging.system"] == "hermes"
    assert published.attributes["messaging.destination.name"] == "shop.orders"
    append, hedge = only(spans, "append shop.orders"), only(spans, "hedge shop.orders")
    assert [each.parent_id for each in (append, hedge)] == [published.span_id] * 2
    assert append.attributes["hermes.datacenter"] == "dc1"
    assert append.is_failed
    assert append.attributes["error.type"] == "unknown"
    assert hedge.attributes["hermes.datacenter"] == "dc2"
    assert not hedge.is_failed
    assert published.start_ns <= append.start_ns <= hedge.start_ns
    delivery = only(spans, "deliver shop.orders")
    assert delivery.parent_id == published.span_id
    assert delivery.attributes["messaging.destination.subscription.name"] == "billing"
    message_id = published.attributes["messaging.message.id"]
    assert delivery.attributes["messaging.message.id"] == message_id
    assert delivery.attributes["hermes.settlement"] == "delivered"
    attempts = sorted(
        (each for each in spans if each.name == "POST"), key=lambda each: each.start_ns
    )
    assert [each.parent_id for each in attempts] == [delivery.span_id] * 3
    codes = [each.attributes["http.response.status_code"] for each in attempts]
    assert codes == [500, 503, 200]
    assert [each.is_failed for each in attempts] == [True, True, False]
    assert [each.attributes.get("http.request.resend_count") for each in attempts] == [None, 1, 2]
    assert [each["traceparent"] for each in pushed] == [
        f"00-{each.trace_id}-{each.span_id}-01" for each in attempts
    ]
    assert (
        {each["tracestate"] for each in pushed} == {each.tracestate for each in spans} == {"shop=1"}
    )
    assert {each.resource["service.instance.id"] for each in spans} == {"one", "two"}
    assert {each.resource["service.name"] for each in spans} == {"hermes"}
    assert "secret" not in repr(spans)


@pytest.mark.slow
async def test_a_dead_letter_is_the_end_of_its_messages_trace(monkeypatch, autojump_clock):
    async def work(node, own):
        assert await publish(node, b"1") == 201

    with http_collector() as collector:
        policy = {"messageTtl": 0}
        await traced(monkeypatch, collector, "http/protobuf", work, 500, policy=policy)
        spans = collector.spans
    published, letter = only(spans, "publish shop.orders"), only(spans, "dead letter shop.orders")
    assert published.parent_id == ""
    delivery = only(spans, "deliver shop.orders")
    assert delivery.is_failed
    assert letter.parent_id == delivery.span_id
    assert {each.trace_id for each in spans} == {published.trace_id}


async def test_a_batch_links_to_the_publish_of_each_message(monkeypatch, autojump_clock):
    async def work(node, own):
        for number in range(3):
            assert await publish(node, b"%d" % number) == 201

    with http_collector() as collector:
        policy = {"batchSize": 3, "batchTime": 60_000, "messageBackoff": 100}
        pushed = await traced(
            monkeypatch, collector, "http/protobuf", work, 500, 200, policy=policy
        )
        spans = collector.spans
    published = collector.named("publish")
    delivery = only(spans, "deliver shop.orders")
    assert sorted(delivery.links) == sorted((each.trace_id, each.span_id) for each in published)
    assert delivery.parent_id == ""
    assert delivery.attributes["messaging.batch.message_count"] == 3
    attempts = sorted(
        (each for each in spans if each.name == "POST"), key=lambda each: each.start_ns
    )
    assert [each.parent_id for each in attempts] == [delivery.span_id] * 2
    assert [each["traceparent"][36:52] for each in pushed] == [each.span_id for each in attempts]


async def test_what_is_not_chosen_is_not_traced_and_says_nothing_further(
    monkeypatch, autojump_clock
):
    async def work(node, own):
        assert await publish(node, b"1") == 201
        assert await publish(node, b"2", traceparent=PUBLISHER[:-1] + "0") == 201

    with http_collector() as collector:
        pushed = await traced(
            monkeypatch,
            collector,
            "http/protobuf",
            work,
            200,
            200,
            OTEL_TRACES_SAMPLER="parentbased_traceidratio",
            OTEL_TRACES_SAMPLER_ARG="0",
        )
    assert collector.spans == []
    assert sorted(each.get("traceparent", "") for each in pushed) == ["", PUBLISHER[:-1] + "0"]


@pytest.mark.slow
async def test_metrics_are_pushed_by_grpc_too(monkeypatch, autojump_clock):
    async def work(node, own):
        assert await publish(node, b"1") == 201

    with grpc_collector() as collector:
        await traced(
            monkeypatch,
            collector,
            "grpc",
            work,
            200,
            OTEL_METRICS_EXPORTER="otlp",
            is_over=lambda: collector.metrics and collector.named("POST"),
        )
    data = {metric.name: metric for metric, of in collector.metrics}
    assert {of["service.name"] for _, of in collector.metrics} == {"hermes"}
    assert data["hermes_frontend_topic_published"].sum.data_points[0].as_int == 1
