"""By which names management may be asked for, so that no foreign page reaches it under its own.

A page whose name is made to mean this machine (DNS rebinding) is of the same origin as management
for its browser, but its name stands in `Host`. An address cannot be made to mean another one, so
every address may stand there.
"""

import ipaddress
from collections.abc import Iterable

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.security.address_guard import matches_host

ANY = "*"

OPEN = frozenset({"/status/health", "/status/prometheus"})
"""What probes and scrapers ask for, under whatever name they know the node by."""

_LOOPBACK = ("localhost", "*.localhost")
_SHOWN_MAX = 100


class Hosts:
    """Lets through requests for addresses, this machine's `localhost`, and `names`, of which
    `*.example.com` is every name below `example.com` and `*` is any.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = (*_LOOPBACK, *(each.lower().removesuffix(".") for each in names))

    def check(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises Refused (421) for a request for another name; one for none comes from no page."""
        if ANY in self._names or path in OPEN:
            return
        for name, value in headers:
            if name.lower() == b"host" and value and not self._takes(value.decode("latin-1")):
                raise Refused(
                    f"Host '{value.decode('latin-1')[:_SHOWN_MAX]}' is no name of this node, so "
                    "that no page of that name can act here (DNS rebinding); ask by an address or "
                    "localhost, or add the name to management.allowed_hosts",
                    ErrorCode.OTHER,
                    status=421,
                )

    def _takes(self, authority: str) -> bool:
        host = _host_of(authority)
        return _is_address(host) or (host.isascii() and matches_host(host, self._names))


def _host_of(authority: str) -> str:
    """The host without its port; with a user or a path in front or behind it is no host."""
    if authority.startswith("["):
        host, bracket, port = authority[1:].partition("]")
        return host if bracket and (not port or port.startswith(":")) else authority
    return authority.partition(":")[0].strip()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
