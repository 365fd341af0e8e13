"""The settings of publishing: listeners, limits and timeouts. Defaults are Hermes' if it has the
setting.
"""

import typing

from msgspec import Struct, field

from hermes_actors.config.security import PublishingAuthenticationConfig

_UNLIMITED = 9_223_372_036_854_775_807


class ThroughputConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Quotas for each topic on this node, in bytes of message content per second, averaged over a
    minute. `fixed` uses the first limit, `dynamic` the others. The defaults are Hermes': no limit.
    """

    type: typing.Literal["unlimited", "fixed", "dynamic"] = "unlimited"
    fixed_max_bytes_per_s: int = _UNLIMITED
    dynamic_max_bytes_per_s: int = _UNLIMITED
    dynamic_threshold_bytes_per_s: int = _UNLIMITED
    dynamic_desired_bytes_per_s: int = _UNLIMITED
    dynamic_idle_bytes_per_s: float = 0.5
    dynamic_check_interval_ms: int = 30_000


class IdempotencyConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How many `Idempotency-Key`s this process remembers, and for how long."""

    keys_max: int = 100_000
    window_ms: int = 3_600_000


class PropagationConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The request headers that are forwarded to subscribers: those in `allowed`; if it is empty,
    all except credentials and cookies.
    """

    enabled: bool = False
    allowed: list[str] = field(default_factory=list)


class TlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A TLS listener beside the plain one, or instead of it (`only`); HTTP/2 by ALPN. Off if
    `certificate_file` is empty.

    `client_auth` is Hermes' setting: whether clients are asked for a certificate that is signed by
    an authority in `client_ca_file`.
    """

    certificate_file: str = ""
    key_file: str = ""
    port: int = 8443
    only: bool = False
    client_auth: typing.Literal["not_requested", "requested", "required"] = "not_requested"
    client_ca_file: str = ""


class ManagementTlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """As `TlsConfig`, for management's listener; only the default port differs."""

    certificate_file: str = ""
    key_file: str = ""
    port: int = 8453
    only: bool = False
    client_auth: typing.Literal["not_requested", "requested", "required"] = "not_requested"
    client_ca_file: str = ""

    @property
    def listener(self) -> TlsConfig:
        """The same settings as a TlsConfig."""
        return TlsConfig(
            self.certificate_file,
            self.key_file,
            self.port,
            self.only,
            self.client_auth,
            self.client_ca_file,
        )


class GrpcTlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """TLS of the gRPC port. Off if `certificate_file` is empty. gRPC cannot ask for a certificate
    without requiring one.
    """

    certificate_file: str = ""
    key_file: str = ""
    client_auth: typing.Literal["not_requested", "required"] = "not_requested"
    client_ca_file: str = ""

    @property
    def listener(self) -> TlsConfig:
        """The same settings as a TlsConfig."""
        return TlsConfig(
            self.certificate_file,
            self.key_file,
            client_auth=self.client_auth,
            client_ca_file=self.client_ca_file,
        )


class GrpcConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The gRPC listener: it publishes on a node with the role frontend, and hands out messages of
    pull subscriptions on one with the role management.
    """

    enabled: bool = False
    host: str = "127.0.0.1"
    port: int = 50_051
    calls_max: int = 1_000
    tls: GrpcTlsConfig = field(default_factory=GrpcTlsConfig)


class ReadinessConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Additional checks of `/status/ready`, made every `interval_ms`."""

    check_enabled: bool = False
    log_check_enabled: bool = False
    interval_ms: int = 1_000


class MemoryConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The messages of PERFORMANCE topics: the memory for all of them, shared equally, and the
    listener by which consumers of the datacentre get them. Publishers do not use it.

    `port` 0 takes a free one. `url` is the address for other nodes; empty: host and port.
    """

    bytes_max: int = 268_435_456
    host: str = "127.0.0.1"
    port: int = 0
    url: str = ""


class FrontendConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The publishing side. The timeouts and their defaults are Hermes'."""

    host: str = "127.0.0.1"
    port: int = 8080
    reuse_port: bool = False
    tls: TlsConfig = field(default_factory=TlsConfig)
    authentication: PublishingAuthenticationConfig = field(
        default_factory=PublishingAuthenticationConfig
    )
    readiness: ReadinessConfig = field(default_factory=ReadinessConfig)
    throughput: ThroughputConfig = field(default_factory=ThroughputConfig)
    idempotency: IdempotencyConfig = field(default_factory=IdempotencyConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    propagation: PropagationConfig = field(default_factory=PropagationConfig)
    cloud_events: bool = True
    replay: bool = False
    confluent_framing: bool = False
    schema_id_header: bool = False
    idle_timeout_ms: int = 65
    long_idle_timeout_ms: int = 400
    max_publish_request_duration_ms: int = 500
    read_timeout_ms: int = 2_000
    body_bytes_max: int = 2_097_152
    headers_max: int = 20
    header_bytes_max: int = 16_384
    url_bytes_max: int = 8_192
    head_timeout_ms: int = 5_000
    connections_max: int = 10_000
    connections_per_address_max: int = 0
    force_topic_max_message_size: bool = True
    keep_alive_header: bool = False
    keep_alive_header_timeout_s: int = 1
    graceful_shutdown_initial_wait_ms: int = 10_000
    graceful_shutdown_drain_ms: int = 20_000
    waiting_per_topic_max: int = 10_000
    batch_records_max: int = 4_000
    batch_bytes_max: int = 1_000_000
    batch_streams_max: int = 64
    batch_answer_bytes_max: int = 4_194_304
    batch_in_flight_bytes_max: int = 67_108_864
    batch_idle_timeout_ms: int = 30_000
