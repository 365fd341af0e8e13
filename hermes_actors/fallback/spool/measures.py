"""The metrics of the spool."""

from hermes_actors.telemetry.metrics import Metrics, meanings

SPOOL = meanings(
    "hermes_frontend",
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


class SpoolMeasures:
    """A spool's counters; `metrics` has the frontend's prefix."""

    def __init__(self, metrics: Metrics) -> None:
        self.written = metrics.counter("spool_written")
        self.replayed = metrics.counter("spool_replayed")
        self.late_acknowledgements = metrics.counter("spool_late_acknowledgements")
        self.accepted_missing = metrics.counter("spool_accepted_missing")
        self.torn_tails = metrics.counter("spool_torn_tails")
        self.write = metrics.timer("spool_write")
        # By reason, and there from the start, so that the first event is a rise and no new series.
        self.refused = {
            reason: metrics.counter("spool_refused", reason=reason) for reason in _REFUSED
        }
        self.set_aside = {
            reason: metrics.counter("spool_set_aside", reason=reason) for reason in SET_ASIDE
        }
        self.replay_failures = {
            outcome: metrics.counter("spool_replay_failures", outcome=outcome)
            for outcome in _REPLAY_FAILURES
        }
