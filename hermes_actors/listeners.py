"""A node with its listening sockets: opened at the start, drained and closed at the stop."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import trio
from litestar import Router
from msgspec import Struct

from hermes_actors.actors.restart import TENANT
from hermes_actors.actors.supervisor import run_until
from hermes_actors.config import Config, FrontendConfig
from hermes_actors.config.delivery import PullConfig
from hermes_actors.config.publishing import MemoryConfig
from hermes_actors.console.console import Console
from hermes_actors.console.front import Front
from hermes_actors.console.history import History
from hermes_actors.console.routes import console_routes
from hermes_actors.console.sessions import Sessions
from hermes_actors.management.access.roles import require_allowed
from hermes_actors.management.access.table import rule_of
from hermes_actors.management.administration import Administration
from hermes_actors.management.app import build_app
from hermes_actors.management.http.gate import Gate
from hermes_actors.node import Node, NodeEnvironment, open_node
from hermes_actors.node.keyed import App
from hermes_actors.node.pulling import pull_app
from hermes_actors.publisher.edges.asgi import AsgiServer
from hermes_actors.publisher.edges.publishing import PagesEdge
from hermes_actors.publisher.edges.server import FrontendServer, HttpServer
from hermes_actors.publisher.edges.tls import CERTIFICATES, ListenerTls
from hermes_actors.publisher.status import Pages
from hermes_actors.runtime import guest
from hermes_actors.runtime.bridge import TrioBridge, open_bridge
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.account import Credentials
from hermes_actors.security.watched import watched_files
from hermes_actors.status.dependencies import reasons
from hermes_actors.telemetry.metrics import Metrics, render_in_turns

_HEADERS_MAX = 100
_PATIENCE_S = 2.0
_SAID_EACH_S = 60.0
_logger = logging.getLogger(__name__)


class Addresses(Struct, frozen=True, omit_defaults=True):
    """The base URLs of a node. Empty string for listeners that it does not have."""

    dc: str
    publish: str = ""
    publish_tls: str = ""
    management: str = ""
    management_tls: str = ""
    status: str = ""
    grpc: str = ""
    """Host and port."""


async def serve_node(
    config: Config,
    environment: NodeEnvironment,
    stop: trio.Event,
    *,
    leaving: trio.Event | None = None,
    task_status: trio.TaskStatus[Addresses] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run a node with its listeners until `stop` is set, then drain it. From `leaving` on, which
    may come earlier, it reports that it is not ready.

    `task_status` gets the addresses once the node is ready, or when `stop` is set before. If the
    node is not ready after two seconds (for example because its log is unavailable), it listens
    nevertheless: then its health and readiness show the reason. Raises StartupError if a port is in
    use, and RestartIntensityExceeded if the node does not recover.
    """
    async with open_node(config, environment) as node, AsyncExitStack() as listeners:
        # The sockets are bound first, so that a port in use is reported at once.
        certificates = Metrics("hermes_certificate", meanings=CERTIFICATES)
        node.metrics.append(certificates)
        front = _Front(node, environment.clock, certificates)
        listeners.push_async_callback(front.close)
        management, management_tls = await listeners.enter_async_context(
            _open_management(node, environment, certificates)
        )
        await listeners.enter_async_context(_open_internals(node, environment.clock))
        grpc = await listeners.enter_async_context(
            _open_grpc(node, environment.clock, certificates)
        )
        if await _wait_prepared(node, stop, front.listen):
            await front.open()
        task_status.started(
            Addresses(
                config.dc,
                front.publish,
                front.publish_tls,
                management,
                management_tls,
                front.status,
                grpc,
            )
        )

        async def announce() -> None:
            if leaving is not None:
                await leaving.wait()
                front.drain.announce()

        await run_until(stop, announce)
        await front.drain.run()
        await node.memory.settle()


class _Front:
    """A node's public listeners: for publishing, and for status pages if it does not publish, or
    shares its publishing port with other nodes.
    """

    def __init__(self, node: Node, clock: Clock, certificates: Metrics) -> None:
        config = node.config
        self.publish = self.publish_tls = self.status = ""
        self._is_listening = False
        self._servers: list[HttpServer] = []
        self.drain = node.drain
        if node.frontend is not None:
            server: HttpServer = FrontendServer(node.frontend)
            self._servers.append(server)
            self.publish, self.publish_tls = _urls(config.frontend.host, server)
            _renew(node, server.tls, "frontend", certificates)
            if not config.frontend.reuse_port:
                return
        listener = FrontendConfig(
            host=config.status.host, port=config.status.port, headers_max=_HEADERS_MAX
        )
        pages = Pages(self.drain, lambda: render_in_turns(node.metrics), config.dc, config.node)
        make_edge = partial(PagesEdge, pages, listener)
        server = HttpServer(make_edge, listener, clock, field="status.port")
        self._servers.append(server)
        self.status, _ = _urls(config.status.host, server)

    async def listen(self) -> None:
        """Answer requests. Publishes are refused until `open`."""
        if not self._is_listening:
            self._is_listening = True
            for server in self._servers:
                await guest.call(server.start)

    async def open(self) -> None:
        """Start working: accept publishes, and report ready."""
        if self.publish or self.publish_tls:
            # In this order, so that an open port always accepts publishes.
            self.drain.open()
            await self.listen()
        else:
            await self.listen()
            self.drain.open()

    async def close(self) -> None:
        """Stop listening, also if the node is cancelled."""
        if self._is_listening:
            with trio.CancelScope(shield=True):
                for server in self._servers:
                    await guest.call(server.stop)


async def _wait_prepared(
    node: Node, stop: trio.Event, on_patience_over: Callable[[], Awaitable[None]]
) -> bool:
    """Wait until the node is ready (True) or asked to stop (False)."""
    is_prepared = False
    async with trio.open_nursery() as waiting:

        async def give_up() -> None:
            await stop.wait()
            waiting.cancel_scope.cancel()

        async def say_why() -> None:
            await trio.sleep(_PATIENCE_S)
            await on_patience_over()
            while True:
                waits_for = "; ".join(reasons(node.dependencies()))
                _logger.warning("%s: not ready, waits for its %s", node.config.dc, waits_for)
                await trio.sleep(_SAID_EACH_S)

        waiting.start_soon(give_up)
        waiting.start_soon(say_why)
        await node.wait_prepared()
        is_prepared = True
        waiting.cancel_scope.cancel()
    return is_prepared


@asynccontextmanager
async def _open_management(
    node: Node, environment: NodeEnvironment, certificates: Metrics
) -> AsyncIterator[tuple[str, str]]:
    """Serve the management API and the console for the block. Yields the URLs, plain and with TLS;
    an empty string for one that is not served.
    """
    if node.administration is None:
        yield "", ""
        return
    config, parts = node.config.management, node.administration
    clock = environment.clock
    sessions = Sessions(f"{node.config.dc}/{node.config.node}", clock, environment.ids)
    history = History(parts.statuses.figures)
    node.control.start_task("console", history.run, restart=TENANT)

    def pages(gate: Gate) -> list[Router]:
        return [console_routes(Console(gate, parts, node.config, clock, sessions, history))]

    async with open_bridge() as bridge:
        app = build_app(parts, bridge, node.config, node.metrics, pages)
        server = AsgiServer(
            Front(app, sessions),
            # Settings of management's own listener; those of publishing do not apply.
            FrontendConfig(
                host=config.host,
                port=config.port,
                tls=config.tls.listener,
                headers_max=_HEADERS_MAX,
                head_timeout_ms=config.head_timeout_ms,
                header_bytes_max=config.header_bytes_max,
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
            ),
            clock,
            field="management.port",
            idle_s=config.idle_connection_timeout_ms / 1_000,
        )
        _renew(node, server.tls, "management", certificates)
        await guest.call(server.start)
        try:
            yield _urls(config.host, server)
        finally:
            # Closing the bridge ends open streams of messages, for which the server would wait.
            bridge.close()
            with trio.CancelScope(shield=True):
                await guest.call(server.stop)


@asynccontextmanager
async def _open_internals(node: Node, clock: Clock) -> AsyncIterator[None]:
    """Hand out messages of pull subscriptions and of topics in memory to other nodes during the
    block.
    """
    async with AsyncExitStack() as listeners:
        if "consumers" in node.config.roles:
            pull, key = node.config.consumers.pull, node.environment.ids.message_id()
            made = _open_internal(pull, "consumers.pull", partial(pull_app, node, key), clock)
            node.pull = (await listeners.enter_async_context(made), key)
        if node.memory.held is not None:
            memory = node.config.frontend.memory
            made = _open_internal(memory, "frontend.memory", node.memory.app, clock)
            node.memory.listen(await listeners.enter_async_context(made))
        yield


@asynccontextmanager
async def _open_internal(
    config: PullConfig | MemoryConfig, field: str, make: Callable[[TrioBridge], App], clock: Clock
) -> AsyncIterator[str]:
    """Serve other nodes during the block. Yields the URL for them."""
    async with open_bridge() as bridge:
        listener = FrontendConfig(host=config.host, port=config.port, headers_max=_HEADERS_MAX)
        server = AsgiServer(make(bridge), listener, clock, field=f"{field}.port", idle_s=60.0)
        await guest.call(server.start)
        try:
            yield config.url or _urls(config.host, server)[0]
        finally:
            bridge.close()
            with trio.CancelScope(shield=True):
                await guest.call(server.stop)


@asynccontextmanager
async def _open_grpc(node: Node, clock: Clock, certificates: Metrics) -> AsyncIterator[str]:
    """Serve gRPC during the block, if that is enabled. Yields host and port."""
    config = node.config.grpc
    if not config.enabled:
        yield ""
        return
    # Loading gRPC takes a tenth of a second and 10 MiB, which nodes without it save.
    from hermes_actors.publisher.edges.grpc.publishing import PublisherCalls
    from hermes_actors.publisher.edges.grpc.server import GrpcServer
    from hermes_actors.publisher.edges.grpc.subscribing import SubscriberCalls

    async with open_bridge() as bridge:
        parts, frontend = node.administration, node.frontend
        subscriber = None
        if parts is not None:
            subscriber = SubscriberCalls(partial(_asked_of_owner, parts), bridge, clock)
            node.drain.on_closed.append(subscriber.end_all)
        server = GrpcServer(
            config,
            node.drain,
            None if frontend is None else PublisherCalls(frontend),
            subscriber,
            body_bytes_max=node.config.frontend.body_bytes_max,
            header_bytes_max=node.config.frontend.header_bytes_max,
        )
        _renew(node, server.tls, "grpc", certificates)
        await guest.call(server.bind)
        await guest.call(server.start)
        try:
            yield f"{config.host}:{server.port}"
        finally:
            bridge.close()
            with trio.CancelScope(shield=True):
                await guest.call(server.stop)


async def _asked_of_owner(
    parts: Administration,
    credentials: Credentials,
    verb: str,
    topic: str,
    subscription: str,
    body: Mapping[str, Any],
) -> bytes:
    """As the route of management: identify the client, check its rights, and call."""
    parts.health.require_readable()
    caller = await parts.security.identify(credentials)
    if caller is None:
        raise parts.security.refusal()
    rule = rule_of("POST", "/topics/{topic}/subscriptions/{name}/" + verb)
    require_allowed(caller, rule, f"{verb} from subscription {topic}${subscription}")
    pulls = parts.pulls
    calls = {"pull": pulls.pull, "ack": pulls.ack, "nack": pulls.nack, "extend": pulls.extend}
    return await calls[verb](caller, topic, subscription, body)


def _renew(node: Node, tls: ListenerTls | None, listener: str, certificates: Metrics) -> None:
    """Load the listener's certificate again when its files change."""
    if tls is None:
        return
    certificate = watched_files(
        f"{listener}.tls",
        tls.files,
        tls.renewed,
        tls.expires_s,
        node.environment.clock,
        node.config.security.file_check_interval_ms / 1_000,
    )
    node.follow(certificate)
    certificates.gauge("expires_timestamp_seconds", lambda: certificate.value, listener=listener)
    node.control.start_task(f"certificate {listener}", lambda _stop: certificate.run())


def _urls(host: str, server: HttpServer) -> tuple[str, str]:
    """The server's URLs, plain and with TLS; an empty string for one that is not served."""
    shown = f"[{host}]" if ":" in host else host
    plain, tls = server.port, server.tls_port
    return (
        "" if plain is None else f"http://{shown}:{plain}",
        "" if tls is None else f"https://{shown}:{tls}",
    )
