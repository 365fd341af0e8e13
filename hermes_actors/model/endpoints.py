"""Endpoints as they are written: several addresses in one, and the hosts that are this machine."""

import ipaddress
import re

# A semicolon may stand in a path, too; before a scheme it separates.
_BETWEEN = re.compile(r";(?=[A-Za-z][A-Za-z0-9+.-]*://)")


def split_addresses(endpoint: str) -> tuple[str, ...]:
    """The addresses of `http://a/in;http://b/in`, in their order. A `;` that is followed by
    anything but a scheme and `://` belongs to its address.
    """
    return tuple(_BETWEEN.split(endpoint))


def is_loopback(host: str) -> bool:
    """True for the names and addresses of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
