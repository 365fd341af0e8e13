"""The publishing metrics; each series is looked up once and updated once per batch."""

from collections.abc import Callable, Sequence, Sized

from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Ack
from hermes_actors.publisher.demands import Demands
from hermes_actors.status.record import Published
from hermes_actors.telemetry.metrics import Counter, Metrics, RecentLatency, meanings

PUBLISHING = meanings(
    "hermes_frontend",
    inflight_requests=("requests", "Publish requests without an answer yet"),
    batch_streams=("requests", "Open batch requests"),
    idempotency_keys=("keys", "Remembered idempotency keys"),
    idempotency_replays=("answers", "Repeated answers to a repeated Idempotency-Key"),
    topic_requests=("messages", "Messages whose publish was read, of a topic"),
    topic_published=("messages", "Messages of a topic that a datacentre's log stored"),
    topic_http_status_codes=("messages", "Answers to publishes of a topic, by status"),
    topic_throughput_bytes=("bytes", "Bodies of a topic that were sent to the log"),
    topic_global_requests=("messages", "Messages whose publish was read, of all topics"),
    topic_global_http_status_codes=("messages", "Answers to all publishes, by status"),
    topic_global_throughput_bytes=("bytes", "Bodies of all topics sent to the log"),
    **{
        f"topic_{ack}_{kind}_seconds": ("seconds", f"{text}, for topics with ack {said}")
        for ack, said in (("ack_leader", "LEADER"), ("ack_all", "ALL"))
        for kind, text in (
            ("latency", "Time from a publish's headers to its 201, of a topic"),
            ("global_latency", "Time from a publish's headers to its 201, of all topics"),
            ("broker_latency", "Time the log took to acknowledge a message of a topic"),
        )
    },
)


class FrontendMeasures:
    """The node-wide metrics, and the factory of those of each topic."""

    def __init__(self, metrics: Metrics, dc: str, in_flight: Callable[[], float]) -> None:
        self.metrics = metrics
        self.dc = dc
        self.requests = metrics.counter("topic_global_requests")
        self.throughput_bytes = metrics.counter("topic_global_throughput_bytes")
        metrics.gauge("inflight_requests", in_flight)

    def watch(self, demands: Demands, streams: Sized) -> None:
        """Add gauges for the idempotency keys and the open batch `streams`."""
        self.metrics.total("idempotency_replays", lambda: demands.replays)
        self.metrics.gauge("idempotency_keys", lambda: demands.keys)
        self.metrics.gauge("batch_streams", lambda: len(streams))

    def status(self, code: int) -> Counter:
        """The counter of answers with this status, for all topics."""
        return self.metrics.counter("topic_global_http_status_codes", status_code=str(code))

    def topic(self, name: TopicName, ack: Ack) -> "TopicMeasures":
        """The metrics of one topic. Create them again when its ack level changes."""
        return TopicMeasures(self, name, ack)


class TopicMeasures:
    """One topic's metrics. `requests` counts the requests whose topic and author were accepted."""

    def __init__(self, frontend: FrontendMeasures, name: TopicName, ack: Ack) -> None:
        metrics = frontend.metrics
        labels = {"group": name.group, "topic": name.name}
        self._frontend = frontend
        self._labels = labels
        self.requests = metrics.counter("topic_requests", **labels)
        self._published_in = {
            frontend.dc: metrics.counter("topic_published", **labels, storageDc=frontend.dc)
        }
        self._throughput = metrics.counter("topic_throughput_bytes", **labels)
        self._latency = metrics.timer(f"topic_{_level(ack)}_latency", **labels)
        self.recent_latency = RecentLatency(self._latency)
        self._broker = metrics.timer(f"topic_{_level(ack)}_broker_latency", **labels)
        self._global_latency = metrics.timer(f"topic_{_level(ack)}_global_latency")
        # By status: the topic's counter and the node-wide one.
        self._status: dict[int, tuple[Counter, Counter]] = {}

    def requested(self, count: int) -> None:
        """Count `count` messages read from one request."""
        self.requests.value += count
        self._frontend.requests.value += count

    def answered(self, status: int, count: int) -> None:
        """Count `count` publishes answered with this status."""
        both = self._status.get(status)
        if both is None:
            one = self._frontend.metrics.counter(
                "topic_http_status_codes", **self._labels, status_code=str(status)
            )
            both = self._status[status] = (one, self._frontend.status(status))
        for counter in both:
            counter.value += count

    def taken(self, size_bytes: int) -> None:
        """Count the bytes of a batch whose append begins."""
        self._throughput.value += size_bytes
        self._frontend.throughput_bytes.value += size_bytes

    def acknowledged(self, dc: str, stored: int, append_s: float) -> None:
        """Count `stored` messages of a batch. The log of `dc` acknowledged them first, after
        `append_s`.
        """
        published = self._published_in.get(dc)
        if published is None:
            published = self._published_in[dc] = self._frontend.metrics.counter(
                "topic_published", **self._labels, storageDc=dc
            )
        published.value += stored
        self._broker.observe(append_s, stored)

    def stored(self, latencies: Sequence[tuple[float, int]]) -> None:
        """Count publishes answered 201. Each pair is the seconds from headers to answer, and the
        number of messages.
        """
        for latency_s, count in latencies:
            self._latency.observe(latency_s, count)
            self._global_latency.observe(latency_s, count)
        self.answered(201, sum([count for _, count in latencies]))

    def published(self) -> Published:
        """Return the topic's totals on this node: stored messages, bytes, and answers with 4xx and
        5xx.
        """
        by_class = [0] * 10
        for status, (of_topic, _sum) in self._status.items():
            by_class[status // 100] += of_topic.value
        return Published(
            messages=sum([each.value for each in self._published_in.values()]),
            size_bytes=self._throughput.value,
            rejected=by_class[4],
            failed=by_class[5],
        )

    def forget(self) -> None:
        """Remove the series of a deleted topic; the node-wide totals stay."""
        self._frontend.metrics.forget(**self._labels)


def _level(ack: Ack) -> str:
    return "ack_all" if ack.waits_for_replicas else "ack_leader"
