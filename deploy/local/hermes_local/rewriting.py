"""Rewrites containers' configuration for plain processes: one loopback address per service, local
paths.

Unlike containers, processes share one network and file system. So a service's name becomes the
service's address, and a mounted path becomes the path of a copy.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hermes_local.failures import LaunchFailed
from hermes_local.files import write_private

NETWORK_DEFAULT = "127.0.1.0/24"


def addresses(network: str, names: Sequence[str]) -> dict[str, str]:
    """An address for each name, stable by order. Raises LaunchFailed.

    The network must be in 127.0.0.0/8, which Linux reserves for this machine.
    """
    try:
        net = ipaddress.IPv4Network(network)
    except ValueError as error:
        raise LaunchFailed(f"--network: {error}; write for example {NETWORK_DEFAULT}") from error
    if not net.is_loopback or ipaddress.IPv4Address("127.0.0.1") in net:
        raise LaunchFailed(
            f"--network: {net} is not within 127.0.0.0/8 (this machine), or contains 127.0.0.1"
        )
    if net.num_addresses - 2 < len(names):
        raise LaunchFailed(f"--network: {net} is too small for {len(names)} services")
    return {name: str(net[n]) for n, name in enumerate(names, start=1)}


class Rewriting:
    """Rewrites one service's texts: environment, command, health check, configuration files.

    `service:port` becomes `address:port`; localhost, 127.0.0.1 and 0.0.0.0 become the service's own
    address; mounted paths become local ones.
    """

    def __init__(self, addresses: Mapping[str, str], own: str, paths: Mapping[str, Path]) -> None:
        self._addresses = addresses
        self._own = own
        self.paths = paths
        pattern = r"(?P<itself>(?<![\w.-])(?:localhost|127\.0\.0\.1|0\.0\.0\.0)(?![\w.-]))"
        # Only with a port, because a bare name may be a node's name or a word in a comment.
        pattern += rf"|(?P<other>(?<![\w.-])(?:{_any_of(addresses)})(?=:\d))"
        pattern += rf"|(?P<path>(?<![\w./-])(?:{_any_of(paths)})(?![\w.-]))"
        self._pattern = re.compile(pattern)

    def text(self, text: str) -> str:
        """The rewritten text, in one pass, so that nothing is rewritten twice."""
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        found = match[0]
        if match.lastgroup == "itself":
            return self._own
        return self._addresses[found] if match.lastgroup == "other" else str(self.paths[found])

    def copy(self, source: Path, copy: Path) -> None:
        """Write a rewritten copy of a text file, which may be secret. Raises LaunchFailed."""
        try:
            text = source.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise LaunchFailed(f"{source}: cannot be read as text: {error}") from error
        write_private(copy, self.text(text))


def _any_of(texts: Iterable[str]) -> str:
    """A pattern that matches any of these, preferring the longest."""
    return "|".join(re.escape(each) for each in sorted(texts, key=len, reverse=True))
