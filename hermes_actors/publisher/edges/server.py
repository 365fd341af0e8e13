"""The HTTP server that the configuration asks for, in front of one frontend."""

from typing import Protocol

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import StartupError
from hermes_actors.publisher.edges.asgi import AsgiEdge
from hermes_actors.publisher.edges.cells import AsyncioCell
from hermes_actors.publisher.edges.granian import GranianServer, rsgi_edge
from hermes_actors.publisher.edges.hypercorn import HypercornServer
from hermes_actors.publisher.frontend import Frontend


class Server(Protocol):
    """Listeners on the host loop; from trio, `start` and `stop` go through `guest.call`."""

    port: int
    tls_port: int | None

    async def start(self) -> None:
        """Accept connections from now on."""

    async def stop(self, grace_s: float = 3.0) -> None:
        """Accept no more, let the requests under way end for up to `grace_s`, close all."""


def make_server(frontend: Frontend, config: FrontendConfig) -> Server:
    """Hypercorn or granian, its addresses checked or bound. Raises StartupError."""
    if config.server == "granian":
        security = frontend.gateway.security
        if security is not None and security.reads_certificates:
            raise StartupError(
                "security.certificates.enabled: granian verifies client certificates but does not "
                'tell whose they are; set frontend.server to "hypercorn", or use passwords or '
                "tokens"
            )
        return GranianServer(rsgi_edge(frontend.gateway, frontend.pages, config), config)
    edge = AsgiEdge(frontend.gateway, frontend.pages, config, AsyncioCell)
    return HypercornServer(edge, config, frontend.clock)
