"""Reports a node's status to the others, and follows all nodes' status for management."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes_actors import __version__
from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.log.base import Log
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.status.collector import Collector, NodeIdentity, Sources
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.lag import UNKNOWN, Reached
from hermes_actors.status.measures import subscription_metrics
from hermes_actors.status.reader import StatusReader
from hermes_actors.status.record import Published, SubscriptionFigures
from hermes_actors.status.reporter import StatusReporter


def follow_status(environment: NodeEnvironment, control: Supervisor) -> StatusFold:
    """Fold the status records of all nodes in all datacentres."""
    fold = StatusFold()

    def follow(log: Log) -> None:
        control.start_task(
            f"status reader {log.dc}",
            lambda stop: StatusReader(
                log, fold, clock=environment.clock, rng=environment.split_rng()
            ).run(stop),
        )

    for log in (environment.log, *environment.remote_logs.values()):
        follow(log)
    return fold


@asynccontextmanager
async def open_reporter(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Report the node's status during the block; the last record says that it leaves."""
    config = node.config
    identity = NodeIdentity(
        dc=config.dc,
        node=config.node,
        boot_id=environment.ids.message_id(),
        roles=tuple(config.roles),
        version=__version__,
        started_at_ms=environment.clock.now_ms(),
    )
    node.boot_id = identity.boot_id
    collector = Collector(identity, _sources(node))
    node.metrics.append(subscription_metrics(collector, lambda: node.metadata.catalog))
    node.control.start_task(
        "status reporter",
        lambda stop: StatusReporter(
            environment.log,
            collector,
            clock=environment.clock,
            # Until the metadata log has been read, the log may turn out to be another datacentre's.
            may_write=lambda: node.metadata.is_own,
            loop_lag_ms=lambda: 1_000 * environment.loop.lag_s,
        ).run(stop),
    )
    yield
    await node.control.stop("status reporter")


def _sources(node: Node) -> Sources:
    """The sources of the node's figures; its parts may be absent."""

    def topics() -> list[str]:
        return [] if node.frontend is None else node.frontend.topics()

    def published(topic: str) -> Published | None:
        return None if node.frontend is None else node.frontend.published(topic)

    def latency_ms(topic: str) -> tuple[float, float] | None:
        return None if node.frontend is None else node.frontend.latency_ms(topic)

    def subscriptions() -> list[str]:
        return [] if node.agent is None else node.agent.subscriptions()

    def consumed(name: str) -> SubscriptionFigures | None:
        return None if node.agent is None else node.agent.figures(name)

    def reached(name: str) -> Reached:
        return Reached() if node.agent is None else node.agent.reached(name)

    def unplanned(name: str) -> int | None:
        return None if node.agent is None else node.agent.unplanned(name)

    def open_letters(name: str) -> int:
        live = node.metadata.catalog.subscriptions.get(name)
        agent, counts = node.agent, node.open_letters
        if live is None or agent is None or counts is None or not agent.has_first(name):
            return UNKNOWN
        return counts.of(live)

    def spooled() -> int:
        return 0 if node.spool is None else node.spool.index.entries

    def elsewhere() -> int:
        fallback = None if node.frontend is None else node.frontend.routes.fallback
        return 0 if fallback is None else fallback.local.metrics.counted("fallback_messages")

    return Sources(
        dependencies=node.dependencies,
        topics=topics,
        published=published,
        latency_ms=latency_ms,
        subscriptions=subscriptions,
        consumed=consumed,
        reached=reached,
        unplanned=unplanned,
        open_letters=open_letters,
        spooled=spooled,
        elsewhere=elsewhere,
        pull=lambda: node.pull,
    )
