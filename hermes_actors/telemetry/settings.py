"""The standard `OTEL_*` variables that say what leaves a node as telemetry. Pure.

The exporters read the variables that are theirs alone (endpoints' headers, certificates,
compression, time-outs) themselves.
"""

import typing
from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from hermes_actors.errors import ConfigError
from hermes_actors.telemetry.sampling import Sampling

Exporter = typing.Literal["otlp", "console", "none"]
Protocol = typing.Literal["http/protobuf", "grpc"]

QUEUE_MAX = 65_536
"""The most spans that may be allowed to wait: about 200 MB."""

_SAMPLERS: Mapping[str, tuple[float | None, bool]] = {
    "always_on": (1.0, False),
    "always_off": (0.0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (1.0, True),
    "parentbased_always_off": (0.0, True),
    "parentbased_traceidratio": (None, True),
}


class TelemetrySettings(Struct, frozen=True):
    """The wishes of an operator for traces and for metrics that are pushed.

    `queue_max` spans wait at most, for up to `delay_s`, and `batch_max` leave together; metrics are
    pushed each `metrics_interval_s`.
    """

    traces: Exporter = "none"
    metrics: Exporter = "none"
    traces_protocol: Protocol = "http/protobuf"
    metrics_protocol: Protocol = "http/protobuf"
    sampling: Sampling = Sampling(1.0, follows_parent=True)
    queue_max: int = 2_048
    batch_max: int = 64
    delay_s: float = 1.0
    metrics_interval_s: float = 60.0


def telemetry_settings(env: Mapping[str, str]) -> TelemetrySettings:
    """Read the variables; without any of them nothing is traced and nothing is pushed.

    Raises ConfigError for a value that means nothing, which names the variable.
    """
    if _get(env, "OTEL_SDK_DISABLED").lower() == "true":
        return TelemetrySettings()
    default = TelemetrySettings()
    queue_max = _number(env, "OTEL_BSP_MAX_QUEUE_SIZE", default.queue_max, QUEUE_MAX)
    batch_max = _number(env, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", default.batch_max, 4_096)
    delay_ms = _number(env, "OTEL_BSP_SCHEDULE_DELAY", round(default.delay_s * 1_000), 600_000)
    interval_ms = _number(
        env, "OTEL_METRIC_EXPORT_INTERVAL", round(default.metrics_interval_s * 1_000), 86_400_000
    )
    return TelemetrySettings(
        traces=_exporter(env, "TRACES"),
        metrics=_exporter(env, "METRICS"),
        traces_protocol=_protocol(env, "TRACES"),
        metrics_protocol=_protocol(env, "METRICS"),
        sampling=_sampling(env),
        queue_max=queue_max,
        batch_max=min(batch_max, queue_max),
        delay_s=delay_ms / 1_000,
        metrics_interval_s=max(interval_ms / 1_000, 1.0),
    )


def _get(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip()


def _exporter(env: Mapping[str, str], signal: str) -> Exporter:
    """The standard's default is OTLP to this machine; here it takes an endpoint to begin."""
    own = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    endpoints = [name for name in (own, "OTEL_EXPORTER_OTLP_ENDPOINT") if _get(env, name)]
    name = f"OTEL_{signal}_EXPORTER"
    match _get(env, name).lower():
        case "none":
            return "none"
        case "prometheus" if signal == "METRICS":
            # The node shows that in any case.
            return "none"
        case "console":
            return "console"
        case "otlp":
            pass
        case "":
            if not endpoints:
                return "none"
        case other:
            raise ConfigError(f"{name}={other}: not known here; use otlp, console or none")
    for variable in endpoints[:1]:
        endpoint = _get(env, variable)
        scheme = endpoint.partition("://")[0]
        try:
            parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigError(f"{variable}: no URL: {error}; write http://host:port") from error
        if host is None:
            raise ConfigError(f"{variable}: no host in it; write http://host:port")
        if scheme not in ("http", "https") and _protocol(env, signal) != "grpc":
            raise ConfigError(f"{variable}: not an http:// or https:// URL; write http://host:port")
    return "otlp"


def _protocol(env: Mapping[str, str], signal: str) -> Protocol:
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        match _get(env, name).lower():
            case "":
                continue
            case "grpc":
                return "grpc"
            case "http/protobuf":
                return "http/protobuf"
            case other:
                raise ConfigError(f"{name}={other}: not known here; use http/protobuf or grpc")
    return "http/protobuf"


def _sampling(env: Mapping[str, str]) -> Sampling:
    name = _get(env, "OTEL_TRACES_SAMPLER").lower() or "parentbased_always_on"
    known = _SAMPLERS.get(name)
    if known is None:
        raise ConfigError(
            f"OTEL_TRACES_SAMPLER={name}: not known here; use one of {', '.join(_SAMPLERS)}"
        )
    ratio, follows_parent = known
    if ratio is None:
        text = _get(env, "OTEL_TRACES_SAMPLER_ARG") or "1"
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            raise ConfigError(
                f"OTEL_TRACES_SAMPLER_ARG={text}: not a share; write a number from 0 to 1"
            )
    return Sampling(ratio, follows_parent=follows_parent)


def _number(env: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = _get(env, name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and 1 <= int(text) <= most):
        raise ConfigError(f"{name}={text}: write a whole number from 1 to {most}")
    return int(text)
