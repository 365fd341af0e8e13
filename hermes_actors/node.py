"""The composition root: the supervision tree of one node, read top-down.

`open_node` is a node without sockets (the simulation runs it as it is); `listeners.py` adds the
sockets. Lifetimes are indentation: what is opened first is closed last.

    control (infrastructure: what stays broken takes the process down)
    ├─ registry <dc>          folds each datacentre's metadata log
    ├─ replicator <dc>        copies that datacentre's changes into the own log
    ├─ reconciler             log topics follow the metadata
    ├─ status reporter        tells the other nodes how this one fares
    ├─ status reader <dc>     folds what the nodes of a datacentre tell (management)
    ├─ preview reporter       hands previews of what is published to management, if that is on
    ├─ preview reader <dc>    gathers those of a datacentre (management)
    ├─ spool writer           keeps on the disk what no log took
    ├─ replayer               sends that when a log takes it again
    ├─ security               reads users and keys again, if somebody is asked who he is
    ├─ readiness check        asks the log for every topic once, if readiness waits for that
    ├─ router                 keeps one producer for each topic
    ├─ agent                  keeps one consumer for each subscription of this node
    │   └─ <subscription>     tenants: back off up to 5 minutes, never give up
    └─ producers
        └─ producer <topic>   tenants
"""

import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import trio

from hermes_actors import __version__
from hermes_actors.actors.mailbox import Inbox
from hermes_actors.actors.supervisor import Crash, Supervisor, open_supervisor
from hermes_actors.balancer.agent import Agent
from hermes_actors.config import Config
from hermes_actors.consumer.factory import ConsumerFactory
from hermes_actors.consumer.sender import Sender
from hermes_actors.consumer.serial import ConsumerParts
from hermes_actors.errors import StartupError
from hermes_actors.fallback.node import Fallback
from hermes_actors.log.base import Log
from hermes_actors.management.accounts import AccountProvider
from hermes_actors.management.administration import Administration
from hermes_actors.management.roles import SecurityProvider
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.reconciler import TopicReconciler
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.metadata.replication import Replicator
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.readiness import ReadinessCheck
from hermes_actors.publisher.router import Router
from hermes_actors.publisher.spooling import OpenSpoolStore, open_spooling
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.opening import open_authenticator
from hermes_actors.status.collector import Collector, NodeIdentity, Sources, SubscriptionFigures
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.preview_reader import follow_previews
from hermes_actors.status.preview_reporter import PreviewReporter
from hermes_actors.status.reader import StatusReader
from hermes_actors.status.record import Published
from hermes_actors.status.reporter import StatusReporter
from hermes_actors.telemetry.metrics import Metrics, render_in_turns

_logger = logging.getLogger(__name__)

_STOP_GRACE_S = 20.0
_ROUTING_POLL_S = 0.005
_COMMIT_GRACE_S = 5.0

SenderOf = Callable[[LiveSubscription], Sender]


class _Duty(Protocol):
    """An actor that works for the whole datacentre; `trouble` keeps it from getting on."""

    trouble: str

    async def run(self, inbox: Inbox[Any]) -> None: ...


@dataclass(frozen=True)
class NodeEnvironment:
    """What a node finds around it. `consumer_nodes` are all consuming nodes of its datacentre.

    `open_senders` opens what pushes messages, for the life of the node. `metrics` are shown with
    the node's own: those of its log. `log_trouble` says why the own log cannot be used now, ""
    when it can; `remote_trouble` says it of another datacentre's. `open_spool` opens what keeps
    messages that no log takes; None: they are refused.
    """

    clock: Clock
    ids: IdSource
    rng: random.Random
    log: Log
    remote_logs: Mapping[str, Log]
    open_senders: Callable[[], AbstractAsyncContextManager[SenderOf]]
    consumer_nodes: Sequence[str]
    metrics: Sequence[Metrics] = ()
    log_trouble: Callable[[], str] = str
    remote_trouble: Callable[[str], str] = lambda _dc: ""
    open_spool: OpenSpoolStore | None = None

    def split_rng(self) -> random.Random:
        """A generator of its own for one part, so that one part's draws do not shift another's."""
        return random.Random(self.rng.getrandbits(64))  # noqa: S311 -- jitter, not secrets


@dataclass
class Node:
    """A running node, as its listeners and its tests see it. Absent roles are None."""

    config: Config
    metadata: Metadata
    log_trouble: Callable[[], str]
    control: Supervisor
    frontend: Frontend | None = None
    producers: Supervisor | None = None
    agent: Agent | None = None
    administration: Administration | None = None
    authenticator: Authenticator | None = None
    metrics: list[Metrics] = field(default_factory=list)
    duties: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """What this node does for its whole datacentre, and what keeps each from getting on."""

    @property
    def trouble(self) -> str:
        """What keeps the node from its work, in words; "" when nothing does."""
        if not self.metadata.is_readable:
            return f"metadata: {self.metadata.health.reason}"
        if not self.metadata.is_own:
            # Another datacentre's, which need not know all that is here.
            return f"metadata: not read from the own log yet: {self.metadata.health.reason}"
        trouble = self.log_trouble()
        return f"log: {trouble}" if trouble else ""

    def notices(self) -> list[str]:
        """The duties that do not get on: the node itself can do its work all the same."""
        return [f"{duty}: {trouble()}" for duty, trouble in self.duties.items() if trouble()]

    async def wait_prepared(self) -> None:
        """Wait until the metadata can be read and every topic in it can be published to."""
        await self.metadata.wait_readable()
        if self.frontend is not None:
            # The router is told of the topics in the same turn; it needs some turns to take them.
            routes = self.frontend.routes.by_name
            while any(name not in routes for name in list(self.metadata.catalog.topics)):  # noqa: ASYNC110
                await trio.sleep(_ROUTING_POLL_S)


@asynccontextmanager
async def open_node(config: Config, environment: NodeEnvironment) -> AsyncIterator[Node]:
    """A node without sockets, running for the length of the block.

    When the block ends, consumers drain and commit, then producers send what waits, then the rest
    stops; when it is cancelled, all stops at once. Raises RestartIntensityExceeded when a part
    that the node needs stays broken.
    """
    async with open_supervisor(environment.split_rng(), _log_crash) as control:
        metadata, duties = _start_metadata(config, environment, control)
        node = Node(
            config,
            metadata,
            environment.log_trouble,
            control,
            metrics=[*environment.metrics, _metadata_metrics(metadata, duties)],
            duties=duties,
        )
        async with AsyncExitStack() as parts:
            node.authenticator = await _open_authenticator(node, environment)
            if "management" in config.roles:
                node.administration = Administration(
                    metadata,
                    environment.log,
                    config,
                    environment.clock,
                    security=_security_of_management(node),
                    datacenters=tuple(environment.remote_logs),
                    status=_follow_status(environment, control),
                    notices=node.notices,
                    previews=follow_previews(
                        control,
                        (environment.log, *environment.remote_logs.values()),
                        environment.split_rng,
                    )
                    if config.frontend.preview.enabled
                    else None,
                )
            await parts.enter_async_context(_open_reporter(node, environment))
            if "frontend" in config.roles:
                await parts.enter_async_context(_open_frontend(node, environment))
            if "consumers" in config.roles:
                await parts.enter_async_context(_open_consumers(node, environment))
            yield node


def _start_metadata(
    config: Config, environment: NodeEnvironment, control: Supervisor
) -> tuple[Metadata, dict[str, Callable[[], str]]]:
    """Fold the own metadata log, and the others': to stand in, and to tell what may be deleted.

    With it what this node does for its datacentre, if it is the one: name → what its trouble is.
    """

    def follow(log: Log, standins: tuple[Metadata, ...]) -> Metadata:
        metadata = Metadata(
            log,
            clock=environment.clock,
            ids=environment.ids,
            rng=environment.split_rng(),
            standins=standins,
        )
        control.start(f"registry {log.dc}", lambda: Registry(metadata))
        return metadata

    others = {dc: follow(log, ()) for dc, log in environment.remote_logs.items()}
    own = follow(environment.log, tuple(others.values()))
    duties: dict[str, Callable[[], str]] = {}

    def start_duty(name: str, make: Callable[[], _Duty]) -> None:
        def made() -> _Duty:
            duty = make()
            duties[name] = lambda: duty.trouble
            return duty

        duties[name] = str
        control.start(name, made)

    if config.metadata.replicator in ("", config.node):
        for dc, log in environment.remote_logs.items():
            start_duty(f"replicator {dc}", _replicator(config, environment, log, own))
        start_duty(
            "reconciler",
            lambda: TopicReconciler(
                own, others, config, clock=environment.clock, rng=environment.split_rng()
            ),
        )
    return own, duties


def _follow_status(environment: NodeEnvironment, control: Supervisor) -> StatusFold:
    """Fold what all nodes of all datacentres tell of themselves."""
    fold = StatusFold()

    def follow(log: Log) -> None:
        control.start(
            f"status reader {log.dc}",
            lambda: StatusReader(log, fold, clock=environment.clock, rng=environment.split_rng()),
        )

    for log in (environment.log, *environment.remote_logs.values()):
        follow(log)
    return fold


@asynccontextmanager
async def _open_reporter(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Report the node's status for the length of the block; the last record says that it leaves."""
    config = node.config
    identity = NodeIdentity(
        dc=config.dc,
        node=config.node,
        boot_id=environment.ids.message_id(),
        roles=tuple(config.roles),
        version=__version__,
        started_at_ms=environment.clock.now_ms(),
    )
    collector = Collector(identity, _sources(node))
    node.control.start(
        "status reporter",
        lambda: StatusReporter(
            environment.log,
            collector,
            clock=environment.clock,
            # Reading the metadata log also shows whether the log is this datacentre's at all.
            may_write=lambda: node.metadata.is_own,
        ),
    )
    yield
    await node.control.stop("status reporter")


def _sources(node: Node) -> Sources:
    """Where the node's figures come from; its parts come and go."""

    def reasons() -> list[str]:
        return [node.trouble] if node.trouble else []

    def topics() -> list[str]:
        return [] if node.frontend is None else node.frontend.topics()

    def published(topic: str) -> Published | None:
        return None if node.frontend is None else node.frontend.published(topic)

    def subscriptions() -> list[str]:
        return [] if node.agent is None else node.agent.subscriptions()

    def consumed(name: str) -> SubscriptionFigures | None:
        return None if node.agent is None else node.agent.figures(name)

    return Sources(
        reasons=reasons,
        topics=topics,
        published=published,
        subscriptions=subscriptions,
        consumed=consumed,
    )


def _metadata_metrics(metadata: Metadata, duties: Mapping[str, Callable[[], str]]) -> Metrics:
    metrics = Metrics("hermes_metadata")
    metrics.gauge("is_current", lambda: float(metadata.is_current))
    metrics.gauge("position", lambda: metadata.state.position)
    metrics.total("refolds", lambda: metadata.refolds)
    metrics.gauge("undecodable_commands", lambda: metadata.state.undecodable)
    metrics.gauge("undecodable_bodies", lambda: len(metadata.catalog.undecodable))
    for duty in duties:
        # `duties` names the latest life of each.
        metrics.gauge("is_in_trouble", lambda duty=duty: float(bool(duties[duty]())), part=duty)  # type: ignore[misc]
    return metrics


def _replicator(
    config: Config, environment: NodeEnvironment, source: Log, own: Metadata
) -> Callable[[], Replicator]:
    return lambda: Replicator(
        source,
        own,
        clock=environment.clock,
        rng=environment.split_rng(),
        digest_interval_s=config.metadata.digest_interval_ms / 1_000,
    )


@asynccontextmanager
async def _open_frontend(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    metrics = Metrics("hermes_frontend")
    node.metrics.append(metrics)
    async with (
        open_spooling(
            environment.open_spool,
            node.config,
            node.metadata,
            environment.log,
            lambda _topic: [
                log
                for dc, log in environment.remote_logs.items()
                if node.metadata.catalog.is_ready(dc)
            ],
            control=node.control,
            metrics=metrics,
            clock=environment.clock,
            rng=environment.split_rng(),
        ) as spooling,
        open_supervisor(environment.split_rng(), _log_crash) as producers,
        trio.open_nursery() as nursery,
    ):
        node.duties = {**node.duties, "spool": spooling.trouble}
        frontend = Frontend(
            node.config.frontend,
            environment.log,
            producers,
            metrics,
            environment.clock,
            environment.ids,
            envelope=node.config.log.envelope,
            buffer_of=spooling.buffer_of,
            reserve_ms=spooling.reserve_ms,
            fallback=Fallback(
                node.config.fallback,
                environment.log,
                environment.remote_logs,
                nursery,
                environment.clock,
                environment.split_rng(),
                metrics,
                is_ready=node.metadata.catalog.is_ready,
                trouble=environment.remote_trouble,
            ),
            trouble=lambda: node.trouble,
            authenticator=node.authenticator,
            unready=_start_readiness_check(node, environment),
            render_all=lambda: render_in_turns(node.metrics),
        )
        node.producers = producers
        node.frontend = frontend
        nursery.start_soon(frontend.deadlines.run)
        node.control.start("router", lambda: Router(node.metadata, frontend.routes))
        if previews := frontend.gateway.previews:
            node.control.start(
                "preview reporter",
                lambda: PreviewReporter(
                    environment.log,
                    previews.take_all,
                    node=node.config.node,
                    clock=environment.clock,
                    interval_s=node.config.frontend.preview.interval_ms / 1_000,
                    may_write=lambda: node.metadata.is_own,
                ),
            )
        yield
        # Not in a `finally`: a node that is cancelled stops as if it had been killed.
        with trio.move_on_after(_STOP_GRACE_S):
            await node.control.stop("router")
            if previews:
                await node.control.stop("preview reporter")
            await _stop_all(producers)
        nursery.cancel_scope.cancel()


async def _open_authenticator(node: Node, environment: NodeEnvironment) -> Authenticator | None:
    """The mechanisms by which accounts are known, if anybody is asked. Raises StartupError."""
    config = node.config
    if not (config.frontend.authentication.enabled or config.management.authentication.enabled):
        return None
    authenticator = await open_authenticator(config.security, environment.clock, environment.ids)
    node.metrics.append(authenticator.metrics)
    node.control.start("security", lambda: authenticator)
    return authenticator


def _security_of_management(node: Node) -> SecurityProvider | None:
    """Who may administer; None: everybody."""
    config = node.config.management.authentication
    if node.authenticator is None or not config.enabled:
        return None
    return AccountProvider(node.authenticator, config)


def _start_readiness_check(node: Node, environment: NodeEnvironment) -> Callable[[], str]:
    """What keeps publishers away beside the node's own trouble, if that is looked at."""
    config = node.config.frontend.readiness
    if not config.check_enabled:
        return str
    check = ReadinessCheck(node.metadata, environment.log, config)
    node.control.start("readiness check", lambda: check)
    return lambda: check.reason


@asynccontextmanager
async def _open_consumers(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    config = node.config
    metrics = Metrics("hermes_consumers")
    node.metrics.append(metrics)
    async with environment.open_senders() as sender_of:
        parts = ConsumerParts(
            log=environment.log,
            sender_of=sender_of,
            clock=environment.clock,
            rng=environment.split_rng(),
            ids=environment.ids,
            metrics=metrics,
            config=config.consumers,
        )

        stop_grace_s = config.consumers.stop_grace_ms / 1_000 + _COMMIT_GRACE_S

        def forget(gone: LiveSubscription) -> None:
            name = gone.name
            metrics.forget(group=name.topic.group, topic=name.topic.name, subscription=name.name)

        def make() -> Agent:
            node.agent = Agent(
                node.metadata,
                ConsumerFactory(parts),
                node=config.node,
                nodes=environment.consumer_nodes,
                rng=environment.split_rng(),
                stop_grace_s=stop_grace_s,
                on_gone=forget,
            )
            return node.agent

        node.control.start("agent", make)
        yield
        await node.control.stop("agent", grace_s=stop_grace_s + _COMMIT_GRACE_S)


async def _stop_all(supervisor: Supervisor) -> None:
    async with trio.open_nursery() as nursery:
        for name in supervisor.statistics():
            nursery.start_soon(supervisor.stop, name)


def _log_crash(crash: Crash) -> None:
    again = "is not restarted" if crash.delay_s is None else f"restarts in {crash.delay_s:.1f} s"
    if isinstance(crash.error, StartupError):
        # Its message says what to mend; where in the code it was found mends nothing.
        _logger.error("%s %s: %s", crash.name, again, crash.error.message)
        return
    _logger.error("%s failed and %s: %r", crash.name, again, crash.error, exc_info=crash.error)
