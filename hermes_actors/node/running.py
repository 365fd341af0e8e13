"""A running node, as its listeners and its tests see it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

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
from hermes_actors.management.administration import Administration
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.topic import Topic
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.pending import Transitions as PublishTransitions
from hermes_actors.schema.client import RegistryClient
from hermes_actors.schema.compiled import CompiledSchemas
from hermes_actors.schema.source import SchemaSource
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.telemetry.metrics import Metrics
from hermes_actors.tracking.reader import TrackingFollowing

_logger = logging.getLogger("hermes_actors.node")

_ROUTING_POLL_S = 0.005


@dataclass
class Node:
    """A running node, as its listeners and its tests see it. Absent roles are None."""

    config: Config
    metadata: Metadata
    log_trouble: Callable[[], str]
    control: Supervisor
    schemas: SchemaSource
    registry: RegistryClient | None = None
    """The external registry of schemas, if there is one."""
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
    """The duties of this node for its whole datacentre, each with what keeps it from getting on."""
    standstills: Callable[[], list[str]] = list
    """For people: how its event loop stood still lately."""
    publish_listeners: list[Callable[[Topic], PublishTransitions | None]] = field(
        default_factory=list
    )
    """Give, for each topic, those that hear of its publishes; None: it has nothing to hear. Known
    before the frontend opens."""
    delivery_listeners: list[Callable[[LiveSubscription], Transitions | None]] = field(
        default_factory=list
    )
    """Make, for each consumer, those that hear of its messages beside its counters; None: it has
    nothing to hear."""
    cover: Callable[[LiveSubscription], Cover | None] = uncovered
    """Gives what a subscription's commits wait for."""
    tracking: TrackingFollowing | None = None
    """Where a management node looks messages up."""
    compiled: CompiledSchemas = field(default_factory=CompiledSchemas)
    """The Avro schemas that it publishes and delivers with."""
    boot_id: str = ""
    """The name of this life of the node."""
    replayed: list[Appended] = field(default_factory=list)
    """Hear of what the spool has sent."""
    spool_lost: Callable[[], str] = str
    """Why the spool keeps nothing more until the node is started again."""

    @property
    def trouble(self) -> str:
        """The reason why the node cannot do its work, in words; "" when there is none."""
        if not self.metadata.is_readable:
            return f"metadata: {self.metadata.health.reason}"
        if not self.metadata.is_own:
            # Another datacentre's, which need not know all that is here.
            return f"metadata: not read from the own log yet: {self.metadata.health.reason}"
        trouble = self.log_trouble()
        if trouble:
            return f"log: {trouble}"
        lost = self.spool_lost()
        return f"spool: {lost}" if lost else ""

    def notices(self) -> list[str]:
        """Return what is to be known of a node that can do its work all the same: what its metadata
        may lack, the duties that do not get on, and how its loop stood still lately.
        """
        duties = [f"{duty}: {trouble()}" for duty, trouble in self.duties.items() if trouble()]
        lacking = self.metadata.lacking
        return [*([lacking] if lacking else []), *duties, *self.standstills()]

    async def wait_prepared(self) -> None:
        """Wait until the metadata can be read and every topic in it can be published to."""
        await self.metadata.wait_readable()
        if self.frontend is not None:
            # The router is told of the topics in the same turn; it needs some turns to take them.
            routes = self.frontend.routes.by_name
            while any(name not in routes for name in list(self.metadata.catalog.topics)):  # noqa: ASYNC110
                await trio.sleep(_ROUTING_POLL_S)


def log_crash(crash: Crash) -> None:
    """Say which actor failed, why, and when it runs again."""
    again = "is not restarted" if crash.delay_s is None else f"restarts in {crash.delay_s:.1f} s"
    if isinstance(crash.error, StartupError):
        # Its message says what to mend; where in the code it was found mends nothing.
        _logger.error("%s %s: %s", crash.name, again, crash.error.message)
        return
    _logger.error("%s failed and %s: %r", crash.name, again, crash.error, exc_info=crash.error)
