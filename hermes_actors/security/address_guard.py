"""Decides which addresses may be pushed to, so that endpoints cannot lead to internal services.

The guard checks addresses, because the owner of a name can change its address at any time. Check
the result of each look-up, and connect to exactly the address that was checked.
"""

import ipaddress
import socket
from collections.abc import Iterable

from hermes_actors.config.delivery import EndpointsConfig

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = frozenset(
    ipaddress.ip_address(each)
    for each in (
        "169.254.169.254", "100.100.100.200", "168.63.129.16",
        "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fd00:c1::a9fe:a9fe",
    )
)  # fmt: skip
_PRIVATE: tuple[Network, ...] = tuple(
    ipaddress.ip_network(each)
    for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
_TRANSLATED: tuple[Network, ...] = tuple(
    # A gateway may translate these into IPv4 addresses, also private ones.
    ipaddress.ip_network(each)
    for each in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")
)
_LOOPBACK_HINT = "consumers.endpoints.allow_loopback is off"


class AddressGuard:
    """The rules of a configuration whose networks and hosts have been validated."""

    def __init__(self, config: EndpointsConfig) -> None:
        self._allow_loopback = config.allow_loopback
        self._allow_private = config.allow_private
        self._allowed_networks = [ipaddress.ip_network(each) for each in config.allowed_networks]
        self._denied_networks = [ipaddress.ip_network(each) for each in config.denied_networks]
        self._allowed_hosts = [_normal(each) for each in config.allowed_hosts]
        self._denied_hosts = [_normal(each) for each in config.denied_hosts]

    def refusal(self, host: str, address: str) -> str:
        """Why pushes to this address are forbidden. Empty string if they are allowed.

        `host`: the endpoint's host name or address. `address`: the result of its look-up.
        """
        try:
            # The zone (fd00:ec2::254%1) does not matter for the rules.
            found = _reached(ipaddress.ip_address(address.partition("%")[0]))
        except ValueError:
            return f"{host} ({address}) is no IP address"
        problem = (
            self._host_problem(host)
            or self._address_problem(found)
            or self._list_problem(host, found)
        )
        if not problem:
            return ""
        shown = address if host == address else f"{host} ({address})"
        return f"{shown} {problem}"

    def refusal_of_host(self, host: str) -> str:
        """Why pushes to this host are forbidden, without a look-up of its name. Empty string if
        they are allowed, or if that depends on the look-up.
        """
        literal = literal_address(host)
        if literal is not None:
            return self.refusal(host, str(literal))
        name = _normal(host)
        if not self._allow_loopback and (name == "localhost" or name.endswith(".localhost")):
            return f"{host} is this machine itself; {_LOOPBACK_HINT}"
        problem = self._host_problem(host)
        return f"{host} {problem}" if problem else ""

    def _host_problem(self, host: str) -> str:
        if matches_host(host, self._denied_hosts):
            return "is a host in consumers.endpoints.denied_hosts"
        is_by_host = bool(self._allowed_hosts) and not self._allowed_networks
        if is_by_host and not matches_host(host, self._allowed_hosts):
            return "is a host that is not in consumers.endpoints.allowed_hosts"
        return ""

    def _address_problem(self, address: Address) -> str:
        if kind := _never(address):
            return f"is {kind}, and nothing is pushed there"
        if _is_in(address, self._denied_networks):
            return "is in consumers.endpoints.denied_networks"
        if not self._allow_loopback and address.is_loopback:
            return f"is a loopback address; {_LOOPBACK_HINT}"
        if not self._allow_private and _is_in(address, _PRIVATE):
            return "is a private address; consumers.endpoints.allow_private is off"
        return ""

    def _list_problem(self, host: str, address: Address) -> str:
        if not self._allowed_networks and not self._allowed_hosts:
            return ""
        if matches_host(host, self._allowed_hosts) or _is_in(address, self._allowed_networks):
            return ""
        return (
            "is in neither consumers.endpoints.allowed_networks nor "
            "consumers.endpoints.allowed_hosts"
        )


def _never(address: Address) -> str:
    """The kind of address, if it is forbidden under any configuration. Else an empty string."""
    if address in _METADATA:
        return "the metadata service of a cloud"
    if address.is_link_local:
        return "a link-local address"
    if address.is_unspecified:
        return "the unspecified address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_loopback or _is_in(address, _PRIVATE):
        return ""
    if not address.is_global or _is_in(address, _TRANSLATED):
        return "a reserved address"
    return ""


def _reached(address: Address) -> Address:
    """The IPv4 address embedded in an IPv6 one, if there is one; else the address itself."""
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    _server, teredo_client = address.teredo or (None, None)
    return address.ipv4_mapped or address.sixtofour or teredo_client or address


def literal_address(host: str) -> Address | None:
    """Parse a host as a literal address, in all forms that `connect` accepts. None for a name.

    For the C library `127.1`, `0x7f.1` and `2130706433` are 127.0.0.1.
    """
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    if host[:1].isdigit():
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host.removesuffix(".")))
        except (OSError, ValueError):
            pass
    return None


def _normal(host: str) -> str:
    host = host.lower().removesuffix(".")
    if host.isascii():
        return host
    # Patterns and endpoints are compared in ASCII.
    return host.encode("idna").decode("ascii")


def matches_host(host: str, patterns: Iterable[str]) -> bool:
    """True if the host is one of the patterns, or below one such as `*.example.com`. The patterns
    must be in lower case.
    """
    name = _normal(host)
    return any(
        name == pattern or (pattern.startswith("*.") and name.endswith(pattern[1:]))
        for pattern in patterns
    )


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)
