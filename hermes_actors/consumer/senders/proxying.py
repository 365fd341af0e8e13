"""The proxy for pushes, and which hosts are reached without it."""

import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from hermes_actors.config import EndpointsConfig, ProxyConfig
from hermes_actors.consumer.senders.sender import Origin
from hermes_actors.errors import StartupError
from hermes_actors.security.address_guard import AddressGuard, literal_address, matches_host

_CREDENTIALS_BYTES_MAX = 4_096
_PORTS = {"http": 80, "https": 443}


class ProxiedHosts:
    """Decides which hosts are reached through a proxy: all except those in `no_proxy`."""

    def __init__(self, no_proxy: Sequence[str]) -> None:
        self._networks = []
        self._hosts = []
        for each in no_proxy:
            try:
                self._networks.append(ipaddress.ip_network(each))
            except ValueError:
                self._hosts.append(each.lower().removesuffix("."))

    def is_for(self, host: str) -> bool:
        """True unless `no_proxy` lists the host (`name` or `*.domain`) or its literal address."""
        literal = literal_address(host.removesuffix("."))
        if literal is None:
            return not matches_host(host, self._hosts)
        return not any(
            literal in each for each in self._networks if each.version == literal.version
        )


class Proxy:
    """One HTTP proxy. `tls` is for a proxy that is itself reached by https.

    The operator chooses its address, so loopback is allowed; addresses that are never pushed to are
    not.
    """

    def __init__(
        self, url: str, credentials: str, no_proxy: Sequence[str], tls: ssl.SSLContext
    ) -> None:
        """`credentials` are `user:password`, or an empty string."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        self.origin = Origin(parts.scheme, host, parts.port or _PORTS[parts.scheme])
        self.tls = tls
        self.guard = AddressGuard(EndpointsConfig(allow_loopback=True))
        user, _, password = credentials.partition(":")
        self.auth = (user.encode(), password.encode()) if credentials else None
        self.is_for = ProxiedHosts(no_proxy).is_for


def read_proxy(config: ProxyConfig, tls: ssl.SSLContext) -> Proxy | None:
    """The configured proxy; None if there is none. Reads a file. Raises StartupError."""
    if not config.url:
        return None
    credentials = ""
    if config.credentials_file:
        try:
            with Path(config.credentials_file).open("rb") as file:
                credentials = file.read(_CREDENTIALS_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StartupError(
                f"consumers.proxy.credentials_file: {config.credentials_file} cannot be read: "
                f"{type(error).__name__}; it holds one line, user:password"
            ) from error
        if ":" not in credentials or not credentials.isprintable():
            raise StartupError(
                f"consumers.proxy.credentials_file: {config.credentials_file} does not hold one "
                "line, user:password"
            )
    return Proxy(config.url, credentials, config.no_proxy, tls)
