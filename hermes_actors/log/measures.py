"""The metrics of the logs that count what they do: the embedded one and Kafka's."""

from hermes_actors.log.embedded import EmbeddedLog
from hermes_actors.log.kafka.log import KafkaLog
from hermes_actors.telemetry.metrics import Metrics, meanings

LOG = meanings(
    "hermes_log",
    commits=("transactions", "Transactions of the embedded log, one fsync each"),
    commits_failed=("transactions", "Transactions of the embedded log that failed"),
    records=("records", "Records that were given to the log"),
    bytes=("bytes", "Size of the records that were given to the log"),
    accepted_missing=(
        "records",
        "Records that the embedded log lost at rest, as --accept-damage accepted",
    ),
    is_failing=("0 or 1", "Whether the embedded log cannot store anything"),
    is_connected=("0 or 1", "Whether the Kafka cluster is reached"),
    in_flight=("requests", "Produce requests without an answer"),
    connections=("connections", "Open connections to brokers"),
    appends=("appends", "Batches that were given to the log"),
    stored=("records", "Records that the log has acknowledged"),
    refused=("records", "Records that the log has refused"),
    unavailable=("records", "Records that the log did not take, for want of a broker"),
    unknown=("records", "Records of which nobody knows whether they are stored"),
    lost=("records", "Records whose producer lost its place in the numbering"),
    producer_ids_replaced=("ids", "Producer ids that were given up for new ones"),
)


def embedded_log_metrics(log: EmbeddedLog) -> Metrics:
    """Return the metrics of an embedded log."""
    metrics = Metrics("hermes_log", meanings=LOG)
    # A commit is one fsync for all that waited, of every topic.
    metrics.total("commits", lambda: log.statistics().commits)
    metrics.total("commits_failed", lambda: log.statistics().failed_commits)
    metrics.total("records", lambda: log.statistics().records)
    metrics.total("bytes", lambda: log.statistics().bytes)
    metrics.total("accepted_missing", lambda: log.accepted_missing)
    metrics.gauge("is_failing", lambda: float(bool(log.trouble)))
    return metrics


def kafka_log_metrics(log: KafkaLog) -> Metrics:
    """Return the metrics of a Kafka log: producing, and whether the cluster is reached."""
    metrics = Metrics("hermes_log", meanings=LOG)
    metrics.gauge("is_connected", lambda: float(log.statistics().is_connected))
    metrics.gauge("in_flight", lambda: log.statistics().in_flight)
    metrics.gauge("connections", lambda: log.statistics().connections)
    for name in (
        "appends",
        "records",
        "bytes",
        "stored",
        "refused",
        "unavailable",
        "unknown",
        "lost",
    ):
        metrics.total(name, lambda name=name: getattr(log.statistics(), name))  # type: ignore[misc]
    metrics.total("producer_ids_replaced", lambda: sum(log.statistics().replaced.values()))
    return metrics
