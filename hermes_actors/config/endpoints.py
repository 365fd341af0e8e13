"""Where pushes may go, and by which certificates: bounds against endpoints that mean harm."""

from msgspec import Struct, field

from hermes_actors.model.redaction import redacted, without_user_info


class EndpointsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Which addresses endpoints may lead to. A denial wins over a permission.

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
