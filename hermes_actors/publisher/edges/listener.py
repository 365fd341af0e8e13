"""Listening sockets with their TLS, and how many connections they take."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable

from hypercorn.config import Config

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import StartupError
from hermes_actors.publisher.edges.authorities import trust_clients
from hermes_actors.publisher.edges.sockets import bind, port_of

SWEEP_S = 0.2
"""How often a listener looks after its connections."""
LEAVE_S = 0.5
"""How long a connection of a listener that ends may idle before it is closed: a request that is on
its way by then is answered, after which its client moves on.
"""

_BACKLOG = 4_096


class Listener:
    """A plain address, and one with TLS if there is a certificate; both bound when made.

    `tls_port` is None without a certificate. `field` names the setting that a port in use is
    reported under. Raises StartupError when an address cannot be bound or a certificate cannot be
    read.
    """

    def __init__(self, config: FrontendConfig, field: str) -> None:
        section = field.rpartition(".")[0] + ".tls"
        self._tls = _tls_context(config, section) if config.tls.certificate_file else None
        self._handshake_timeout_s = config.head_timeout_ms / 1_000
        self._servers: list[asyncio.Server] = []
        self._socket = bind(config.host, config.port, field=field, reuse_port=config.reuse_port)
        self.port = port_of(self._socket)
        self.tls_port: int | None = None
        if self._tls is not None:
            try:
                self._tls_socket = bind(
                    config.host,
                    config.tls.port,
                    field=f"{section}.port",
                    reuse_port=config.reuse_port,
                )
            except StartupError:
                self._socket.close()
                raise
            self.tls_port = port_of(self._tls_socket)

    async def start(self, make: Callable[[], asyncio.Protocol]) -> None:
        """Accept connections from now on, each with a protocol of its own; on the host loop."""
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(make, sock=self._socket, backlog=_BACKLOG))
        if self._tls is not None:
            self._servers.append(
                await loop.create_server(
                    make,
                    sock=self._tls_socket,
                    backlog=_BACKLOG,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._handshake_timeout_s,
                )
            )

    def stop(self) -> None:
        """Accept no more."""
        for server in self._servers:
            server.close()
        if not self._servers:
            self._socket.close()
            if self.tls_port is not None:
                self._tls_socket.close()


class Places:
    """How many connections there may be, in all and of one address."""

    def __init__(self, config: FrontendConfig) -> None:
        self._free = config.connections_max
        self._per_address_max = config.connections_per_address_max or config.connections_max
        self._by_address: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """A place for a connection from this address; False when there is none."""
        if not self._free or self._by_address[address] >= self._per_address_max:
            return False
        self._free -= 1
        self._by_address[address] += 1
        return True

    def give_back(self, address: str) -> None:
        """The connection has ended."""
        self._free += 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]


def address_of(transport: asyncio.BaseTransport) -> str:
    """The client's address without its port; "" for what has none."""
    name = transport.get_extra_info("peername")
    return str(name[0]) if name else ""


def _tls_context(config: FrontendConfig, section: str) -> ssl.SSLContext:
    tls = config.tls
    ours = Config()
    ours.certfile, ours.keyfile = tls.certificate_file, tls.key_file
    try:
        context = ours.create_ssl_context()
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"{section}: {tls.certificate_file} and {tls.key_file} cannot be used: {error}; "
            "both are PEM files, the key that of the certificate"
        ) from error
    assert context is not None, "there is a certificate"
    trust_clients(context, tls, section)
    return context
