"""Parses endpoints: several addresses in one, and hosts that mean this machine."""

import ipaddress
import re

# A semicolon may occur in a path; only before a scheme it separates addresses.
_BETWEEN = re.compile(r";(?=[A-Za-z][A-Za-z0-9+.-]*://)")


def split_addresses(endpoint: str) -> tuple[str, ...]:
    """Split `http://a/in;http://b/in` into its addresses, in order. A `;` that no scheme follows
    belongs to its address.
    """
    return tuple(_BETWEEN.split(endpoint))


def is_loopback(host: str) -> bool:
    """True for names and addresses of this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
