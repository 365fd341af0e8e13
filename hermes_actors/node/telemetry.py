"""Exports a node's telemetry, as configured by the standard environment variables."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from hermes_actors.actors.restart import TENANT
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.telemetry.measures import TELEMETRY
from hermes_actors.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

_logger = logging.getLogger(__name__)

FLUSH_S = 3.0
"""How long a node that stops waits for its last spans to be sent."""


@asynccontextmanager
async def open_telemetry(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Trace messages and push metrics during the block, if configured; at its end the waiting data
    is sent.
    """
    settings = environment.telemetry
    if settings.traces == settings.metrics == "none":
        yield
        return
    if not _logger.isEnabledFor(logging.DEBUG):
        # The library logs each attempt; we log when the collector goes away or comes back.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    # Loaded only if needed.
    from hermes_actors.telemetry.tracing import resource_of

    config = node.config
    resource = resource_of(config.dc, config.node)
    metrics = Metrics("hermes_telemetry", meanings=TELEMETRY)
    node.metrics.append(metrics)
    async with AsyncExitStack() as until_end:
        if settings.traces != "none":
            await until_end.enter_async_context(_tracing(node, environment, resource, metrics))
        if settings.metrics != "none":
            await until_end.enter_async_context(_pushing(node, environment, resource, metrics))
        yield


@asynccontextmanager
async def _tracing(
    node: Node, environment: NodeEnvironment, resource: "Resource", metrics: Metrics
) -> AsyncIterator[None]:
    """Record spans by listening to the transitions of publishes and deliveries."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from hermes_actors.consumer.delivery.tracing import DeliverySpans
    from hermes_actors.publisher.tracing import PublishSpans
    from hermes_actors.telemetry.exporting import CountingExporter, span_exporter
    from hermes_actors.telemetry.tracing import Tracing

    settings, clock = environment.telemetry, environment.clock
    exporter = CountingExporter(span_exporter(settings))
    # It reads OTEL_BSP_* itself, and drops spans while the collector does not accept them.
    processor = BatchSpanProcessor(exporter)
    tracing = Tracing(processor, settings.sampling, resource, environment.split_rng())
    publishes = PublishSpans(tracing, node.config.dc, clock)

    def of(live: LiveSubscription) -> DeliverySpans:
        return DeliverySpans(tracing, live)

    node.publish_listeners.append(lambda _topic: publishes)
    node.delivery_listeners.append(of)
    node.replayed.append(publishes.replayed)
    metrics.total("spans_exported", lambda: exporter.exported)
    metrics.total("spans_failed", lambda: exporter.failed)
    try:
        yield
        with trio.move_on_after(FLUSH_S):
            await trio.to_thread.run_sync(processor.shutdown, abandon_on_cancel=True)
    finally:
        # A cancelled node does not wait.
        trio.lowlevel.start_thread_soon(processor.shutdown, lambda _: None)


@asynccontextmanager
async def _pushing(
    node: Node, environment: NodeEnvironment, resource: "Resource", metrics: Metrics
) -> AsyncIterator[None]:
    """Push the node's metrics, including those of the telemetry itself."""
    from hermes_actors.telemetry.exporting import metric_exporter
    from hermes_actors.telemetry.metric_push import LAST_S, MetricPush

    exporter = metric_exporter(environment.telemetry)
    push = MetricPush(
        lambda: node.metrics,
        exporter,
        resource,
        environment.clock,
        environment.threads,
        interval_s=environment.telemetry.metrics_interval_s,
    )
    metrics.total("points_exported", lambda: push.exported)
    metrics.total("points_failed", lambda: push.failed)
    # If it stays broken, nothing else fails.
    node.control.start_task("metric push", push.run, restart=TENANT)
    try:
        yield
        await node.control.stop("metric push", grace_s=LAST_S + 1)
    finally:
        exporter.shutdown()
