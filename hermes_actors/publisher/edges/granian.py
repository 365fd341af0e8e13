"""Serves the RSGI edge by granian, embedded in the host loop: the fast server of `[fast]`."""

import asyncio
import ssl
from importlib import import_module
from pathlib import Path
from typing import Any

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import StartupError
from hermes_actors.publisher.edges.authorities import trust_clients
from hermes_actors.publisher.edges.rsgi import RsgiEdge
from hermes_actors.publisher.edges.sockets import free_port
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.status import Pages

_BACKLOG = 4_096
_IDLE_MS = 60_000
_STREAMS_MAX = 1_000
_START_S = 10.0


class GranianServer:
    """Listeners for an RSGI app; addresses are checked when it is made, bound when it starts.

    `tls_port` is None without a certificate. Raises StartupError when granian is not installed, an
    address is taken or a certificate cannot be read.
    """

    def __init__(self, edge: object, config: FrontendConfig) -> None:
        self._server_class: Any = _granian("granian.server.embed").Server
        self._edge = edge
        self._config = config
        self._servers: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        if config.tls.certificate_file:
            _check_certificate(config)
        if config.tls.client_auth == "requested":
            raise StartupError(
                "frontend.tls.client_auth: granian can only require client certificates, not "
                'request them; set it to "required", or frontend.server to "hypercorn"'
            )
        # granian shares a port with any other listener that lets it, each getting half of the
        # connections; nobody wants that by accident.
        self.port = free_port(config.host, config.port, field="frontend.port")
        self.tls_port: int | None = None
        if config.tls.certificate_file:
            self.tls_port = free_port(config.host, config.tls.port, field="frontend.tls.port")

    async def start(self) -> None:
        """Accept connections from now on; on the host loop. Raises StartupError."""
        await self._start_one(self.port, {})
        if self.tls_port is not None:
            tls = self._config.tls
            options: dict[str, Any] = {
                "ssl_cert": Path(tls.certificate_file),
                "ssl_key": Path(tls.key_file),
            }
            if tls.client_auth == "required":
                options |= {"ssl_ca": Path(tls.client_ca_file), "ssl_client_verify": True}
            await self._start_one(self.tls_port, options)

    async def stop(self, grace_s: float = 3.0) -> None:
        """Accept no more, let the requests under way end for up to `grace_s`, close all."""
        for server in self._servers:
            server.stop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start_one(self, port: int, tls_options: dict[str, Any]) -> None:
        config = self._config
        http = _granian("granian.http")
        server = self._server_class(
            self._edge,
            address=config.host,
            port=port,
            interface=_granian("granian.constants").Interfaces.RSGI,
            websockets=False,
            backlog=_BACKLOG,
            # Its default is the backlog's; connections above it are not refused, they starve.
            backpressure=config.connections_max,
            http1_settings=http.HTTP1Settings(header_read_timeout=_IDLE_MS),
            http2_settings=http.HTTP2Settings(
                max_concurrent_streams=_STREAMS_MAX, max_headers_size=config.header_bytes_max
            ),
            log_enabled=False,
            ssl_protocol_min=_granian("granian.constants").SSLProtocols.tls12,
            **tls_options,
        )
        task = asyncio.get_running_loop().create_task(server.serve())
        self._servers.append(server)
        self._tasks.append(task)
        await self._wait_until_listening(port, task)

    async def _wait_until_listening(self, port: int, task: "asyncio.Task[None]") -> None:
        """Granian binds in threads of its own and does not say when."""
        host = self._config.host
        try:
            async with asyncio.timeout(_START_S):
                while not task.done():
                    try:
                        _, writer = await asyncio.open_connection(host, port)
                    except OSError:
                        await asyncio.sleep(0.01)
                    else:
                        writer.close()
                        return
        except TimeoutError:
            pass
        error = task.exception() if task.done() and not task.cancelled() else None
        raise StartupError(f"frontend.port: granian cannot listen on {host} port {port}: {error}")


def rsgi_edge(gateway: Gateway, pages: Pages, config: FrontendConfig) -> RsgiEdge:
    """The RSGI edge with granian's own exceptions. Raises StartupError without granian."""
    rsgi = _granian("granian.rsgi")
    return RsgiEdge(gateway, pages, config, (rsgi.ProtocolClosed, rsgi.ProtocolError))


def _granian(module: str) -> Any:
    """A module of granian, which is an extra and need not be installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise StartupError(
            "frontend.server: granian is not installed; pip install 'hermes_actors[fast]', "
            'or set it to "hypercorn"'
        ) from error


def _check_certificate(config: FrontendConfig) -> None:
    tls = config.tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"frontend.tls: {tls.certificate_file} and {tls.key_file} cannot be used: {error}; "
            "both are PEM files, the key that of the certificate"
        ) from error
    # granian would end the whole process with a panic.
    trust_clients(context, tls)
