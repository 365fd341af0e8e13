"""Protects against foreign web pages: checks the host name of requests, and the origin of changes.

The check is needed because a browser sends its remembered credentials for any page. A request
without `Origin` and `Sec-Fetch-Site` does not come from a page, and is allowed: command-line
clients send neither, and browsers send at least one with every change (see the Fetch standard and
Fetch Metadata Request Headers).
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
    """Allows requests of this server's own pages and of pages from `trusted` origins."""

    def __init__(self, trusted: Iterable[str]) -> None:
        """`*` trusts every page."""
        self._trusted = frozenset(_normal(origin) for origin in trusted)

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Refused (403) for a request from a foreign page."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is None and origin is None:
            return
        if site in ("same-origin", "none") or not self._trusted.isdisjoint({ANY, _normal(origin)}):
            return
        if site is None and origin is not None and _is_at(origin, headers.get("host", "")):
            return
        page = "A page of another site" if origin is None else f"A page of '{origin[:_SHOWN_MAX]}'"
        raise Refused(
            f"{page} may not change anything here: browsers send remembered credentials along; "
            "if it is your console, add its origin to management.trusted_origins",
            ErrorCode.PERMISSION_DENIED,
        )


def _normal(origin: str | None) -> str:
    """The origin in lower case, without its scheme's default port."""
    lower = (origin or "").lower()
    return lower.removesuffix(_DEFAULT_PORTS.get(lower.partition("://")[0], "\n"))


def _is_at(origin: str, host: str) -> bool:
    """True if the origin is this host. The scheme is not compared: a proxy may terminate TLS."""
    scheme, separator, shown = _normal(origin).partition("://")
    return bool(separator) and shown == _normal(f"{scheme}://{host}").partition("://")[2] != ""


OPEN = frozenset({"/status/health", "/status/prometheus", *PROBES})
"""The paths for probes and scrapers, which are answered under any host name."""

_LOOPBACK = ("localhost", "*.localhost")


class Hosts:
    """Allows requests for IP addresses, `localhost` and `names`. There `*.example.com` means every
    name below `example.com`, and `*` any name.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = (*_LOOPBACK, *(each.lower().removesuffix(".") for each in names))

    def check(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises Refused (421) for another host name. A request without one is not from a page."""
        if ANY in self._names or path in OPEN:
            return
        for name, value in headers:
            if name.lower() == b"host" and value and not self._takes(value.decode("latin-1")):
                raise Refused(
                    f"The Host header '{value.decode('latin-1')[:_SHOWN_MAX]}' does not name "
                    "this node, so the request is refused (protection from DNS rebinding); use "
                    "an IP address or localhost, or add the name to management.allowed_hosts",
                    ErrorCode.OTHER,
                    status=421,
                )

    def _takes(self, authority: str) -> bool:
        host = _host_of(authority)
        return _is_address(host) or (host.isascii() and matches_host(host, self._names))


def _host_of(authority: str) -> str:
    """The host without its port."""
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
