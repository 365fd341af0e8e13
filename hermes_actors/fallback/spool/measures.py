"""The spool's metrics, under the frontend's prefix."""

from collections.abc import Callable

from hermes_actors.telemetry.metrics import Counter, Metrics

REFUSED = ("closed", "disk", "full", "queue", "slow")
SET_ASIDE = ("topic_gone", "expired", "refused", "corrupt", "undecodable", "unreadable")
REPLAY_FAILURES = ("refused", "unavailable", "unknown")


class SpoolMeasures:
    """Counters by name, and what is read when scraped."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        entries: Callable[[], float],
        size_bytes: Callable[[], float],
        disk_bytes: Callable[[], float],
        oldest_age_s: Callable[[], float],
        is_failing: Callable[[], float],
    ) -> None:
        self._metrics = metrics
        self.written = metrics.counter("spool_written")
        self.replayed = metrics.counter("spool_replayed")
        self.late_acknowledgements = metrics.counter("spool_late_acknowledgements")
        self.accepted_missing = metrics.counter("spool_accepted_missing")
        self.torn_tails = metrics.counter("spool_torn_tails")
        self.write = metrics.timer("spool_write")
        # There from the start, so that the first event is a rise and no new series.
        for reason in REFUSED:
            self.refused(reason)
        for reason in SET_ASIDE:
            self.set_aside(reason)
        for outcome in REPLAY_FAILURES:
            self.replay_failures(outcome)
        metrics.gauge("spool_entries", entries)
        metrics.gauge("spool_bytes", size_bytes)
        metrics.gauge("spool_disk_bytes", disk_bytes)
        metrics.gauge("spool_oldest_age_s", oldest_age_s)
        metrics.gauge("spool_is_failing", is_failing)

    def refused(self, reason: str) -> Counter:
        """Messages that the spool did not take: `full`, `disk`, `slow`, `queue` or `closed`."""
        return self._metrics.counter("spool_refused", reason=reason)

    def set_aside(self, reason: str) -> Counter:
        """Entries that will not be sent, and why."""
        return self._metrics.counter("spool_set_aside", reason=reason)

    def replay_failures(self, outcome: str) -> Counter:
        """Records that a log did not acknowledge when they were replayed."""
        return self._metrics.counter("spool_replay_failures", outcome=outcome)
