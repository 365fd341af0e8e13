"""Relations of what endpoints may be: networks and hosts that are some, certificates with keys."""

import ipaddress
import re
from collections.abc import Callable

from hermes_actors.config.errors import ConfigError
from hermes_actors.config.tree import ConsumersConfig

_PLUGIN = re.compile(r"[\w.]+:\w+")
_HOST = re.compile(r"(\*\.)?[^*\s/:@]+")


def check_endpoints(consumers: ConsumersConfig, require: Callable[[bool, str], None]) -> None:
    """Relations of `consumers`' connections. Raises ConfigError by `require`."""
    endpoints, tls = consumers.endpoints, consumers.tls
    for name in ("allowed_networks", "denied_networks"):
        for text in getattr(endpoints, name):
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                raise ConfigError(
                    f"consumers.endpoints.{name}: {error}; write for example 10.0.0.0/8, "
                    "fd00::/8 or one address"
                ) from error
    for name in ("allowed_hosts", "denied_hosts"):
        for text in getattr(endpoints, name):
            require(
                _HOST.fullmatch(text) is not None,
                f"consumers.endpoints.{name}: '{text}' is no host; write orders.example.com or "
                "*.example.com; addresses stand in the lists of networks",
            )
    resolver = consumers.recipients.resolver
    require(
        not resolver or _PLUGIN.fullmatch(resolver) is not None,
        f"consumers.recipients.resolver: '{resolver}' is not module:function",
    )
    require(
        bool(tls.certificate_file) == bool(tls.key_file),
        "consumers.tls.certificate_file: goes together with consumers.tls.key_file; set both or "
        "neither",
    )
    require(
        consumers.connections_per_origin_max <= consumers.connections_per_host_max,
        f"consumers.connections_per_origin_max: {consumers.connections_per_origin_max} is above "
        f"consumers.connections_per_host_max ({consumers.connections_per_host_max}), which counts "
        "all subscriptions' together; lower the one or raise the other",
    )
