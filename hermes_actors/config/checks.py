"""Checks the ranges of the configuration's values, and their relations.

Each error names the field, the reason and a valid value.
"""

import math
import re

import msgspec
from msgspec import Struct

from hermes_actors.config.checks_endpoints import check_endpoints, check_internal
from hermes_actors.config.checks_schema import check_schema
from hermes_actors.config.checks_security import check_security
from hermes_actors.config.ports import Port, ports
from hermes_actors.config.publishing import FrontendConfig
from hermes_actors.config.requiring import require
from hermes_actors.config.tree import Config
from hermes_actors.errors import ConfigError
from hermes_actors.model.message import is_reserved_header

# Fields that may be 0: a wait or delay of 0 means none. An interval or timeout of 0 is useless.
_MAY_BE_NONE = ("_wait_ms", "_drain_ms", "_delay_ms", "_grace_ms", "_window_ms", "_per_address_max")
_NAME = re.compile(r"[a-zA-Z0-9_.-]+")
_ALL_ADDRESSES = {"0.0.0.0", "::", ""}  # noqa: S104 -- where nodes may listen


def check(config: Config) -> None:
    """Check the whole configuration. Raises ConfigError."""
    frontend, consumers = config.frontend, config.consumers
    _check_numbers(config, "")
    for port_name, port in (
        ("frontend.port", frontend.port),
        ("frontend.tls.port", frontend.tls.port),
        ("management.port", config.management.port),
        ("management.tls.port", config.management.tls.port),
        ("status.port", config.status.port),
        ("consumers.pull.port", consumers.pull.port),
        ("frontend.memory.port", frontend.memory.port),
        ("grpc.port", config.grpc.port),
    ):
        require(
            0 <= port <= 65_535,
            f"{port_name}: {port} is not in 0…65535; 0 takes any free port",
        )
    _check_ports(config)
    check_internal(frontend.memory, "frontend.memory")
    for name, value, example in (("dc", config.dc, "dc1"), ("node", config.node, "node1")):
        # Both become parts of file names and of keys in the metadata log.
        require(
            _NAME.fullmatch(value) is not None and value not in (".", ".."),
            f"{name}: '{value}' is not a name; use letters, digits, '_', '.' and '-', "
            f"for example {example}",
        )
    require(
        bool(config.roles),
        "roles: is empty; name at least one of frontend, consumers, management",
    )
    try:
        re.compile(config.management.allowed_group_name_pattern)
    except re.error as error:
        raise ConfigError(
            "management.allowed_group_name_pattern: is not a regular expression "
            f"({error}); the default is ^[a-zA-Z0-9.]+$"
        ) from error
    require(
        not config.grpc.enabled or bool({"frontend", "management"} & set(config.roles)),
        "grpc.enabled: a node with the role consumers alone has nothing to serve; set it on nodes "
        "with the role frontend (publishing) or management (subscribing)",
    )
    for section, tls in (
        ("frontend", frontend.tls),
        ("management", config.management.tls),
        ("grpc", config.grpc.tls.listener),
    ):
        require(
            bool(tls.certificate_file) == bool(tls.key_file),
            f"{section}.tls.certificate_file: goes together with {section}.tls.key_file; "
            "set both or neither",
        )
        require(
            bool(tls.certificate_file) or not tls.only,
            f"{section}.tls.only: without a TLS listener nothing would be served; set "
            f"{section}.tls.certificate_file and key_file",
        )
    require(
        consumers.inflight_max <= consumers.unsettled_span_max,
        f"consumers.inflight_max: {consumers.inflight_max} is above consumers.unsettled_span_max "
        f"({consumers.unsettled_span_max}); lower one or raise the other",
    )
    _check_frontend(frontend)
    check_endpoints(consumers)
    webhook = config.management.webhook
    require(
        bool(webhook.url) == bool(webhook.secret_file)
        and not (webhook.url and "management" not in config.roles),
        "management.webhook.url: goes together with management.webhook.secret_file, on a node with "
        "the role management; set both there, or neither",
    )
    _check_kafka(config)
    _check_fallback(config)
    check_security(config)
    check_schema(config.schema)


def _check_ports(config: Config) -> None:
    """Listeners of a node cannot share a port, except at different addresses."""
    taken: list[Port] = []
    for port in ports(config):
        name, host, number = port.setting, port.host, port.number
        require(
            _is_encodable(host),
            f"{name.removesuffix('port').replace('tls.', '')}host: '{host}' is not a host name; "
            "name an address of this machine, or 0.0.0.0 for all of them",
        )
        for other in taken if number else ():
            is_apart = host != other.host and not {host, other.host} & _ALL_ADDRESSES
            require(
                number != other.number or is_apart,
                f"{name}: {number} is also {other.setting}; set one of them to another port",
            )
        taken.append(port)


def _is_encodable(host: str) -> bool:
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _check_numbers(section: Struct, path: str) -> None:
    """No number may be negative, and only some may be 0. Percentages are at most 100."""
    for each in msgspec.structs.fields(section):
        value = getattr(section, each.name)
        if isinstance(value, Struct):
            _check_numbers(value, f"{path}{each.name}.")
        elif each.type in (int, float) and each.name != "port":
            least = 0 if each.type is float or each.name.endswith(_MAY_BE_NONE) else 1
            most = 100 if each.name.endswith("_percent") else math.inf
            require(
                least <= value <= most,
                f"{path}{each.name}: {value} is too small or too large; the minimum is {least}"
                + (f", the maximum {most}" if most == 100 else ""),
            )


def _check_frontend(frontend: FrontendConfig) -> None:
    require(
        frontend.idle_timeout_ms <= frontend.long_idle_timeout_ms,
        f"frontend.idle_timeout_ms: {frontend.idle_timeout_ms} is above "
        f"frontend.long_idle_timeout_ms ({frontend.long_idle_timeout_ms}); "
        "the limit for ack ALL cannot be the shorter one: raise it",
    )
    throughput = frontend.throughput
    require(
        throughput.dynamic_desired_bytes_per_s <= throughput.dynamic_threshold_bytes_per_s,
        "frontend.throughput.dynamic_desired_bytes_per_s: "
        f"{throughput.dynamic_desired_bytes_per_s} is above "
        f"frontend.throughput.dynamic_threshold_bytes_per_s "
        f"({throughput.dynamic_threshold_bytes_per_s}), so that the lowered limits would keep the "
        "total above it; lower one or raise the other",
    )
    for name in frontend.propagation.allowed:
        require(
            name == name.lower() and not is_reserved_header(name),
            f"frontend.propagation.allowed: '{name}' is not in lower case, or is a header that "
            "the broker itself sends to subscribers; take it out of the list",
        )


def _check_kafka(config: Config) -> None:
    """Check the clusters, and the settings for new topics."""
    kafka = config.kafka
    require(
        not kafka.clusters or config.dc in kafka.clusters,
        f"kafka.clusters: none is for this node's datacentre '{config.dc}'; "
        f"write [kafka.clusters.{config.dc}] with its bootstrap_servers",
    )
    require(
        kafka.min_insync_replicas <= kafka.replication_factor,
        f"kafka.min_insync_replicas: {kafka.min_insync_replicas} is above "
        f"kafka.replication_factor ({kafka.replication_factor}), so that no message could be "
        "acknowledged; lower one or raise the other",
    )
    for dc, cluster in kafka.clusters.items():
        at = f"kafka.clusters.{dc}"
        require(
            _NAME.fullmatch(dc) is not None,
            f"{at}: '{dc}' is not a datacentre's name; use letters, digits, '_', '.' and '-'",
        )
        require(
            bool(cluster.bootstrap_servers),
            f'{at}.bootstrap_servers: is empty; write for example ["kafka-1:9092"]',
        )
        for server in cluster.bootstrap_servers:
            host, _, port = server.rpartition(":")
            require(
                bool(host) and port.isdecimal() and 0 < int(port) <= 65_535,
                f"{at}.bootstrap_servers: '{server}' is not host:port; write for example "
                "kafka-1:9092",
            )
        require(
            not cluster.security_protocol.startswith("SASL")
            or (bool(cluster.sasl_username) and bool(cluster.sasl_password_file)),
            f"{at}.sasl_username: security_protocol {cluster.security_protocol} needs it and "
            "sasl_password_file; set both, or choose PLAINTEXT or SSL",
        )
        require(
            bool(cluster.certificate_file) == bool(cluster.key_file),
            f"{at}.certificate_file: goes together with key_file; set both or neither",
        )


def _check_fallback(config: Config) -> None:
    """Check the time limits of the fallback, and its datacentres."""
    fallback, clusters = config.fallback, config.kafka.clusters
    limit_ms = config.frontend.max_publish_request_duration_ms
    for name, value in (
        ("speculative_send_delay_ms", fallback.speculative_send_delay_ms),
        ("rescue_before_limit_ms", fallback.rescue_before_limit_ms),
    ):
        require(
            value < limit_ms,
            f"fallback.{name}: {value} is not below frontend.max_publish_request_duration_ms "
            f"({limit_ms}), so that no remote could answer in time; lower one or raise the other",
        )
    for dc in fallback.remotes:
        require(
            dc != config.dc and (not clusters or dc in clusters),
            f"fallback.remotes: '{dc}' is not another datacentre; name clusters of "
            "kafka.clusters, without this node's own",
        )
