"""Which addresses pushes may go to: no endpoint leads into what only the node itself may reach.

Decides on addresses, not on names, since a name means what its owner's DNS says at the moment: ask
after each look-up, and connect to the very address that was asked about. The ranges are IANA's
special-purpose registries (RFC 6890 and its updates) and the metadata services of clouds.
"""

import ipaddress
import socket
from collections.abc import Iterable, Sequence

from hermes_actors.config.delivery import EndpointsConfig

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_V4_MASK = 0xFFFF_FFFF


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(each) for each in texts)


# In this order: what an address is called is its first match.
_NEVER: tuple[tuple[str, tuple[Network, ...]], ...] = (
    (
        "the metadata service of a cloud",
        _networks(
            "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.0.23",
            "100.100.100.200", "168.63.129.16", "192.0.0.192",
            "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fd00:c1::a9fe:a9fe",
        ),
    ),
    ("a link-local address", _networks("169.254.0.0/16", "fe80::/10")),
    ("the unspecified address", _networks("0.0.0.0/8", "::/128")),
    ("a multicast address", _networks("224.0.0.0/4", "ff00::/8")),
    (
        "a reserved address",
        _networks(
            "240.0.0.0/4", "192.0.0.0/24", "100::/64",
            # Networks of test equipment, and 6to4's relays, which nobody may run any more.
            "198.18.0.0/15", "2001:2::/48", "192.88.99.0/24",
        ),
    ),
)  # fmt: skip
_LOOPBACK = _networks("127.0.0.0/8", "::1/128")
_PRIVATE = _networks(
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10"
)
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_LAST_32_BITS = tuple(
    ipaddress.IPv6Network(each)
    # Mapped, compatible, translated (RFC 2765), NAT64's well-known prefix.
    for each in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96")
)
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_TEREDO = ipaddress.IPv6Network("2001::/32")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


class AddressGuard:
    """The rules of one configuration, which has checked its networks and hosts."""

    def __init__(self, config: EndpointsConfig) -> None:
        self._allow_loopback = config.allow_loopback
        self._allow_private = config.allow_private
        self._allowed_networks = [ipaddress.ip_network(each) for each in config.allowed_networks]
        self._denied_networks = [ipaddress.ip_network(each) for each in config.denied_networks]
        self._allowed_hosts = [_normal(each) for each in config.allowed_hosts]
        self._denied_hosts = [_normal(each) for each in config.denied_hosts]

    def refusal(self, host: str, address: str) -> str:
        """Why a push to `host` may not go to this address of it; "" when it may.

        `host` is the endpoint's name (or address), `address` what it was resolved to.
        """
        shown = address if host == address else f"{host} ({address})"
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return f"{shown} is no IP address"
        problem = self._host_problem(host)
        if problem:
            return f"{shown}: {problem}"
        # Whatever an address may be translated into on its way has to be allowed too.
        for each in (found, *embedded(found)):
            problem = self._address_problem(each)
            if problem:
                form = "" if each == found else f", the IPv4 address in it, {each},"
                return f"{shown}{form} {problem}"
        if not self._is_on_a_list(host, found):
            return (
                f"{shown} is in neither consumers.endpoints.allowed_networks nor "
                "consumers.endpoints.allowed_hosts"
            )
        return ""

    def refusal_of_host(self, host: str) -> str:
        """Why no push to this host is possible, as far as its name or literal address says; "" when
        only a look-up can tell.
        """
        literal = literal_address(host)
        if literal is not None:
            return self.refusal(host, str(literal))
        name = _normal(host)
        if not self._allow_loopback and (name == "localhost" or name.endswith(".localhost")):
            return f"{host} is this machine itself; {_LOOPBACK_HINT}"
        problem = self._host_problem(host)
        return f"{host}: {problem}" if problem else ""

    def _host_problem(self, host: str) -> str:
        if matches_host(host, self._denied_hosts):
            return "the host is in consumers.endpoints.denied_hosts"
        is_by_host = bool(self._allowed_hosts) and not self._allowed_networks
        if is_by_host and not matches_host(host, self._allowed_hosts):
            return "the host is not in consumers.endpoints.allowed_hosts"
        return ""

    def _address_problem(self, address: Address) -> str:
        for name, networks in _NEVER:
            if _is_in(address, networks):
                return f"is {name}, which nothing is pushed to"
        if _is_in(address, self._denied_networks):
            return "is in consumers.endpoints.denied_networks"
        if not self._allow_loopback and _is_in(address, _LOOPBACK):
            return f"is a loopback address; {_LOOPBACK_HINT}"
        if not self._allow_private and _is_in(address, _PRIVATE):
            return "is a private address; consumers.endpoints.allow_private is off"
        return ""

    def _is_on_a_list(self, host: str, address: Address) -> bool:
        if not self._allowed_networks and not self._allowed_hosts:
            return True
        if matches_host(host, self._allowed_hosts):
            return True
        candidates = (address, *(each for each in embedded(address) if _is_mapped(address)))
        return any(_is_in(each, self._allowed_networks) for each in candidates)


_LOOPBACK_HINT = "consumers.endpoints.allow_loopback is off"


def literal_address(host: str) -> Address | None:
    """The address that a host is when it is no name, in any of the forms that `connect` reads.

    `127.1`, `0x7f.1` and `2130706433` are 127.0.0.1 to the C library.
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


def embedded(address: Address) -> Sequence[ipaddress.IPv4Address]:
    """The IPv4 addresses that gateways and hosts may turn an IPv6 address into."""
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    value = int(address)
    found: list[int] = []
    if any(address in network for network in _LAST_32_BITS) and value > 1:
        found.append(value & _V4_MASK)
    if address in _NAT64_LOCAL:
        # RFC 6052's places for prefixes of 48, 56, 64 and 96 bits; bits 64 to 71 are no part.
        high, low = value >> 64, value & (1 << 56) - 1
        joined = high << 56 | low
        places = [joined >> shift & _V4_MASK for shift in (40, 32, 24)] + [value & _V4_MASK]
        # Which place counts is the gateway's configuration. Where only zeros stand, none does.
        found += [each for each in places if each >> 24] or places
    if address in _SIX_TO_FOUR:
        found.append(value >> 80 & _V4_MASK)
    if address in _TEREDO:
        found += [value >> 64 & _V4_MASK, ~value & _V4_MASK]
    if value >> 32 & _V4_MASK in _ISATAP:
        found.append(value & _V4_MASK)
    return [ipaddress.IPv4Address(each) for each in found]


def _normal(host: str) -> str:
    host = host.lower().removesuffix(".")
    if host.isascii():
        return host
    # As an endpoint's own name is written.
    return host.encode("idna").decode("ascii")


def matches_host(host: str, patterns: Iterable[str]) -> bool:
    """True for a host that is one of these in lower case, or below one written `*.example.com`."""
    name = _normal(host)
    return any(
        name == pattern or (pattern.startswith("*.") and name.endswith(pattern[1:]))
        for pattern in patterns
    )


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
