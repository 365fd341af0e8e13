"""Tells the variables that Kubernetes puts into every pod for a Service from those of a setting."""

import ipaddress
import re
from collections.abc import Callable

_PORTS = range(1, 65_536)


def is_injected(variable: str, text: str) -> bool:
    """True if Kubernetes sets such a variable to such a value for a Service named `hermes` or
    `hermes-…`. Both are looked at, so a setting's value seldom has the form; where it has, the
    caller lets the setting win.
    """
    return any(
        has_form(text) and re.fullmatch(f"HERMES(?:_[A-Z0-9_]+)?{ending}", variable)
        for ending, has_form in _FAMILIES
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) in _PORTS


def _is_url(text: str) -> bool:
    found = re.fullmatch(r"(?:tcp|udp|sctp)://(?:\[([^\]]+)\]|([^:]+)):([0-9]+)", text)
    return found is not None and _is_address(found[1] or found[2]) and _is_port(found[3])


# What follows the Service's name (in capitals, with underscores), and what the value looks like.
_PORT = r"_PORT_[0-9]+_(?:TCP|UDP|SCTP)"
_FAMILIES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    (r"_SERVICE_HOST", _is_address),
    (r"_SERVICE_PORT(?:_[A-Z0-9_]+)?", _is_port),
    (r"_PORT", _is_url),
    (_PORT, _is_url),
    (f"{_PORT}_PROTO", lambda text: text in ("tcp", "udp", "sctp")),
    (f"{_PORT}_PORT", _is_port),
    (f"{_PORT}_ADDR", _is_address),
)
