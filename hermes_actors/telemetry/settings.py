"""Reads the standard `OTEL_*` variables, which configure telemetry. Pure.

The exporters themselves read further variables: headers, certificates, compression, time-outs.
"""

import typing
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from hermes_actors.errors import ConfigError
from hermes_actors.telemetry.sampling import Sampling

Exporter = typing.Literal["otlp", "console", "none"]
Protocol = typing.Literal["http/protobuf", "grpc"]
T = typing.TypeVar("T")

_SAMPLERS: Mapping[str, tuple[float | None, bool]] = {
    "always_on": (1.0, False),
    "always_off": (0.0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (1.0, True),
    "parentbased_always_off": (0.0, True),
    "parentbased_traceidratio": (None, True),
}


class TelemetrySettings(Struct, frozen=True):
    """The exporters of traces and metrics. `collectors`: host and port by signal ("traces",
    "metrics").
    """

    traces: Exporter = "none"
    metrics: Exporter = "none"
    traces_protocol: Protocol = "http/protobuf"
    metrics_protocol: Protocol = "http/protobuf"
    sampling: Sampling = Sampling(1.0, follows_parent=True)
    metrics_interval_s: float = 60.0
    collectors: Mapping[str, tuple[str, int]] = {}


def telemetry_settings(env: Mapping[str, str]) -> TelemetrySettings:
    """Read the variables. Without them nothing is traced and nothing is pushed.

    Raises ConfigError for an invalid value; the message names the variable.
    """
    if _get(env, "OTEL_SDK_DISABLED").lower() == "true":
        return TelemetrySettings()
    traces, metrics = _exporter(env, "TRACES"), _exporter(env, "METRICS")
    interval = _get(env, "OTEL_METRIC_EXPORT_INTERVAL") or "60000"
    if not (interval.isascii() and interval.isdigit() and len(interval) < 12):
        raise ConfigError(f"OTEL_METRIC_EXPORT_INTERVAL={interval}: write milliseconds")
    return TelemetrySettings(
        traces=traces,
        metrics=metrics,
        traces_protocol=_protocol(env, "TRACES"),
        metrics_protocol=_protocol(env, "METRICS"),
        sampling=_sampling(env),
        metrics_interval_s=max(int(interval) / 1_000, 1.0),
        collectors={
            signal: _collector(env, signal.upper())
            for signal, exporter in (("traces", traces), ("metrics", metrics))
            if exporter == "otlp"
        },
    )


def _get(env: Mapping[str, str], name: str) -> str:
    return env.get(name, "").strip()


def _endpoint(env: Mapping[str, str], signal: str) -> tuple[str, str]:
    """The name and the value of the variable with the signal's endpoint."""
    own = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    name = own if _get(env, own) else "OTEL_EXPORTER_OTLP_ENDPOINT"
    return name, _get(env, name)


def _chosen(
    env: Mapping[str, str], names: Sequence[str], choices: Mapping[str, T], default: T
) -> T:
    """The choice in the first of these variables that is set. Raises ConfigError."""
    for name in names:
        value = _get(env, name).lower()
        if value in choices:
            return choices[value]
        if value:
            raise ConfigError(f"{name}={value}: not known here; use {', '.join(choices)}")
    return default


def _exporter(env: Mapping[str, str], signal: str) -> Exporter:
    """The signal's exporter. Without an endpoint the default is none; the standard's is OTLP to
    localhost.
    """
    choices: dict[str, Exporter] = {"otlp": "otlp", "console": "console", "none": "none"}
    if signal == "METRICS":
        # The node always serves metrics to Prometheus.
        choices["prometheus"] = "none"
    default: Exporter = "otlp" if _endpoint(env, signal)[1] else "none"
    return _chosen(env, [f"OTEL_{signal}_EXPORTER"], choices, default)


def _collector(env: Mapping[str, str], signal: str) -> tuple[str, int]:
    name, endpoint = _endpoint(env, signal)
    is_grpc = _protocol(env, signal) == "grpc"
    if not endpoint:
        return "localhost", 4317 if is_grpc else 4318
    try:
        parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if host is None or not (is_grpc or scheme in ("http", "https")):
        raise ConfigError(f"{name}: not a URL of http or https; write http://host:port")
    return host, port or (4317 if is_grpc else {"https": 443}.get(scheme, 80))


def _protocol(env: Mapping[str, str], signal: str) -> Protocol:
    names = [f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]
    choices: dict[str, Protocol] = {"grpc": "grpc", "http/protobuf": "http/protobuf"}
    return _chosen(env, names, choices, "http/protobuf")


def _sampling(env: Mapping[str, str]) -> Sampling:
    default = _SAMPLERS["parentbased_always_on"]
    ratio, follows_parent = _chosen(env, ["OTEL_TRACES_SAMPLER"], _SAMPLERS, default)
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
