"""Test pushes for management, with the senders of the node's consumers; on a node without
consumers, senders are opened for the single push.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.trial import try_push
from hermes_actors.errors import HermesError, StartupError, Unavailable
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.push_trial import PushTrial
from hermes_actors.node.consuming import names_of, provider_of
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.schema.reading import AvroReader
from hermes_actors.telemetry.metrics import Metrics


def pushes_tried(
    node: Node, environment: NodeEnvironment
) -> Callable[[LiveSubscription, LiveTopic, bytes | None], Awaitable[PushTrial]]:
    """Return `try_push` with the parts of this node. It raises Unavailable if the node cannot
    push.
    """

    async def tried(live: LiveSubscription, topic: LiveTopic, body: bytes | None) -> PushTrial:
        if node.consumer_parts is not None:
            return await try_push(live, topic, node.consumer_parts, body)
        consumers = node.config.consumers
        if consumers.recipients.resolver or consumers.senders:
            raise Unavailable(
                f"Node {node.config.node} has no consumers, which load the plug-ins of "
                "consumers.recipients.resolver and consumers.senders: ask a management node that "
                "also has the role consumers"
            )
        failed: HermesError
        try:
            async with _parts_for_one(node, environment) as parts:
                # Raise it outside the block, whose nurseries would wrap it.
                try:
                    return await try_push(live, topic, parts, body)
                except HermesError as error:
                    failed = error
        except StartupError as error:
            raise Unavailable(f"This node cannot push: {error.message}") from error
        raise failed

    return tried


@asynccontextmanager
async def _parts_for_one(node: Node, environment: NodeEnvironment) -> AsyncIterator[ConsumerParts]:
    config, clock = node.config.consumers, environment.clock
    metrics = Metrics("hermes_trial", clock.monotonic_s)
    async with environment.open_senders(provider_of(node), metrics) as sender_of:
        yield ConsumerParts(
            log=environment.log,
            sender_of=sender_of,
            clock=clock,
            rng=environment.split_rng(),
            ids=environment.ids,
            metrics=metrics,
            config=config,
            names=names_of(clock, config.recipients),
            avro=AvroReader(node.schemas, node.pool),
        )
