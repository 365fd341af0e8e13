"""Lists the ports that a node listens on."""

from collections.abc import Iterator

from msgspec import Struct

from hermes_actors.config.publishing import FrontendConfig
from hermes_actors.config.tree import Config, ManagementConfig


class Port(Struct, frozen=True):
    """A port that a node would listen on."""

    setting: str
    host: str
    number: int
    certificate_file: str = ""
    """Set if the port speaks TLS."""


def ports(config: Config) -> Iterator[Port]:
    """Return the ports of a node with this configuration; the first one serves the status pages."""
    if "frontend" in config.roles:
        yield from _listener("frontend", config.frontend)
        yield Port("frontend.memory.port", config.frontend.memory.host, config.frontend.memory.port)
    if "frontend" not in config.roles or config.frontend.reuse_port:
        yield Port("status.port", config.status.host, config.status.port)
    if "consumers" in config.roles:
        yield Port("consumers.pull.port", config.consumers.pull.host, config.consumers.pull.port)
    if "management" in config.roles:
        yield from _listener("management", config.management)
    grpc = config.grpc
    if grpc.enabled:
        yield Port("grpc.port", grpc.host, grpc.port, grpc.tls.certificate_file)


def _listener(section: str, config: FrontendConfig | ManagementConfig) -> Iterator[Port]:
    tls = config.tls
    if not tls.only:
        yield Port(f"{section}.port", config.host, config.port)
    if tls.certificate_file:
        yield Port(f"{section}.tls.port", config.host, tls.port, tls.certificate_file)
