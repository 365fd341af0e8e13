"""The configuration: one frozen tree, read strictly from TOML and `HERMES_…` variables."""

from hermes_actors.config.admission import (
    IdempotencyConfig,
    PreviewConfig,
    PropagationConfig,
    ThroughputConfig,
)
from hermes_actors.config.delivery import BalancerConfig, FiltersConfig, RecipientsConfig
from hermes_actors.config.endpoints import EndpointsConfig, EndpointTlsConfig, ProxyConfig
from hermes_actors.config.errors import ConfigError
from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.config.kafka import KafkaClusterConfig, KafkaConfig
from hermes_actors.config.loading import load
from hermes_actors.config.publishing import (
    FrontendConfig,
    ManagementTlsConfig,
    ReadinessConfig,
    TlsConfig,
)
from hermes_actors.config.security import (
    CertificateConfig,
    JwtConfig,
    ManagementAuthenticationConfig,
    PublishingAuthenticationConfig,
    SecurityConfig,
)
from hermes_actors.config.spool import SpoolConfig
from hermes_actors.config.tree import (
    Config,
    ConsumersConfig,
    LogConfig,
    ManagementConfig,
    MetadataConfig,
    Role,
    StatusConfig,
)

__all__ = [
    "BalancerConfig",
    "CertificateConfig",
    "Config",
    "ConfigError",
    "ConsumersConfig",
    "EndpointTlsConfig",
    "EndpointsConfig",
    "FallbackConfig",
    "FiltersConfig",
    "FrontendConfig",
    "IdempotencyConfig",
    "JwtConfig",
    "KafkaClusterConfig",
    "KafkaConfig",
    "LogConfig",
    "ManagementAuthenticationConfig",
    "ManagementConfig",
    "ManagementTlsConfig",
    "MetadataConfig",
    "PreviewConfig",
    "PropagationConfig",
    "ProxyConfig",
    "PublishingAuthenticationConfig",
    "ReadinessConfig",
    "RecipientsConfig",
    "Role",
    "SecurityConfig",
    "SpoolConfig",
    "StatusConfig",
    "ThroughputConfig",
    "TlsConfig",
    "load",
]
