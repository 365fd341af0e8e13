"""The metrics of a node: those of its loop, and the tables of all metrics in docs/metrics.md."""

from collections.abc import Mapping

from hermes_actors.consumer.delivery.measures import DELIVERING
from hermes_actors.coordination.meter import BALANCING
from hermes_actors.fallback.measures import FALLBACK
from hermes_actors.fallback.spool.measures import SPOOL
from hermes_actors.log.backends import LOG
from hermes_actors.metadata.measures import METADATA
from hermes_actors.node.memory import MEMORY
from hermes_actors.publisher.edges.tls import CERTIFICATES
from hermes_actors.publisher.measures import PUBLISHING
from hermes_actors.runtime.watchdog import LoopWatch
from hermes_actors.schema.external import SCHEMAS
from hermes_actors.security.authenticator import SECURITY
from hermes_actors.status.measures import STATUS
from hermes_actors.telemetry.measures import TELEMETRY
from hermes_actors.telemetry.metrics import Meanings, Metrics, meanings
from hermes_actors.tracking.measures import TRACKING

LOOP = meanings(
    "hermes_loop",
    lag_seconds=("seconds", "The event loop's recent maximum delay"),
    stalls=("standstills", "Times that the event loop stood still"),
    stalled_seconds=("seconds", "Time that the event loop stood still"),
)

PARTS: Mapping[str, Meanings] = {
    "Publishing": PUBLISHING,
    "Fallback and spool": {**FALLBACK, **SPOOL},
    "Delivering": {**DELIVERING, **STATUS},
    "Balancer": BALANCING,
    "The log": LOG,
    "Messages in memory": MEMORY,
    "Metadata": METADATA,
    "Schemas": SCHEMAS,
    "Authentication and TLS": {**SECURITY, **CERTIFICATES},
    "The event loop": LOOP,
    "Telemetry": TELEMETRY,
    "Tracking": TRACKING,
}
"""All metrics of the product, by part of a node."""


def loop_metrics(watch: LoopWatch) -> Metrics:
    """The metrics of the node's event loop."""
    metrics = Metrics("hermes_loop", meanings=LOOP)
    metrics.total("stalls", lambda: watch.stalls)
    metrics.total("stalled_seconds", lambda: watch.stalled_s)
    metrics.gauge("lag_seconds", lambda: watch.lag_s)
    return metrics


def tables() -> str:
    """Return the tables of docs/metrics.md, which `make metrics` writes there."""
    parts = []
    for title, families in PARTS.items():
        rows = [
            f"| `{name}` | {unit} | {text}. |" for name, (unit, text) in sorted(families.items())
        ]
        parts.append(
            "\n".join((f"## {title}", "", "| metric | unit | meaning |", "|---|---|---|", *rows))
        )
    return "\n\n".join(parts)
