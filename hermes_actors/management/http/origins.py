"""The hosts that may be asked, and the pages that may change something.

A browser sends along what it remembers, whichever page asks.

A request without `Origin` and `Sec-Fetch-Site` comes from no page, and is let through: commands and
clients send neither, browsers send one of them with everything but plain reading (the Fetch
standard, and Fetch Metadata Request Headers).
"""

import ipaddress
from collections.abc import Iterable, Mapping

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.security.address_guard import matches_host
from hermes_actors.status.dependencies import PROBES

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_SHOWN_MAX = 100
ANY = "*"


class Origins:
    """Lets through requests of the server's own pages and those of `trusted` origins."""

    def __init__(self, trusted: Iterable[str]) -> None:
        """`*` among them trusts every page."""
        self._trusted = frozenset(_normal(origin) for origin in trusted)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused (403) for a request that a foreign page has made."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None and origin is None:
            return
        if site in ("same-origin", "none") or not self._trusted.isdisjoint({ANY, _normal(origin)}):
            return
        if site is None and origin is not None and _is_at(origin, headers.get("host", "")):
            return
        page = "A page of another site" if origin is None else f"A page of '{origin[:_SHOWN_MAX]}'"
        raise Refused(
            f"{page} may not change anything here: browsers send along the credentials that they "
            "remember; if it is your console, add its origin to management.trusted_origins",
            ErrorCode.PERMISSION_DENIED,
        )


def _normal(origin: str | None) -> str:
    """In lower case, without the port that its scheme has anyway."""
    lower = (origin or "").lower()
    return lower.removesuffix(_DEFAULT_PORTS.get(lower.partition("://")[0], "\n"))


def _is_at(origin: str, host: str) -> bool:
    """The scheme is not compared: a proxy in front may end TLS."""
    scheme, separator, shown = _normal(origin).partition("://")
    return bool(separator) and shown == _normal(f"{scheme}://{host}").partition("://")[2] != ""


OPEN = frozenset({"/status/health", "/status/prometheus", *PROBES})
"""The pages of probes and scrapers, under whatever name they know the node by."""

_LOOPBACK = ("localhost", "*.localhost")


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
