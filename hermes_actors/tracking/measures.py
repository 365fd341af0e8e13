"""The metrics of tracking."""

from collections.abc import Mapping

from hermes_actors.telemetry.metrics import Metrics, meanings
from hermes_actors.tracking.buffer import TrackingBuffer

TRACKING = meanings(
    "hermes_tracking",
    events_stored=("events", "Tracking events of this node that the datacentre's log has stored"),
    events_waiting=("events", "Tracking events of this node waiting for the datacentre's log"),
    events_dropped=("events", "Dropped tracking events"),
)


def tracking_metrics(buffers: Mapping[str, TrackingBuffer]) -> Metrics:
    """Return the metrics of a node's tracking events, for each datacentre's log."""
    metrics = Metrics("hermes_tracking", meanings=TRACKING)
    for dc, buffer in buffers.items():
        _show(metrics, dc, buffer)
    return metrics


def _show(metrics: Metrics, dc: str, buffer: TrackingBuffer) -> None:
    metrics.total("events_stored", lambda: buffer.stored, datacenter=dc)
    metrics.gauge("events_waiting", lambda: len(buffer), datacenter=dc)
    metrics.total("events_dropped", lambda: buffer.dropped, datacenter=dc)
