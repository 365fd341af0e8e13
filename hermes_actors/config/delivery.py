"""The settings of delivery beside pushing: shares of nodes, recipients, dead letters."""

from msgspec import Struct, field

from hermes_actors.model.redaction import redacted, without_user_info


class EndpointsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses that endpoints may lead to. A denial wins over a permission.

    Networks are written `10.0.0.0/8` or as one address, hosts `name` or `*.domain`. Where
    `allowed_networks` or `allowed_hosts` holds anything, nothing else is pushed to.
    """

    allow_loopback: bool = False
    allow_private: bool = True
    allowed_networks: list[str] = field(default_factory=list)
    denied_networks: list[str] = field(default_factory=list)
    allowed_hosts: list[str] = field(default_factory=list)
    denied_hosts: list[str] = field(default_factory=list)


class EndpointTlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """TLS to endpoints: who is trusted in place of the machine's authorities, and who we are."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


class ProxyConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The HTTP proxy that pushes and token requests go through; off while `url` is "".

    `credentials_file` holds `user:password`. `no_proxy` names hosts (`name`, `*.domain`) and
    networks of literal addresses that are reached without it.
    """

    url: str = ""
    credentials_file: str = ""
    no_proxy: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return redacted(self, url=repr(without_user_info(self.url)))


class BalancerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How a datacentre's subscriptions are divided among its consuming nodes; the same on each.

    `cores` is how much CPU this node has for its share of the work, at most; 0: one core, for it
    runs in one thread. What others leave of it is measured.
    """

    consumers_per_subscription: int = 2
    tasks_per_node_max: int = 1_000
    interval_ms: int = 30_000
    stabilization_window_ms: int = 1_800_000
    cores: float = 0.0


class DeadLettersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Dead letters. A group's topic is made with `partitions` when its first letter comes."""

    enabled: bool = True
    retention_ms: int = 604_800_000
    partitions: int = 4


class RecipientsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The recipients of messages. `resolver` is a plug-in, `module:function`; "" for what is built
    in. At most `addresses_max` for each endpoint, of which `pushes_max` get one message at the same
    time.
    """

    resolver: str = ""
    addresses_max: int = 100
    pushes_max: int = 20
    dns_ttl_ms: int = 5_000
