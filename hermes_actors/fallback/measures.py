"""The metrics of publishing to several datacentres."""

from collections.abc import Callable
from functools import partial

from hermes_actors.fallback.account import Cause, Losers
from hermes_actors.fallback.breaker import Breaker
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
)


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
