"""The whole configuration: one frozen tree, read strictly from TOML and `HERMES_…` variables.

Unknown fields are refused, relations between fields are checked here and nowhere else, and each
error names the field, the reason and what would be right. Units are in the names.
"""

import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from hermes_actors.errors import ErrorCode, HermesError
from hermes_actors.model.message import Envelope

_ENV_PREFIX = "HERMES_"
# The command line's own: where its commands send requests, not how a node runs.
_CLIENT_VARIABLES = frozenset({"HERMES_MANAGEMENT_URL", "HERMES_PUBLISH_URL"})
_PAGE = "docs/configuration.md lists every field"
# A wait, delay or grace of 0 is none; an interval of 0 never rests, a time-out of 0 answers nobody.
_MAY_BE_NONE = ("_wait_ms", "_drain_ms", "_delay_ms", "_grace_ms")
_AT = re.compile(r"at `\$\.([^\[`]*)")
_NAME = re.compile(r"[a-zA-Z0-9_.-]+")


class ConfigError(HermesError):
    """The configuration is wrong; the message names the field, why, and what would be right."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.VALIDATION_ERROR)


class TlsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A TLS listener beside the plain one; HTTP/2 by ALPN. Off while `certificate_file` is ""."""

    certificate_file: str = ""
    key_file: str = ""
    port: int = 8443


class FrontendConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The publishing side. The time limits and their defaults are Hermes'."""

    host: str = "127.0.0.1"
    port: int = 8080
    server: typing.Literal["hypercorn", "granian"] = "hypercorn"
    tls: TlsConfig = field(default_factory=TlsConfig)
    idle_timeout_ms: int = 65
    long_idle_timeout_ms: int = 400
    max_publish_request_duration_ms: int = 500
    read_timeout_ms: int = 2_000
    body_bytes_max: int = 2_097_152
    headers_max: int = 20
    header_bytes_max: int = 16_384
    connections_max: int = 10_000
    force_topic_max_message_size: bool = False
    keep_alive_header: bool = False
    keep_alive_header_timeout_s: int = 1
    graceful_shutdown_initial_wait_ms: int = 10_000
    graceful_shutdown_drain_ms: int = 20_000
    waiting_per_topic_max: int = 10_000
    batch_records_max: int = 1_000
    batch_bytes_max: int = 1_000_000


class ConsumersConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The delivering side; the bounds are for each subscription. `nodes` are the names of all
    consuming nodes of this datacentre, which share its subscriptions; none: this one alone.
    """

    nodes: list[str] = field(default_factory=list)
    inflight_max: int = 100
    commit_interval_ms: int = 1_000
    waiting_retries_max: int = 10_000
    buffered_bytes_max: int = 67_108_864
    unsettled_span_max: int = 1_000_000
    read_batch_records_max: int = 1_000
    read_batch_bytes_max: int = 1_048_576
    connections_per_origin_max: int = 100
    connect_timeout_ms: int = 15_000
    response_bytes_max: int = 65_536
    stop_grace_ms: int = 5_000


class ManagementConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The administration side. `allow_removal` off is Hermes' default."""

    host: str = "127.0.0.1"
    port: int = 8090
    topic_partitions: int = 10
    topic_bytes_max: int = 1_048_576
    allow_removal: bool = False
    allowed_group_name_pattern: str = "^[a-zA-Z0-9.]+$"
    non_admin_group_creation: bool = False
    additional_endpoint_protocols: list[str] = field(default_factory=list)
    cors_allowed_origin: str = "*"
    change_timeout_ms: int = 10_000


class StatusConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a node that does not publish shows its health, readiness and metrics."""

    host: str = "127.0.0.1"
    port: int = 8070


class LogConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The log. `directory` is where an embedded one lies, for `hermes node` without Kafka."""

    envelope: Envelope = Envelope.NATIVE
    directory: str = "hermes-data"
    retention_check_interval_ms: int = 60_000


SecurityProtocol = typing.Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = typing.Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class KafkaClusterConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """How one datacentre's Kafka is reached. The file of the password holds it and nothing else."""

    bootstrap_servers: list[str] = field(default_factory=list)
    security_protocol: SecurityProtocol = "PLAINTEXT"
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_username: str = ""
    sasl_password_file: str = ""


class KafkaConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Kafka as the log: one cluster for each datacentre. Without clusters the log is embedded."""

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


class MetadataConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata log. `replicator` names the node of this DC that copies other DCs' changes into
    it and keeps the log's topics like it; "": this one.
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
    status: StatusConfig = field(default_factory=StatusConfig)
    log: LogConfig = field(default_factory=LogConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    metadata: MetadataConfig = field(default_factory=MetadataConfig)


def load(
    path: Path | None,
    environment: Mapping[str, str],
    defaults: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({}),
) -> Config:
    """Read the file (none: defaults), put `HERMES_SECTION_FIELD` variables over it, check all.

    `defaults` (section → field → value) stand in for the built-in ones, under the file. Raises
    ConfigError.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        try:
            tree = msgspec.toml.decode(path.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot be read: {error.strerror}; name another file"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not valid TOML: {error}") from error
    variables: dict[str, str] = {}
    for name, text in sorted(environment.items()):
        if name.startswith(_ENV_PREFIX) and name not in _CLIENT_VARIABLES:
            variables[_overlay(tree, name, text)] = name
    for section, values in defaults.items():
        given = tree.setdefault(section, {})
        if isinstance(given, dict):
            tree[section] = {**values, **given}
    try:
        config = msgspec.convert(tree, Config)
    except msgspec.ValidationError as error:
        found = _AT.search(str(error))
        field_path = found.group(1) if found else ""
        source = variables.get(field_path) or str(path or "configuration")
        raise ConfigError(
            f"{source}: {error}{_choices(field_path)}; {_PAGE}, its default and its unit"
        ) from error
    _check(config)
    return config


def _choices(field_path: str) -> str:
    """What a field may hold, in words, when it is one of a few words."""
    kind: Any = Config
    for name in field_path.split("."):
        fields = {each.name: each.type for each in msgspec.structs.fields(kind)}
        if name not in fields:
            return ""
        kind = fields[name]
        if not _is_struct(kind):
            break
    if typing.get_origin(kind) is list:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is not typing.Literal:
        return ""
    return f"; it is one of {', '.join(typing.get_args(kind))}"


def _overlay(tree: dict[str, Any], variable: str, text: str) -> str:
    """Put one environment variable into the tree; sections are separated by one underscore.

    Gives the field's path, as `frontend.port`.
    """
    rest = variable.removeprefix(_ENV_PREFIX).lower()
    struct: type[Struct] = Config
    node = tree
    path = ""
    while True:
        fields = {each.name: each for each in msgspec.structs.fields(struct)}
        if rest in fields:
            kind = fields[rest].type
            if _is_struct(kind) or _is_table(kind):
                raise ConfigError(f"{variable}: names a section, not a field; add the field's name")
            node[rest] = _parse(variable, text, kind)
            return path + rest
        section = next((n for n in fields if rest.startswith(n + "_")), None)
        if section is None:
            raise ConfigError(f"{variable}: no such field; {_PAGE}")
        kind, rest = fields[section].type, rest.removeprefix(section + "_")
        node = _section(node, section)
        path += f"{section}."
        if _is_table(kind):
            kind = typing.get_args(kind)[1]
            entry = _entry(node, rest, kind)
            if entry is None:
                raise ConfigError(f"{variable}: no such field; {_PAGE}")
            name, rest = entry
            node = _section(node, name)
            path += f"{name}."
        if not _is_struct(kind):
            raise ConfigError(f"{variable}: no such field; {_PAGE}")
        struct = kind


def _section(node: dict[str, Any], name: str) -> dict[str, Any]:
    section = node.setdefault(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name}: is a section, not a value; write [{name}] above its fields")
    return section


def _entry(table: dict[str, Any], rest: str, kind: type[Struct]) -> tuple[str, str] | None:
    """(name, field) of a table's entry that the rest of a variable names.

    A name that the file has may hold any character, each but letters and digits written as an
    underscore; a new one is in lower case.
    """
    for field_name in sorted((each.name for each in msgspec.structs.fields(kind)), key=len)[::-1]:
        if rest.endswith("_" + field_name):
            written = rest.removesuffix("_" + field_name)
            known = (name for name in table if re.sub(r"[^a-z0-9]", "_", name.lower()) == written)
            return next(known, written), field_name
    return None


def _is_table(kind: Any) -> bool:
    return typing.get_origin(kind) is dict


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _parse(variable: str, text: str, kind: Any) -> Any:
    if typing.get_origin(kind) in (list, types.GenericAlias):
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{variable}: '{text}' is not a boolean; write true or false")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError as error:
            raise ConfigError(
                f"{variable}: '{text}' is not a whole number; write digits only"
            ) from error
    return text


def _check(config: Config) -> None:
    """Relations and ranges, each with its own sentence."""
    frontend, consumers = config.frontend, config.consumers
    _require(
        frontend.idle_timeout_ms > 0,
        "frontend.idle_timeout_ms: 0 answers nobody; it must be above 0, Hermes' default is 65",
    )
    for section_name in (
        "frontend",
        "consumers",
        "management",
        "status",
        "log",
        "kafka",
        "metadata",
    ):
        section = getattr(config, section_name)
        for each in msgspec.structs.fields(section):
            value = getattr(section, each.name)
            if each.type is int and each.name != "port":
                least = 0 if each.name.endswith(_MAY_BE_NONE) else 1
                _require(
                    value >= least,
                    f"{section_name}.{each.name}: {value} is too small; the least is {least}",
                )
    for port_name, port in (
        ("frontend.port", frontend.port),
        ("frontend.tls.port", frontend.tls.port),
        ("management.port", config.management.port),
        ("status.port", config.status.port),
    ):
        _require(
            0 <= port <= 65_535,
            f"{port_name}: {port} is not in 0…65535; 0 takes any free port",
        )
    for name, value, example in (("dc", config.dc, "dc1"), ("node", config.node, "node1")):
        # Both become parts of file names and of keys in the metadata log.
        _require(
            _NAME.fullmatch(value) is not None and value not in (".", ".."),
            f"{name}: '{value}' is not a name; use letters, digits, '_', '.' and '-', "
            f"for example {example}",
        )
    _require(
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
    _require(
        frontend.idle_timeout_ms <= frontend.long_idle_timeout_ms,
        f"frontend.idle_timeout_ms: {frontend.idle_timeout_ms} is above "
        f"frontend.long_idle_timeout_ms ({frontend.long_idle_timeout_ms}); "
        "the limit for ack ALL cannot be the shorter one: raise it",
    )
    _require(
        bool(frontend.tls.certificate_file) == bool(frontend.tls.key_file),
        "frontend.tls.certificate_file: goes together with frontend.tls.key_file; "
        "set both or neither",
    )
    _require(
        consumers.inflight_max <= consumers.unsettled_span_max,
        f"consumers.inflight_max: {consumers.inflight_max} is above consumers.unsettled_span_max "
        f"({consumers.unsettled_span_max}); lower the one or raise the other",
    )
    _check_names(config)
    _check_kafka(config)


def _check_names(config: Config) -> None:
    """The names of other nodes."""
    nodes = config.consumers.nodes
    for field_name, names in (
        ("consumers.nodes", nodes),
        ("metadata.replicator", [config.metadata.replicator] if config.metadata.replicator else []),
    ):
        for name in names:
            _require(
                _NAME.fullmatch(name) is not None,
                f"{field_name}: '{name}' is not a node's name; use letters, digits, '_', '.', '-'",
            )
    _require(
        not nodes or "consumers" not in config.roles or config.node in nodes,
        f"consumers.nodes: this node, '{config.node}', is not among them; name it by HERMES_NODE "
        f"as one of {', '.join(nodes)}, add it on every node of datacentre {config.dc}, or take "
        "the role consumers from it",
    )
    _require(
        len(set(nodes)) == len(nodes),
        "consumers.nodes: a name stands there twice; each node has a name of its own",
    )


def _check_kafka(config: Config) -> None:
    """Clusters, and what their topics are created with."""
    kafka = config.kafka
    _require(
        not kafka.clusters or config.dc in kafka.clusters,
        f"kafka.clusters: none is for this node's datacentre '{config.dc}'; "
        f"write [kafka.clusters.{config.dc}] with its bootstrap_servers",
    )
    _require(
        kafka.min_insync_replicas <= kafka.replication_factor,
        f"kafka.min_insync_replicas: {kafka.min_insync_replicas} is above "
        f"kafka.replication_factor ({kafka.replication_factor}), so that no message could be "
        "acknowledged; lower the one or raise the other",
    )
    for dc, cluster in kafka.clusters.items():
        at = f"kafka.clusters.{dc}"
        _require(
            _NAME.fullmatch(dc) is not None,
            f"{at}: '{dc}' is not a datacentre's name; use letters, digits, '_', '.' and '-'",
        )
        _require(
            bool(cluster.bootstrap_servers),
            f'{at}.bootstrap_servers: is empty; write for example ["kafka-1:9092"]',
        )
        for server in cluster.bootstrap_servers:
            host, _, port = server.rpartition(":")
            _require(
                bool(host) and port.isdecimal() and 0 < int(port) <= 65_535,
                f"{at}.bootstrap_servers: '{server}' is not host:port; write for example "
                "kafka-1:9092",
            )
        _require(
            not cluster.security_protocol.startswith("SASL")
            or (bool(cluster.sasl_username) and bool(cluster.sasl_password_file)),
            f"{at}.sasl_username: security_protocol {cluster.security_protocol} needs it and "
            "sasl_password_file; set both, or choose PLAINTEXT or SSL",
        )
        _require(
            bool(cluster.certificate_file) == bool(cluster.key_file),
            f"{at}.certificate_file: goes together with key_file; set both or neither",
        )


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ConfigError(message)
