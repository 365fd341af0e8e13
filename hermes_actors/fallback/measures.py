"""The metrics of publishing to several datacentres, and of the spool."""

from collections.abc import Callable
from functools import partial

from hermes_actors.fallback.account import Cause, Losers
from hermes_actors.fallback.breaker import Breaker
from hermes_actors.fallback.spool.index import SpoolIndex
from hermes_actors.fallback.spool.store import SegmentStore
from hermes_actors.model.topic import Ack
from hermes_actors.telemetry.metrics import Counter, Metrics, meanings

FALLBACK = meanings(
    "hermes_frontend",
    topic_duplicated_message=(
        "messages",
        "Messages of a topic that are stored in more than one datacentre, by cause",
    ),
    fallback_messages=("messages", "Messages sent to another datacentre, by cause"),
    fallback_late_acknowledgements=(
        "messages",
        "Messages acknowledged after their publish had been answered otherwise",
    ),
    fallback_unknown_copies=(
        "messages",
        "Messages stored in another datacentre that may be in this one too",
    ),
    fallback_budget_refused=("messages", "Messages not hedged, the budget being spent"),
    fallback_losers_cancelled=("appends", "Appends given up that another one overtook"),
    fallback_losers=("appends", "Appends under way that another one overtook"),
    fallback_losers_bytes=("bytes", "Size of the appends that another one overtook"),
    fallback_breaker_opened=("openings", "Times that a breaker opened, by cause, scope"),
    fallback_breaker_is_open=("0 or 1", "Whether the breaker of a datacentre is open"),
    fallback_topics_with_open_breaker=("topics", "Topics whose breaker is open"),
    fallback_hedge_delay_seconds=(
        "seconds",
        "Silence of the own log after which a message goes to another datacentre",
    ),
    spool_entries=("messages", "Messages on this node's disk that no log has taken yet"),
    spool_oldest_age_s=("seconds", "Age of the oldest message in the spool, 0 if it is empty"),
    spool_bytes=("bytes", "Size of the messages in the spool"),
    spool_disk_bytes=("bytes", "Disk space that the spool takes"),
    spool_is_failing=("0 or 1", "Whether the spool's disk takes nothing"),
    spool_written=("messages", "Messages that were put into the spool and answered 202"),
    spool_replayed=("messages", "Messages of the spool that a log has taken"),
    spool_late_acknowledgements=(
        "messages",
        "Messages of the spool that a log acknowledged late, so that they need no replay",
    ),
    spool_torn_tails=("segments", "Unfinished ends that were cut off when the spool opened"),
    spool_accepted_missing=(
        "messages",
        "Messages that the spool lost at rest, as --accept-damage accepted",
    ),
    spool_refused=("messages", "Messages that the spool did not take, by reason"),
    spool_set_aside=("messages", "Messages of the spool that will not be sent, by reason"),
    spool_replay_failures=("messages", "Replays that no log acknowledged, by outcome"),
    spool_write_seconds=("seconds", "Time of a write to the spool with its fsync"),
)

_REFUSED = ("closed", "disk", "full", "queue", "slow")
SET_ASIDE = ("topic_gone", "expired", "refused", "corrupt", "undecodable", "unreadable")
_REPLAY_FAILURES = ("refused", "unavailable", "unknown")


class FallbackMeasures:
    """A node's counters; `metrics` has the prefix `hermes_frontend`."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.budget_refused = metrics.counter("fallback_budget_refused")
        self.losers_cancelled = metrics.counter("fallback_losers_cancelled")

    def watch(self, losers: Losers, hedge_delay_s: Callable[[Ack], float]) -> None:
        """Show the appends that nobody waits for, and the hedge delay of each ack level."""
        self.metrics.gauge("fallback_losers", lambda: len(losers))
        self.metrics.gauge("fallback_losers_bytes", lambda: losers.size_bytes)
        for ack in (Ack.LEADER, Ack.ALL):
            self.metrics.gauge(
                "fallback_hedge_delay_seconds", partial(hedge_delay_s, ack), ack=ack.value
            )

    def watch_breakers(self, dc: str, own: Breaker, topics: Callable[[], list[Breaker]]) -> None:
        """Show a datacentre's `own` breaker, and how many of the topics' ones for it are open."""
        self.metrics.gauge("fallback_breaker_is_open", lambda: float(own.is_open), dc=dc)
        self.metrics.gauge(
            "fallback_topics_with_open_breaker",
            lambda: sum(each.is_open for each in topics()),
            dc=dc,
        )

    def messages(self, cause: Cause, dc: str) -> Counter:
        """The count of messages that were sent to another datacentre."""
        return self.metrics.counter("fallback_messages", cause=cause.value, dc=dc)

    def opened(self, dc: str, cause: str, scope: str) -> Counter:
        """How often a breaker has opened, of a `topic` or of the whole `dc`."""
        return self.metrics.counter("fallback_breaker_opened", dc=dc, cause=cause, scope=scope)

    def late(self, dc: str) -> Counter:
        """The count of messages that were acknowledged after they had been answered otherwise."""
        return self.metrics.counter("fallback_late_acknowledgements", dc=dc)

    def unknown_copies(self, dc: str) -> Counter:
        """The count of messages stored in another datacentre that may be in this one too: nobody
        knows.
        """
        return self.metrics.counter("fallback_unknown_copies", dc=dc)

    def duplicated(self, topic: str, cause: Cause) -> Counter:
        """The count of messages of `group.topic` known to be in more than one datacentre."""
        group, _, name = topic.rpartition(".")
        return self.metrics.counter(
            "topic_duplicated_message", group=group, topic=name, cause=cause.value
        )


class SpoolMeasures:
    """A spool's counters; `metrics` has the frontend's prefix."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.written = metrics.counter("spool_written")
        self.replayed = metrics.counter("spool_replayed")
        self.late_acknowledgements = metrics.counter("spool_late_acknowledgements")
        self.accepted_missing = metrics.counter("spool_accepted_missing")
        self.torn_tails = metrics.counter("spool_torn_tails")
        self.write = metrics.timer("spool_write")
        # There from the start, so that the first event is a rise and no new series.
        for reason in _REFUSED:
            self.refused(reason)
        for reason in SET_ASIDE:
            self.set_aside(reason)
        for outcome in _REPLAY_FAILURES:
            self.replay_failures(outcome)

    def watch(
        self,
        index: SpoolIndex,
        store: SegmentStore,
        oldest_age_s: Callable[[], float],
        trouble: Callable[[], str],
    ) -> None:
        """Show what the spool holds, and whether its disk takes anything."""
        metrics = self._metrics
        metrics.gauge("spool_entries", lambda: index.entries)
        metrics.gauge("spool_bytes", lambda: index.size_bytes)
        metrics.gauge("spool_disk_bytes", lambda: store.size_bytes)
        metrics.gauge("spool_oldest_age_s", oldest_age_s)
        metrics.gauge("spool_is_failing", lambda: float(bool(trouble())))

    def refused(self, reason: str) -> Counter:
        """Messages that the spool did not take: `full`, `disk`, `slow`, `queue` or `closed`."""
        return self._metrics.counter("spool_refused", reason=reason)

    def set_aside(self, reason: str) -> Counter:
        """Entries that will not be sent, and why."""
        return self._metrics.counter("spool_set_aside", reason=reason)

    def replay_failures(self, outcome: str) -> Counter:
        """Records that a log did not acknowledge when they were replayed."""
        return self._metrics.counter("spool_replay_failures", outcome=outcome)
