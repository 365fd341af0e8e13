"""The complete configuration of one node: a frozen tree. Field names end with their unit."""

import typing

from msgspec import Struct, field

from hermes_actors.config.delivery import (
    BalancerConfig,
    DeadLettersConfig,
    EndpointsConfig,
    EndpointTlsConfig,
    ProxyConfig,
    PullConfig,
    RecipientsConfig,
)
from hermes_actors.config.fallback import FallbackConfig, SpoolConfig
from hermes_actors.config.kafka import KafkaConfig
from hermes_actors.config.publishing import FrontendConfig, GrpcConfig, ManagementTlsConfig
from hermes_actors.config.schema import SchemaConfig
from hermes_actors.config.security import ManagementAuthenticationConfig, SecurityConfig
from hermes_actors.config.tracking import TrackingConfig
from hermes_actors.model.message import Envelope
from hermes_actors.model.redaction import redacted, without_user_info


class ConsumersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The delivering side; limits apply to each subscription. `senders` are plug-ins for endpoints
    with other schemes than http, `scheme=module:function`.
    """

    inflight_max: int = 100
    commit_interval_ms: int = 1_000
    waiting_retries_max: int = 10_000
    buffered_bytes_max: int = 67_108_864
    unsettled_span_max: int = 1_000_000
    read_batch_records_max: int = 1_000
    read_batch_bytes_max: int = 1_048_576
    connections_per_origin_max: int = 100
    connections_per_host_max: int = 1_000
    idle_connection_timeout_ms: int = 30_000
    connect_timeout_ms: int = 15_000
    response_bytes_max: int = 65_536
    stop_grace_ms: int = 5_000
    handover_grace_ms: int = 500
    clock_skew_max_ms: int = 5_000
    balancer: BalancerConfig = field(default_factory=BalancerConfig)
    gone_suspends: bool = True
    endpoints: EndpointsConfig = field(default_factory=EndpointsConfig)
    tls: EndpointTlsConfig = field(default_factory=EndpointTlsConfig)
    proxy: ProxyConfig = field(default_factory=ProxyConfig)
    senders: list[str] = field(default_factory=list)
    dead_letters: DeadLettersConfig = field(default_factory=DeadLettersConfig)
    recipients: RecipientsConfig = field(default_factory=RecipientsConfig)
    pull: PullConfig = field(default_factory=PullConfig)


CompatibilityName = typing.Literal[
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
]


class ConsoleConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """What Hermes' console shows. `{topic}` and `{subscription}` in URLs are replaced."""

    title: str = "hermes console"
    environment_name: str = "LOCAL"
    critical_environment: bool = False
    contact_link: str = ""
    topic_dashboard_url: str = ""
    subscription_dashboard_url: str = ""
    topic_tracking_url: str = ""
    subscription_tracking_url: str = ""

    def __repr__(self) -> str:
        return redacted(self, **{each: "…" for each in self.__struct_fields__ if "url" in each})


class WebhookConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where changes are posted: set it on one node of the cluster. `secret_file` holds a secret of
    Standard Webhooks.
    """

    url: str = ""
    secret_file: str = ""

    def __repr__(self) -> str:
        return redacted(self, url=repr(without_user_info(self.url)))


class ManagementConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The management API. `allow_removal` and `allow_schema_removal` are off, as in Hermes."""

    host: str = "127.0.0.1"
    port: int = 8090
    tls: ManagementTlsConfig = field(default_factory=ManagementTlsConfig)
    topic_partitions: int = 10
    topic_bytes_max: int = 1_048_576
    allow_removal: bool = False
    allow_schema_removal: bool = False
    schema_compatibility: CompatibilityName = "BACKWARD"
    avro_metadata_required: bool = True
    allowed_group_name_pattern: str = "^[a-zA-Z0-9.]+$"
    non_admin_group_creation: bool = False
    default_fallback_to_remote_datacenter: bool = False
    owner_sources: list[str] = field(default_factory=lambda: ["Plaintext"])
    additional_endpoint_protocols: list[str] = field(default_factory=list)
    cors_allowed_origin: str = "*"
    trusted_origins: list[str] = field(default_factory=list)
    allowed_hosts: list[str] = field(default_factory=list)
    change_timeout_ms: int = 10_000
    head_timeout_ms: int = 5_000
    body_timeout_ms: int = 10_000
    idle_connection_timeout_ms: int = 60_000
    header_bytes_max: int = 16_384
    connections_max: int = 1_000
    connections_per_address_max: int = 0
    graphql_enabled: bool = False
    authentication: ManagementAuthenticationConfig = field(
        default_factory=ManagementAuthenticationConfig
    )
    subscribers_with_access_to_any_topic: list[str] = field(default_factory=list)
    cluster_names: list[str] = field(default_factory=list)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    webhook: WebhookConfig = field(default_factory=WebhookConfig)


class StatusConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a node without the frontend role serves its health, readiness and metrics."""

    host: str = "127.0.0.1"
    port: int = 8070


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The message log, and the process's log lines.

    `directory` is the place of the embedded log, which `hermes node` uses without Kafka. `format`
    and `level` apply to the log lines on stderr; `auto` is text on a terminal, and JSON elsewhere.
    """

    envelope: Envelope = Envelope.NATIVE
    directory: str = "hermes-data"
    retention_check_interval_ms: int = 60_000
    format: typing.Literal["auto", "text", "json"] = "auto"
    level: typing.Literal["debug", "info", "warning", "error"] = "warning"


class MetadataConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata log. The balancer's leader copies other datacentres' changes into it, and
    creates and changes the log's topics to match it. The node named `replicator` does so too.
    """

    replicator: str = ""
    digest_interval_ms: int = 60_000
    topic_data_deletion_delay_ms: int = 86_400_000


Role = typing.Literal["frontend", "consumers", "management"]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """One node."""

    dc: str = "dc1"
    node: str = "node1"
    roles: list[Role] = field(default_factory=lambda: ["frontend", "consumers", "management"])
    frontend: FrontendConfig = field(default_factory=FrontendConfig)
    consumers: ConsumersConfig = field(default_factory=ConsumersConfig)
    management: ManagementConfig = field(default_factory=ManagementConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    status: StatusConfig = field(default_factory=StatusConfig)
    log: LogConfig = field(default_factory=LogConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    metadata: MetadataConfig = field(default_factory=MetadataConfig)
    fallback: FallbackConfig = field(default_factory=FallbackConfig)
    spool: SpoolConfig = field(default_factory=SpoolConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    schema: SchemaConfig = field(default_factory=SchemaConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
