"""A running node, for its listeners and tests."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from hermes_actors.actors.supervisor import Crash, Supervisor
from hermes_actors.balancer.agent import Agent
from hermes_actors.balancer.presence import Presence
from hermes_actors.config import Config
from hermes_actors.consumer.delivery.delivery import Transitions
from hermes_actors.consumer.delivery.parts import ConsumerParts, Cover, uncovered
from hermes_actors.consumer.letters.open_counts import OpenCounts
from hermes_actors.coordination.view import Coordination
from hermes_actors.errors import StartupError
from hermes_actors.fallback.spool.replay import Appended
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.management.administration import Administration
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.topic import Topic
from hermes_actors.node.dependencies import NodeFacts, dependencies_of
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.memory import Memory
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.pending import Transitions as PublishTransitions
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.client import RegistryClient
from hermes_actors.schema.source import SchemaSource
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.security.watched import Watched
from hermes_actors.status.dependencies import Dependency, notices
from hermes_actors.telemetry.metrics import Metrics
from hermes_actors.tracking.reader import TrackingFollowing

_logger = logging.getLogger("hermes_actors.node")

_ROUTING_POLL_S = 0.005


@dataclass
class Node:
    """A running node. The parts of absent roles are None."""

    config: Config
    metadata: Metadata
    environment: NodeEnvironment
    control: Supervisor
    schemas: SchemaSource
    pool: WorkerPool
    memory: Memory
    registry: RegistryClient | None = None
    """The client of an external schema registry, if there is one."""
    frontend: Frontend | None = None
    producers: Supervisor | None = None
    agent: Agent | None = None
    open_letters: OpenCounts | None = None
    consumer_parts: ConsumerParts | None = None
    coordination: Coordination | None = None
    presence: Presence | None = None
    administration: Administration | None = None
    authenticator: Authenticator | None = None
    metrics: list[Metrics] = field(default_factory=list)
    duties: dict[str, Callable[[], str]] = field(default_factory=dict)
    """The node's tasks for its datacentre, each with a function that returns its trouble."""
    spool: Spool | None = None
    traffic: Callable[[], Sequence[Dependency]] = tuple
    """Dependencies of publishing, in addition to the node's own."""
    publish_listeners: list[Callable[[Topic], PublishTransitions | None]] = field(
        default_factory=list
    )
    """Each returns the listener for the publishes to a topic, or None. Complete before the frontend
    opens.
    """
    delivery_listeners: list[Callable[[LiveSubscription], Transitions | None]] = field(
        default_factory=list
    )
    """Each returns the listener for a subscription's messages, or None; added when a consumer is
    made.
    """
    cover: Callable[[LiveSubscription], Cover | None] = uncovered
    """Returns what a subscription's commits have to wait for, or None."""
    tracking: TrackingFollowing | None = None
    """The search for tracked messages, on a management node."""
    boot_id: str = ""
    """The id of this life of the node."""
    pull: tuple[str, str] = ("", "")
    """Where other nodes reach its pull listener, and the secret by which they are known there."""
    replayed: list[Appended] = field(default_factory=list)
    """Called after each append from the spool."""

    def __post_init__(self) -> None:
        # A frontend replaces it by its own, which waits for its publishes.
        self.drain = Drain(initial_wait_ms=0, drain_ms=0, dependencies=self.dependencies)

    def follow(self, watched: Watched[Any]) -> None:
        """Show its trouble among the dependencies, and read it again at SIGHUP."""
        self.environment.watched.append(watched)
        self.duties[watched.field] = lambda: watched.trouble

    def dependencies(self) -> list[Dependency]:
        """The state of everything that the node depends on, and what of it is needed for
        readiness.
        """
        return dependencies_of(self._facts())

    def notices(self) -> list[str]:
        """Problems that do not keep the node from working."""
        return notices(self.dependencies())

    def doubt_about(self, topic: str) -> str:
        """Why `group.topic`, which is unknown here, may exist; empty string if nothing
        suggests it.
        """
        # Only these two facts: any client may ask for topics that do not exist, so this must be
        # cheap.
        if standing_in := self._standing_in():
            return f"metadata: {standing_in}"
        log = self.environment.log_trouble()
        return f"log: {log}" if log else self.metadata.doubt_about(topic)

    def _facts(self) -> NodeFacts:
        metadata, environment, spool = self.metadata, self.environment, self.spool
        now_s = environment.clock.monotonic_s()
        return NodeFacts(
            publishes="frontend" in self.config.roles,
            consumes="consumers" in self.config.roles,
            metadata="" if metadata.is_readable else metadata.health.reason,
            standing_in=self._standing_in(),
            behind=metadata.behind,
            lacking=metadata.lacking,
            log=environment.log_trouble(),
            log_lost=environment.lost(),
            spool=None if spool is None else spool.trouble,
            traffic=tuple(self.traffic()),
            coordination=self._coordination(),
            remote_logs={dc: environment.remote_trouble(dc) for dc in environment.remote_logs},
            duties={duty: trouble() for duty, trouble in self.duties.items()},
            loop=environment.loop.trouble(now_s),
        )

    def _standing_in(self) -> str:
        """Why the metadata is another datacentre's, and may be incomplete; empty string if it is
        the own.
        """
        metadata = self.metadata
        return "" if metadata.is_own else f"not read from the own log yet: {metadata.health.reason}"

    def _coordination(self) -> str | None:
        """Why coordination does not work on this node; empty string if it does, None if the node
        has none.
        """
        if self.coordination is None or self.coordination.trouble:
            return None if self.coordination is None else self.coordination.trouble
        if "consumers" not in self.config.roles:
            return ""
        lease = None if self.presence is None else self.presence.lease
        if lease is None or lease.is_lost:
            return "the node does not take part yet"
        return "" if lease.is_open() else "its own heartbeats are not seen, so it delivers nothing"

    async def wait_prepared(self) -> None:
        """Wait until the metadata can be read, and every topic in it can be published to."""
        await self.metadata.wait_readable()
        if self.frontend is not None:
            # The router gets the topics in the same turn, but needs some turns to start their
            # producers.
            routes = self.frontend.routes.by_name
            while any(name not in routes for name in list(self.metadata.catalog.topics)):  # noqa: ASYNC110
                await trio.sleep(_ROUTING_POLL_S)


def log_crash(crash: Crash) -> None:
    """Log which actor failed, why, and when it restarts."""
    again = "is not restarted" if crash.delay_s is None else f"restarts in {crash.delay_s:.1f} s"
    if isinstance(crash.error, StartupError):
        # The message says how to solve it; a traceback would not help.
        _logger.error("%s %s: %s", crash.name, again, crash.error.message)
        return
    _logger.error("%s failed and %s: %r", crash.name, again, crash.error, exc_info=crash.error)
