"""Whose pages may change something: a browser sends along what it remembers, whichever page asks.

A request without `Origin` and `Sec-Fetch-Site` comes from no page, and is let through: commands and
clients send neither, browsers send one of them with everything but plain reading (the Fetch
standard, and Fetch Metadata Request Headers).
"""

from collections.abc import Iterable, Mapping

from hermes_actors.errors import ErrorCode, Refused

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
