"""The configuration: one frozen tree, read from TOML and `HERMES_…` variables; unknown fields are
errors.
"""

from hermes_actors.config.delivery import (
    BalancerConfig,
    EndpointsConfig,
    EndpointTlsConfig,
    ProxyConfig,
    RecipientsConfig,
)
from hermes_actors.config.fallback import FallbackConfig, SpoolConfig
from hermes_actors.config.kafka import KafkaClusterConfig, KafkaConfig
from hermes_actors.config.loading import load
from hermes_actors.config.publishing import (
    FrontendConfig,
    GrpcConfig,
    IdempotencyConfig,
    ManagementTlsConfig,
    PropagationConfig,
    ReadinessConfig,
    ThroughputConfig,
    TlsConfig,
)
from hermes_actors.config.schema import SchemaConfig
from hermes_actors.config.security import (
    CertificateConfig,
    JwtConfig,
    ManagementAuthenticationConfig,
    PublishingAuthenticationConfig,
    SecurityConfig,
)
from hermes_actors.config.tree import (
    Config,
    ConsumersConfig,
    LogConfig,
    ManagementConfig,
    MetadataConfig,
    Role,
    StatusConfig,
)
from hermes_actors.errors import ConfigError

__all__ = [
    "BalancerConfig",
    "CertificateConfig",
    "Config",
    "ConfigError",
    "ConsumersConfig",
    "EndpointTlsConfig",
    "EndpointsConfig",
    "FallbackConfig",
    "FrontendConfig",
    "GrpcConfig",
    "IdempotencyConfig",
    "JwtConfig",
    "KafkaClusterConfig",
    "KafkaConfig",
    "LogConfig",
    "ManagementAuthenticationConfig",
    "ManagementConfig",
    "ManagementTlsConfig",
    "MetadataConfig",
    "PropagationConfig",
    "ProxyConfig",
    "PublishingAuthenticationConfig",
    "ReadinessConfig",
    "RecipientsConfig",
    "Role",
    "SchemaConfig",
    "SecurityConfig",
    "SpoolConfig",
    "StatusConfig",
    "ThroughputConfig",
    "TlsConfig",
    "load",
]
