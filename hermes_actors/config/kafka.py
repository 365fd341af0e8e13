"""The settings of logs in Kafka: one cluster for each datacentre."""

import typing

from msgspec import Struct, field

SecurityProtocol = typing.Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = typing.Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
Isolation = typing.Literal["read_committed", "read_uncommitted"]


class KafkaClusterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One datacentre's Kafka. `sasl_password_file` contains only the password."""

    bootstrap_servers: list[str] = field(default_factory=list)
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_username: str = ""
    sasl_password_file: str = ""


class KafkaConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Kafka as the log. Without `clusters` the log is embedded."""

    clusters: dict[str, KafkaClusterConfig] = field(default_factory=dict)
    replication_factor: int = 1
    min_insync_replicas: int = 1
    producers_per_ack: int = 4
    append_timeout_ms: int = 5_000
    request_timeout_ms: int = 5_000
    metadata_max_age_ms: int = 300_000
    reconnect_backoff_ms: int = 100
    fetch_wait_ms: int = 5_000
    fetch_bytes_max: int = 1_048_576
    isolation: Isolation = "read_committed"
