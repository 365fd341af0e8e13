"""What the fallback counts: each name and label once, added to once for each batch."""

from enum import StrEnum

from hermes_actors.telemetry.metrics import Counter, Metrics


class Cause(StrEnum):
    """Why a message was sent to another datacentre than the first."""

    HEDGE = "hedge"  # no acknowledgement within the hedge delay, and the budget allowed it
    RESCUE = "rescue"  # it would have missed its deadline
    BREAKER = "breaker"  # the datacentre does not work
    PROBE = "probe"  # it was to find out whether the datacentre works again, and it did not
    ERROR = "error"  # the datacentre refused it, or nobody knows


class FallbackMeasures:
    """A node's counters; `metrics` has the prefix `hermes_frontend`."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.budget_refused = metrics.counter("fallback_budget_refused")
        self.losers_cancelled = metrics.counter("fallback_losers_cancelled")

    def messages(self, cause: Cause, dc: str) -> Counter:
        """Messages that were sent to another datacentre."""
        return self.metrics.counter("fallback_messages", cause=cause.value, dc=dc)

    def late(self, dc: str) -> Counter:
        """Messages that were acknowledged after they had been answered otherwise."""
        return self.metrics.counter("fallback_late_acknowledgements", dc=dc)

    def unknown_copies(self, dc: str) -> Counter:
        """Messages stored in another datacentre that may be in this one too: nobody knows."""
        return self.metrics.counter("fallback_unknown_copies", dc=dc)

    def opened(self, dc: str, cause: str, scope: str) -> Counter:
        """How often a breaker has opened, of a `topic` or of the whole `dc`."""
        return self.metrics.counter("fallback_breaker_opened", dc=dc, cause=cause, scope=scope)

    def duplicated(self, topic: str, cause: Cause) -> Counter:
        """Messages of a topic, `group.topic`, known to be stored in more than one datacentre."""
        group, _, name = topic.rpartition(".")
        return self.metrics.counter(
            "topic_duplicated_message", group=group, topic=name, cause=cause.value
        )
