"""The settings of delivery: endpoints, proxy, balancing among nodes, recipients, dead letters."""

from msgspec import Struct, field

from hermes_actors.model.redaction import redacted, without_user_info


class EndpointsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The addresses that endpoints may have. The denied lists override the allowed ones.

    A network is `10.0.0.0/8` or one address; a host is `name` or `*.domain`. If `allowed_networks`
    or `allowed_hosts` is not empty, all other endpoints are denied.
    """

    allow_loopback: bool = False
    allow_private: bool = True
    allowed_networks: list[str] = field(default_factory=list)
    denied_networks: list[str] = field(default_factory=list)
    allowed_hosts: list[str] = field(default_factory=list)
    denied_hosts: list[str] = field(default_factory=list)


class EndpointTlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """TLS to endpoints: the authorities to trust instead of the system's, and a client
    certificate.
    """

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


class ProxyConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP proxy for pushes and token requests; unused if `url` is empty.

    `credentials_file` contains `user:password`. `no_proxy` lists hosts (`name`, `*.domain`) and
    networks (for endpoints with literal addresses) that are reached without the proxy.
    """

    url: str = ""
    credentials_file: str = ""
    no_proxy: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return redacted(self, url=repr(without_user_info(self.url)))


class BalancerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How a datacentre's subscriptions are divided among its consuming nodes.

    All nodes need the same values, except for `cores`: the CPU that this node can use. 0 means one
    core, because a node runs in one thread; CPU that other processes use is measured and deducted.
    """

    consumers_per_subscription: int = 2
    tasks_per_node_max: int = 1_000
    interval_ms: int = 30_000
    stabilization_window_ms: int = 1_800_000
    cores: float = 0.0


class PullConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The listener by which a node hands messages of pull subscriptions to the management nodes of
    its datacentre. Clients do not use it.

    `port` 0 takes a free one. `url` is the address for other nodes; empty: host and port.
    """

    host: str = "127.0.0.1"
    port: int = 0
    url: str = ""


class DeadLettersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters. A group's letter topic is created with its first letter, with `partitions`
    partitions.
    """

    enabled: bool = True
    retention_ms: int = 604_800_000
    partitions: int = 4


class RecipientsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The recipients of messages: at most `addresses_max` for each endpoint. A message is pushed
    to at most `pushes_max` of them at the same time.

    `resolver` is a plug-in, `module:function`; empty for the built-in resolver.
    """

    resolver: str = ""
    addresses_max: int = 100
    pushes_max: int = 20
    dns_ttl_ms: int = 5_000
