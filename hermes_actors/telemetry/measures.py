"""The metrics of telemetry itself: exported and failed spans and points."""

from hermes_actors.telemetry.metrics import meanings

TELEMETRY = meanings(
    "hermes_telemetry",
    spans_exported=("spans", "Spans that the collector took"),
    spans_failed=("spans", "Spans that the collector did not take"),
    points_exported=("points", "Points of metrics that the collector took"),
    points_failed=("points", "Points of metrics that the collector did not take"),
)
