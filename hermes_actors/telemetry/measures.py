"""The metrics of telemetry itself: exported and failed spans and points."""

from hermes_actors.telemetry.metrics import meanings

TELEMETRY = meanings(
    "hermes_telemetry",
    spans_exported=("spans", "Spans that the collector accepted"),
    spans_failed=("spans", "Spans that the collector did not accept"),
    points_exported=("points", "Metric points that the collector accepted"),
    points_failed=("points", "Metric points that the collector did not accept"),
)
