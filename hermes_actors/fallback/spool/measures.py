"""The metrics of the spool."""

from hermes_actors.telemetry.metrics import Metrics, meanings

SPOOL = meanings(
    "hermes_frontend",
    spool_entries=("messages", "Messages on this node's disk that no log has accepted yet"),
    spool_oldest_age_s=("seconds", "Age of the oldest message in the spool, 0 if it is empty"),
    spool_disk_bytes=("bytes", "Disk space that the spool uses"),
    spool_is_failing=("0 or 1", "Whether writes to the spool's disk fail"),
    spool_written=("messages", "Messages stored in the spool and answered 202"),
    spool_replayed=("messages", "Spooled messages that a log has accepted"),
    spool_late_acknowledgements=(
        "messages",
        "Spooled messages that a log acknowledged late, so they need no replay",
    ),
    spool_refused=("messages", "Messages that the spool refused, by reason"),
    spool_set_aside=("messages", "Spooled messages that will not be sent, by reason"),
    spool_replay_failures=("messages", "Replays that no log acknowledged, by outcome"),
    spool_write_seconds=("seconds", "Time of a write to the spool with its fsync"),
)


class SpoolMeasures:
    """A spool's counters; `metrics` has the frontend's prefix."""

    def __init__(self, metrics: Metrics) -> None:
        self.written = metrics.counter("spool_written")
        self.replayed = metrics.counter("spool_replayed")
        self.late_acknowledgements = metrics.counter("spool_late_acknowledgements")
        self.write = metrics.timer("spool_write")

        # Create all labels at the start, so that the first event increases an existing series.
        self.refused = {
            reason: metrics.counter("spool_refused", reason=reason)
            for reason in ("closed", "disk", "full", "queue", "slow")
        }
        self.set_aside = {
            reason: metrics.counter("spool_set_aside", reason=reason)
            for reason in ("topic_gone", "expired", "refused", "damaged")
        }
        self.replay_failures = {
            outcome: metrics.counter("spool_replay_failures", outcome=outcome)
            for outcome in ("refused", "unavailable", "unknown")
        }
