"""The ports that a node listens on, by its roles."""

from collections.abc import Iterator

from msgspec import Struct

from hermes_actors.config.tree import Config


class Port(Struct, frozen=True):
    """A port that a node would listen on. `is_main`: there it tells who it is."""

    setting: str
    host: str
    number: int
    is_main: bool = False
    is_shared: bool = False
    """Other processes may listen on it too (frontend.reuse_port)."""


def ports(config: Config) -> Iterator[Port]:
    """The ports of a node with this configuration, the one where it tells who it is first."""
    frontend, management, status = config.frontend, config.management, config.status
    if "frontend" in config.roles:
        is_shared = frontend.reuse_port
        yield Port("frontend.port", frontend.host, frontend.port, True, is_shared)
        if frontend.tls.certificate_file:
            yield Port("frontend.tls.port", frontend.host, frontend.tls.port, False, is_shared)
    else:
        yield Port("status.port", status.host, status.port, is_main=True)
    if "management" in config.roles:
        yield Port("management.port", management.host, management.port)
        if management.tls.certificate_file:
            yield Port("management.tls.port", management.host, management.tls.port)
