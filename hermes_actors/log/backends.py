"""Opens the log backend that the configuration chooses, with its metrics and state."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec import Struct

from hermes_actors.config import Config
from hermes_actors.log.base import Log
from hermes_actors.log.embedded.log import EmbeddedLog, open_embedded_log
from hermes_actors.log.kafka.log import KafkaLog, open_kafka_log
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics, meanings

LOG = meanings(
    "hermes_log",
    commits=("transactions", "Transactions of the embedded log, one fsync each"),
    commits_failed=("transactions", "Transactions of the embedded log that failed"),
    records=("records", "Records given to the log"),
    bytes=("bytes", "Size of the records given to the log"),
    accepted_missing=("records", "Lost records of the embedded log that --accept-damage accepted"),
    is_failing=("0 or 1", "Whether the embedded log cannot store anything"),
    is_connected=("0 or 1", "Whether the Kafka cluster is reached"),
    in_flight=("requests", "Produce requests without an answer"),
    connections=("connections", "Open connections to brokers"),
    appends=("appends", "Batches given to the log"),
    stored=("records", "Records that the log acknowledged"),
    refused=("records", "Records that the log refused"),
    unavailable=("records", "Records not stored because no broker was available"),
    unknown=("records", "Records whose outcome is unknown"),
    lost=("requests", "Produce requests whose answer was lost"),
    producer_ids_replaced=("ids", "Replaced producer ids"),
)


class NodeLogs(Struct, frozen=True):
    """A datacentre's own log and the others, with their metrics and state.

    `trouble` says why the own log cannot be used now; empty string if it can. `remote_trouble` says
    the same of another datacentre's log. `lost` says why the own log stores nothing more until the
    node's next start.
    """

    own: Log
    remote: Mapping[str, Log]
    metrics: Metrics
    trouble: Callable[[], str]
    remote_trouble: Callable[[str], str]
    lost: Callable[[], str] = str


@asynccontextmanager
async def open_logs(
    config: Config, clock: Clock, *, accepts_damage: bool = False
) -> AsyncIterator[NodeLogs]:
    """Open the configured logs: Kafka if clusters are configured, else an embedded log.

    `accepts_damage`: open an embedded log even if it has lost messages.
    """
    async with AsyncExitStack() as stack:
        if not config.kafka.clusters:
            log = await stack.enter_async_context(
                open_embedded_log(
                    Path(config.log.directory),
                    config.dc,
                    clock,
                    retention_check_interval_ms=config.log.retention_check_interval_ms,
                    accepts_damage=accepts_damage,
                )
            )
            yield embedded_logs({config.dc: log}, config.dc)
            return
        logs: dict[str, KafkaLog] = {
            dc: await stack.enter_async_context(open_kafka_log(dc, cluster, config.kafka, clock))
            for dc, cluster in config.kafka.clusters.items()
        }
        own = logs.pop(config.dc)
        yield NodeLogs(
            own,
            logs,
            kafka_log_metrics(own),
            trouble=lambda: own.statistics().reason,
            remote_trouble=lambda dc: logs[dc].statistics().reason,
        )


def embedded_logs(logs: Mapping[str, EmbeddedLog], dc: str) -> NodeLogs:
    """The embedded logs of several datacentres, for a node of `dc`."""
    own = logs[dc]
    return NodeLogs(
        own,
        {name: log for name, log in logs.items() if name != dc},
        embedded_log_metrics(own),
        trouble=lambda: own.refusal,
        remote_trouble=lambda name: logs[name].refusal,
        lost=lambda: own.trouble,
    )


def embedded_log_metrics(log: EmbeddedLog) -> Metrics:
    """Return the metrics of an embedded log."""
    metrics = Metrics("hermes_log", meanings=LOG)
    # A commit is one fsync for all waiting appends, of every topic.
    metrics.total("commits", lambda: log.statistics().commits)
    metrics.total("commits_failed", lambda: log.statistics().failed_commits)
    metrics.total("records", lambda: log.statistics().records)
    metrics.total("bytes", lambda: log.statistics().bytes)
    metrics.total("accepted_missing", lambda: log.accepted_missing)
    metrics.gauge("is_failing", lambda: float(bool(log.refusal)))
    return metrics


def kafka_log_metrics(log: KafkaLog) -> Metrics:
    """Return the metrics of a Kafka log: producing, and the connection to the cluster."""
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
