"""The metrics of the metadata log, and of a node's duties for its datacentre."""

from collections.abc import Callable, Mapping

from hermes_actors.metadata.registry import Metadata
from hermes_actors.telemetry.metrics import Metrics, meanings

METADATA = meanings(
    "hermes_metadata",
    is_current=("0 or 1", "Whether the metadata log is read up to its end"),
    position=("offset", "How far the metadata log is read"),
    refolds=("refolds", "Times that the metadata log was read again from its start"),
    undecodable_commands=("commands", "Commands of the metadata log that cannot be decoded"),
    undecodable_bodies=("objects", "Topics, subscriptions and others that cannot be decoded"),
    is_in_trouble=("0 or 1", "Whether a duty of this node for its datacentre makes no progress"),
)


def metadata_metrics(metadata: Metadata, duties: Mapping[str, Callable[[], str]]) -> Metrics:
    """The metrics of the node's metadata and duties. A duty returns its trouble; empty string if
    there is none.
    """
    metrics = Metrics("hermes_metadata", meanings=METADATA)
    metrics.gauge("is_current", lambda: float(metadata.is_current))
    metrics.gauge("position", lambda: metadata.state.position)
    metrics.total("refolds", lambda: metadata.refolds)
    metrics.gauge("undecodable_commands", lambda: metadata.state.undecodable)
    metrics.gauge("undecodable_bodies", lambda: len(metadata.catalog.undecodable))
    for duty in duties:
        # `duties` returns the current instance of each.
        metrics.gauge("is_in_trouble", lambda duty=duty: float(bool(duties[duty]())), part=duty)  # type: ignore[misc]
    return metrics
