"""The counters of one subscription, under the names that Hermes' dashboards expect."""

from collections.abc import Callable, Sequence

from hermes_actors.consumer.delivery.delivery import Delivery, Settlement, Transitions
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.record import StoredRecord
from hermes_actors.status.measures import labels_of
from hermes_actors.status.record import Flow
from hermes_actors.telemetry.metrics import Counter, Metrics, RecentLatency, Timer, meanings

DELIVERING = meanings(
    "hermes_consumers",
    subscription_inflight=("messages", "Messages in flight"),
    subscription_pending_offsets=(
        "share",
        "Used share of consumers.unsettled_span_max, in the partition that uses most",
    ),
    subscription_waiting_retries=("messages", "Messages waiting for their next attempt"),
    subscription_waiting_dead_letters=("messages", "Dead letters that the log has not stored yet"),
    subscription_latency_seconds=("seconds", "Time from the start of a push to its answer"),
    subscription_delivered=("messages", "Messages that the endpoint accepted"),
    subscription_batches=("batches", "Batches that the endpoint accepted"),
    subscription_throughput_bytes=("bytes", "Bodies that the endpoint accepted"),
    subscription_http_status_codes=("pushes", "Answers to pushes, by status"),
    subscription_retries=("pushes", "Attempts after the first one"),
    subscription_failures=("pushes", "Pushes without a 2xx answer"),
    subscription_timeouts=("pushes", "Pushes that got no answer in time"),
    subscription_other_errors=("pushes", "Pushes that got no answer for another reason"),
    subscription_local_failures=("pushes", "Pushes that failed on this node before they were sent"),
    subscription_discarded=("messages", "Messages that were given up"),
    subscription_expired_by_retention=("messages", "Messages that retention removed unsettled"),
    subscription_filtered_out=("messages", "Messages that did not match the filters"),
    subscription_filter_errors=("messages", "Messages that a filter could not read"),
    subscription_undecodable=("messages", "Records that are not messages"),
    subscription_commit_failures=("commits", "Failed commits; the next one contains them"),
    subscription_dead_letters=("messages", "Messages kept as dead letters"),
    subscription_dead_letters_truncated=("messages", "Dead letters kept without their message"),
    subscription_dead_letter_failures=("appends", "Failed attempts to store a dead letter"),
    subscription_redriven=("messages", "Dead letters that a re-drive delivered"),
    offset_commits_duration_seconds=("seconds", "Time of a commit to the log"),
    offset_commits_failures=("commits", "Failed commits of this node"),
    consumer_processes_running=("consumers", "Subscriptions that this node delivers"),
    workload_subscriptions_running=(
        "subscriptions",
        "Subscriptions that run on this node, suspended ones included",
    ),
    workload_subscriptions_assigned=(
        "subscriptions",
        "Subscriptions that this node owns, in part or whole",
    ),
    workload_subscriptions_missing=("subscriptions", "Assigned subscriptions that do not run yet"),
    workload_subscriptions_oversubscribed=(
        "subscriptions",
        "Subscriptions that still run although this node no longer owns them",
    ),
    workload_all_assignments=("tasks", "Tasks of all nodes of the datacentre; shown by its leader"),
    oauth_token_requests=("requests", "Requests for OAuth tokens, by result"),
    oauth_token_request_latency_seconds=("seconds", "Time of a request for an OAuth token"),
)


def latency_of(metrics: Metrics, name: SubscriptionName) -> Timer:
    """The timer of a subscription's pushes; the same object on each call."""
    return metrics.timer("subscription_latency", **labels_of(name))


STATUSES_MAX = 30
"""Maximum number of status codes that are counted separately for one subscription."""


class SubscriptionMeasures(Transitions):
    """The counters of one subscription; incrementing one is an attribute increment. Message counts
    follow the transitions, for serial and batch delivery alike.
    """

    def __init__(self, metrics: Metrics, name: SubscriptionName, *, is_batch: bool = False) -> None:
        """With `is_batch`, each delivered group of messages counts as one batch."""
        self._is_batch = is_batch
        self._metrics = metrics
        self._labels = labels_of(name)
        self._statuses: dict[int, Counter] = {}
        self.delivered = self._counter("delivered")
        self.batches = self._counter("batches")
        self.discarded = self._counter("discarded")
        self.retries = self._counter("retries")
        self.throughput_bytes = self._counter("throughput_bytes")
        self.timeouts = self._counter("timeouts")
        self.other_errors = self._counter("other_errors")
        self.failures = self._counter("failures")
        self.local_failures = self._counter("local_failures")
        self.filtered_out = self._counter("filtered_out")
        self.filter_errors = self._counter("filter_errors")
        self.expired = self._counter("expired_by_retention")
        self.undecodable = self._counter("undecodable")
        self.commit_failures = self._counter("commit_failures")
        self.dead_letters = self._counter("dead_letters")
        self.dead_letters_truncated = self._counter("dead_letters_truncated")
        self.dead_letter_failures = self._counter("dead_letter_failures")
        self.redriven = self._counter("redriven")
        self.latency = latency_of(metrics, name)
        self.recent_latency = RecentLatency(self.latency)

    def filtered(self, record: StoredRecord, offsets: PartitionOffsets) -> None:
        """Count a filtered message."""
        self.filtered_out.value += 1

    def sent(self, deliveries: Sequence[Delivery], *, is_retry: bool) -> None:
        """Count a repeated push."""
        if is_retry:
            self.retries.value += 1

    def answered(self, deliveries: Sequence[Delivery], outcome: SendOutcome, took_s: float) -> None:
        """Count a push's outcome by kind, and its duration unless it failed on this node."""
        status = outcome.status
        if status:
            counter = self._statuses.get(status)
            if counter is None:
                counter = self._status(status)
            counter.value += 1
        elif outcome.is_local:
            self.local_failures.value += 1
            return
        self.latency.observe(took_s)
        if 200 <= status < 300:
            return
        self.failures.value += 1
        if outcome.failure is not None:
            (self.timeouts if outcome.failure.is_timeout else self.other_errors).value += 1

    def given_up(self, deliveries: Sequence[Delivery], reason: DiscardReason) -> None:
        """Count given-up messages, and those that could not be decoded."""
        self.discarded.value += len(deliveries)
        if reason is DiscardReason.UNDECODABLE:
            self.undecodable.value += len(deliveries)

    def settled(self, deliveries: Sequence[Delivery], settlement: Settlement) -> None:
        """Count delivered messages and kept dead letters."""
        if settlement is Settlement.DELIVERED:
            self.delivered.value += len(deliveries)
            for each in deliveries:
                self.throughput_bytes.value += len(each.record.value)
            if self._is_batch:
                self.batches.value += 1
        elif settlement is Settlement.DEAD_LETTER:
            self.dead_letters.value += len(deliveries)

    def flow(self) -> Flow:
        """All counts as one value."""
        by_class = [0] * 10
        for status, counter in self._statuses.items():
            by_class[min(status // 100, 9) or status] += counter.value
        return Flow(
            delivered=self.delivered.value,
            size_bytes=self.throughput_bytes.value,
            discarded=self.discarded.value,
            expired=self.expired.value,
            retries=self.retries.value,
            timeouts=self.timeouts.value,
            other_errors=self.other_errors.value,
            codes_2xx=by_class[2],
            codes_3xx=by_class[3],
            codes_4xx=by_class[4],
            codes_5xx=by_class[5],
            batches=self.batches.value,
            filtered=self.filtered_out.value,
            dead_letters=self.dead_letters.value,
        )

    def _status(self, status: int) -> Counter:
        """The counter of a status. An endpoint may answer anything, so beyond STATUSES_MAX
        different statuses the rest are counted by class.
        """
        if len(self._statuses) >= STATUSES_MAX:
            status = min(status // 100, 9)
        label = str(status) if status > 9 else f"{status}xx"
        counter = self._metrics.counter(
            "subscription_http_status_codes", **self._labels, status_code=label
        )
        self._statuses[status] = counter
        return counter

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Register a gauge of this subscription; `read` is called at each scrape."""
        self._metrics.gauge(f"subscription_{name}", read, **self._labels)

    def _counter(self, name: str) -> Counter:
        return self._metrics.counter(f"subscription_{name}", **self._labels)


class Gauge:
    """Reads one attribute of an object when called."""

    def __init__(self, of: object, attribute: str) -> None:
        self._of = of
        self._attribute = attribute

    def __call__(self) -> float:
        """The attribute's current value."""
        return float(getattr(self._of, self._attribute))
