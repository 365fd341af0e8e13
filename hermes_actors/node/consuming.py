"""The consuming part of a node: senders, and the agent that runs the consumers."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import trio

from hermes_actors.actors.restart import TENANT
from hermes_actors.balancer.agent import Agent
from hermes_actors.balancer.membership import NodeLoads
from hermes_actors.config import RecipientsConfig
from hermes_actors.consumer.delivery.measures import DELIVERING
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.letters.open_counts import OpenCounts
from hermes_actors.consumer.offsets.resting import Resting
from hermes_actors.consumer.push_consumer import ConsumerFactory
from hermes_actors.consumer.recipients.resolver import (
    ResolverContext,
    open_resolver,
)
from hermes_actors.consumer.senders.connecting import Resolver
from hermes_actors.consumer.senders.oauth.sender import ProviderOf
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.redrives import FollowedRedrives
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.node.coordinating import CoordinationPart, open_part
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.reading import AvroReader
from hermes_actors.telemetry.metrics import Metrics

_COMMIT_GRACE_S = 5.0


@asynccontextmanager
async def open_consumers(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Deliver during the block; at its end, messages in flight are settled."""
    config = node.config
    metrics = Metrics("hermes_consumers", environment.clock.monotonic_s, DELIVERING)
    node.metrics.append(metrics)

    def suspend(live: LiveSubscription, reason: str) -> None:
        # Without an agent the consumer ends, and the next one will notice the same.
        if node.agent is not None:
            node.agent.suspend(live, reason)

    redrives = FollowedRedrives(node.metadata)
    context = ResolverContext(config.dc, environment.clock)
    resolver = open_resolver(config.consumers.recipients.resolver, context)

    def loads() -> NodeLoads:
        return NodeLoads() if node.agent is None else node.agent.loads()

    async with (
        environment.open_senders(provider_of(node), metrics) as sender_of,
        open_part(node, environment, loads) as part,
    ):
        parts = ConsumerParts(
            log=environment.log,
            sender_of=sender_of,
            clock=environment.clock,
            rng=environment.split_rng(),
            ids=environment.ids,
            metrics=metrics,
            config=config.consumers,
            suspend=suspend,
            redrives=redrives,
            resolver=resolver,
            names=names_of(environment.clock, config.consumers.recipients),
            pool=node.pool,
            listeners=lambda live: [
                found for listen in node.delivery_listeners if (found := listen(live)) is not None
            ],
            cover=node.cover,
            avro=AvroReader(node.schemas, node.pool),
        )
        node.consumer_parts = parts

        stop_grace_s = config.consumers.stop_grace_ms / 1_000 + _COMMIT_GRACE_S

        def forget(gone: LiveSubscription) -> None:
            name = gone.name
            parts.rate_controls.forget(str(name))
            metrics.forget(group=name.topic.group, topic=name.topic.name, subscription=name.name)

        resting = Resting(environment.log, environment.clock, config.consumers.clock_skew_max_ms)

        def make() -> Agent:
            node.agent = Agent(
                node.metadata,
                ConsumerFactory(parts),
                part.coordination,
                part.presence,
                part.releases,
                clock=environment.clock,
                rng=environment.split_rng(),
                cpu=environment.cpu,
                stop_grace_s=stop_grace_s,
                on_gone=forget,
                resting=resting,
            )
            return node.agent

        def counted() -> list[LiveSubscription]:
            """Return the subscriptions whose letters this node counts; among several owners only
            one does.
            """
            agent, known = node.agent, node.metadata.catalog.subscriptions
            names = [] if agent is None else filter(agent.has_first, agent.subscriptions())
            return [known[name] for name in names if name in known]

        _count_workload(metrics, node, part)
        counts = node.open_letters = OpenCounts(environment.log, counted)

        # The same object after a failure, so that it keeps its state.
        node.control.start_task("resting", resting.run)
        node.control.start_task("redrives", redrives.run)
        node.control.start_task("open letters", counts.run)
        node.control.start_task("agent", lambda stop: make().run(stop))
        if resolver is not None:
            # If it stays broken, neither the agent nor the node fails.
            node.control.start_task("resolver", lambda _: resolver.run(), restart=TENANT)
        yield
        node.consumer_parts = None
        await node.control.stop("agent", grace_s=stop_grace_s + _COMMIT_GRACE_S)


def _count_workload(metrics: Metrics, node: Node, part: CoordinationPart) -> None:
    """Show, as in Hermes, the subscriptions that this node has been assigned, and those that it
    runs.
    """

    def running() -> set[str]:
        return set() if node.agent is None else set(node.agent.subscriptions())

    def assigned() -> set[str]:
        return set(part.coordination.state.grants_of(part.presence.boot))

    def assignments() -> Iterator[tuple[Mapping[str, str], float]]:
        state = part.coordination.state
        if part.presence.boot == state.leader != "":
            tasks = sum(len(state.grants_of(boot)) for boot in state.members)
            yield {"kafka_cluster": node.config.dc}, tasks

    for name, read in (
        ("consumer_processes_running", running),
        ("workload_subscriptions_running", running),
        ("workload_subscriptions_assigned", assigned),
        ("workload_subscriptions_missing", lambda: assigned() - running()),
        ("workload_subscriptions_oversubscribed", lambda: running() - assigned()),
    ):
        metrics.gauge(name, lambda read=read: len(read()))  # type: ignore[misc]
    metrics.gauges("workload_all_assignments", assignments)


def provider_of(node: Node) -> ProviderOf:
    """Return a function that looks up OAuth providers by name, in the current metadata."""

    def find(name: str) -> OAuthProvider | None:
        live = node.metadata.catalog.oauth_providers.get(name)
        return None if live is None else live.provider

    return find


def names_of(clock: Clock, config: RecipientsConfig) -> Resolver:
    """Return the resolver for subscriptions that push to all addresses of a host."""
    post = trio.lowlevel.current_trio_token().run_sync_soon
    return Resolver(post, clock.monotonic_s, kept_s=config.dns_ttl_ms / 1_000)
