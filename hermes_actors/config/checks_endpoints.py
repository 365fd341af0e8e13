"""Checks the settings of connections to endpoints: networks, hosts, proxy, plug-ins,
certificates.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from hermes_actors.config.delivery import ProxyConfig, PullConfig
from hermes_actors.config.publishing import MemoryConfig
from hermes_actors.config.requiring import require
from hermes_actors.config.tree import ConsumersConfig
from hermes_actors.errors import ConfigError

_PLUGIN = re.compile(r"[\w.]+:\w+")
_SENDER = re.compile(r"([a-z][a-z0-9+.-]*)=([\w.]+:\w+)")
HOST = re.compile(r"(\*\.)?[^*\s/:@]+")


def check_endpoints(consumers: ConsumersConfig) -> None:
    """Check the connections in `consumers`. Raises ConfigError."""
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
                HOST.fullmatch(text) is not None,
                f"consumers.endpoints.{name}: '{text}' is not a host; write orders.example.com or "
                "*.example.com; addresses belong in the lists of networks",
            )
    resolver = consumers.recipients.resolver
    require(
        not resolver or _PLUGIN.fullmatch(resolver) is not None,
        f"consumers.recipients.resolver: '{resolver}' is not module:function",
    )
    check_internal(consumers.pull, "consumers.pull")
    _check_proxy(consumers.proxy)
    _check_senders(consumers.senders)
    require(
        bool(tls.certificate_file) == bool(tls.key_file),
        "consumers.tls.certificate_file: goes together with consumers.tls.key_file; set both or "
        "neither",
    )
    require(
        consumers.connections_per_origin_max <= consumers.connections_per_host_max,
        f"consumers.connections_per_origin_max: {consumers.connections_per_origin_max} is above "
        f"consumers.connections_per_host_max ({consumers.connections_per_host_max}), which "
        "counts the connections of all subscriptions; lower one or raise the other",
    )


def check_internal(listener: PullConfig | MemoryConfig, field: str) -> None:
    """Other nodes can reach the listener."""
    hosts = ("0.0.0.0", "::", "")  # noqa: S104 -- not listened on
    require(
        bool(listener.url) or listener.host not in hosts,
        f"{field}.url: is needed, because {field}.host is no address that other nodes can connect "
        "to; write http://10.0.0.5:8071, or make host this node's own address",
    )


def _check_proxy(proxy: ProxyConfig) -> None:
    example = "http://proxy.example.com:3128"
    parts = urlsplit("")
    host = port = None
    try:
        parts = urlsplit(proxy.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The error does not repeat it: the invalid part may belong to a password.
        host = None
    require(
        not proxy.url or (parts.scheme in ("http", "https") and bool(host) and port != 0),
        f"consumers.proxy.url: it is not the address of a proxy; write for example {example}",
    )
    require(
        not proxy.url or (parts.username is None and parts.path in ("", "/") and not parts.query),
        f"consumers.proxy.url: it holds more than an address such as {example}; user and password "
        "belong in the file of consumers.proxy.credentials_file",
    )
    require(
        bool(proxy.url) or not (proxy.credentials_file or proxy.no_proxy),
        "consumers.proxy.url: is empty, so consumers.proxy's other fields have no effect; set "
        "it, or "
        "leave them out",
    )
    for text in proxy.no_proxy:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            require(
                HOST.fullmatch(text) is not None and "/" not in text,
                f"consumers.proxy.no_proxy: '{text}' is neither a host, *.domain nor a network",
            )


def _check_senders(senders: list[str]) -> None:
    schemes = []
    for text in senders:
        found = _SENDER.fullmatch(text)
        require(
            found is not None and found[1] not in ("http", "https"),
            f"consumers.senders: '{text}' is not scheme=module:function, for example "
            "jms=acme.jms:open_sender; http and https are built in",
        )
        schemes.append("" if found is None else found[1])
    require(
        len(set(schemes)) == len(schemes),
        "consumers.senders: a scheme is listed twice; each has one sender",
    )
