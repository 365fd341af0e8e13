"""The standard variables are understood, or refused by their names."""

import pytest

from hermes_actors.errors import ConfigError
from hermes_actors.telemetry.sampling import Sampling
from hermes_actors.telemetry.settings import TelemetrySettings, telemetry_settings

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.test:4318"}


def test_without_a_variable_nothing_leaves() -> None:
    settings = telemetry_settings({"PATH": "/bin"})
    assert settings == TelemetrySettings()
    assert (settings.traces, settings.metrics) == ("none", "none")


def test_three_variables_and_a_collector_do() -> None:
    settings = telemetry_settings(
        ENDPOINT
        | {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
    )
    assert (settings.traces, settings.metrics) == ("otlp", "otlp")
    assert settings.sampling == Sampling(0.01, follows_parent=True)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, ("none", "none")),
        ({"OTEL_TRACES_EXPORTER": "none"}, ("none", "otlp")),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, ("otlp", "none")),
        ({"OTEL_TRACES_EXPORTER": "console"}, ("console", "otlp")),
    ],
)
def test_each_signal_may_be_turned_off(
    variables: dict[str, str], expected: tuple[str, str]
) -> None:
    settings = telemetry_settings(ENDPOINT | variables)
    assert (settings.traces, settings.metrics) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector.test:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector.test:abc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "\u0661"),
    ],
)
def test_what_means_nothing_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        telemetry_settings(ENDPOINT | {name: value})


@pytest.mark.parametrize("share", ["2", "-0.1", "nan", "much"])
def test_a_share_is_between_nothing_and_all(share: str) -> None:
    with pytest.raises(ConfigError, match="OTEL_TRACES_SAMPLER_ARG"):
        telemetry_settings(
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": share}
        )


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, {}),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:99"},
            {"traces": ("c", 99), "metrics": ("c", 99)},
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, {"traces": ("localhost", 4318)}),
        (
            {
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "c",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
            },
            {"metrics": ("c", 4317)},
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/v1"}, {"traces": ("c", 443)}),
    ],
)
def test_collectors_are_where_the_standard_says(
    env: dict[str, str], expected: dict[str, tuple[str, int]]
) -> None:
    assert telemetry_settings(env).collectors == expected


TRACE = "00-{:032x}-b7ad6b7169203331-{}"


def test_a_trace_from_elsewhere_is_recorded_as_its_sender_does_or_by_its_id() -> None:
    following, by_id = Sampling(0.0, follows_parent=True), Sampling(0.5, follows_parent=False)
    assert following.takes(TRACE.format(1, "01"))
    assert not following.takes(TRACE.format(1, "00"))
    assert by_id.takes(TRACE.format(1, "00"))
    assert not by_id.takes(TRACE.format((1 << 64) - 1, "01"))
