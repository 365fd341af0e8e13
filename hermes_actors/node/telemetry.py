"""The telemetry that leaves a node, as its operator asks for it by the standard variables."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.telemetry.measures import TELEMETRY
from hermes_actors.telemetry.metrics import Metrics

FLUSH_S = 5.0
"""How long a node that stops waits for its last spans to leave."""


@asynccontextmanager
async def open_telemetry(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Trace messages for the length of the block, if that is asked for; at its end what waits is
    sent, within FLUSH_S.
    """
    settings = environment.telemetry
    if settings.traces == "none":
        yield
        return
    # Nothing of it is loaded where it is not wanted.
    from hermes_actors.consumer.delivery.tracing import DeliverySpans
    from hermes_actors.publisher.tracing import PublishSpans
    from hermes_actors.telemetry.exporting import span_exporter
    from hermes_actors.telemetry.span_queue import SpanQueue
    from hermes_actors.telemetry.tracing import Tracing, resource_of

    exporter = span_exporter(settings)
    assert exporter is not None, "something is traced"
    queue = SpanQueue(
        exporter,
        environment.threads,
        queue_max=settings.queue_max,
        batch_max=settings.batch_max,
        delay_s=settings.delay_s,
    )
    config = node.config
    resource = resource_of(config.dc, config.node)
    tracing = Tracing(queue, settings.sampling, resource, environment.split_rng())
    publishes = PublishSpans(tracing, config.dc, environment.clock)
    node.publish_listeners.append(publishes)
    node.delivery_listeners.append(lambda live: DeliverySpans(tracing, live))
    node.replayed = publishes.replayed
    metrics = Metrics("hermes_telemetry", meanings=TELEMETRY)
    metrics.total("spans_exported", lambda: queue.exported)
    metrics.total("spans_failed", lambda: queue.failed)
    metrics.total("spans_dropped", lambda: queue.dropped)
    metrics.gauge("spans_waiting", lambda: len(queue))
    node.metrics.append(metrics)
    try:
        yield
        await trio.to_thread.run_sync(queue.close, FLUSH_S)
    finally:
        # A node that is cancelled stops as if it had been killed.
        queue.close(0)
