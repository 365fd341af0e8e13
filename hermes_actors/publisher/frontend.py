"""Assembles the parts of one node's publishing side."""

from collections.abc import Awaitable, Callable, Sequence

from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config import FrontendConfig
from hermes_actors.fallback.node import Fallback
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.log.base import Log
from hermes_actors.model.message import Envelope
from hermes_actors.publisher.authentication import PublishSecurity
from hermes_actors.publisher.batches.node import Batches
from hermes_actors.publisher.deadlines import Deadlines
from hermes_actors.publisher.drain import Drain
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.measures import FrontendMeasures
from hermes_actors.publisher.pending import ListenersOf, SchemaOf
from hermes_actors.publisher.router import Routes
from hermes_actors.publisher.status import Pages
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.security.authenticator import Authenticator
from hermes_actors.status.dependencies import Dependency
from hermes_actors.status.record import Published
from hermes_actors.telemetry.metrics import Metrics, render_in_turns


class Frontend:
    """Everything but the tasks and the HTTP server.

    The owner runs `deadlines.run` in a nursery and `routes.follow` under a supervisor, puts a
    server in front of `gateway` and `pages`, calls `drain.open()` when it listens, and
    `drain.run()` to end. `metrics` has the prefix `hermes_frontend`; `render_all` renders the
    metrics of the whole node, by default only these. `dependencies` goes to the Drain, `spool`,
    `fallback`, `schema_of` and `listeners_of` to Routes, `doubt_about` to the Gateway, and the
    pages show `node`.
    """

    def __init__(
        self,
        config: FrontendConfig,
        log: Log,
        supervisor: Supervisor,
        metrics: Metrics,
        clock: Clock,
        ids: IdSource,
        *,
        envelope: Envelope = Envelope.NATIVE,
        spool: Spool | None = None,
        fallback: Fallback | None = None,
        authenticator: Authenticator | None = None,
        dependencies: Callable[[], Sequence[Dependency]] = tuple,
        render_all: Callable[[], Awaitable[bytes]] | None = None,
        doubt_about: Callable[[str], str] = lambda _topic: "",
        schema_of: SchemaOf = lambda _topic: None,
        listeners_of: ListenersOf = lambda _topic: (),
        node: str = "",
    ) -> None:
        self.config = config
        self.clock = clock
        self.deadlines = Deadlines(clock)
        self.drain = Drain(
            initial_wait_ms=config.graceful_shutdown_initial_wait_ms,
            drain_ms=config.graceful_shutdown_drain_ms,
            dependencies=dependencies,
        )
        self.measures = measures = FrontendMeasures(metrics, log.dc, lambda: self.drain.in_flight)
        self.routes = Routes(
            config,
            log,
            supervisor,
            self.deadlines,
            measures,
            self.drain,
            clock,
            envelope=envelope,
            spool=spool,
            fallback=fallback,
            schema_of=schema_of,
            listeners_of=listeners_of,
        )
        self.gateway = Gateway(
            config,
            self.routes.by_name,
            self.drain,
            self.deadlines,
            measures,
            clock,
            ids,
            doubt_about,
        )
        self.batches = batches = Batches(config, self.gateway)
        self.drain.on_closed.append(batches.end_all)
        measures.watch(self.gateway.demands, batches)
        if config.authentication.enabled:
            assert authenticator is not None, "authentication needs an authenticator"
            self.gateway.security = PublishSecurity(
                authenticator,
                config.authentication.mode == "pro_active",
                self.routes.by_name,
                self.drain,
                measures,
            )
        render = render_all or (lambda: render_in_turns([metrics]))
        self.pages = Pages(self.drain, render, log.dc, node)

    def topics(self) -> list[str]:
        """The topics (`group.topic`) that have received publishes on this node."""
        return [
            name
            for name, route in self.routes.by_name.items()
            if route.measures.requests.value or route.measures.published() != Published()
        ]

    def published(self, topic: str) -> Published | None:
        """Return the totals of a topic since the node's start; None if the topic is gone."""
        route = self.routes.by_name.get(topic)
        return None if route is None else route.measures.published()

    def latency_ms(self, topic: str) -> tuple[float, float] | None:
        """The median and the 99th percentile of the topic's latencies in the last minute, in ms;
        None if there were no publishes.
        """
        route = self.routes.by_name.get(topic)
        return None if route is None else route.measures.recent_latency.ms(self.clock.monotonic_s())
