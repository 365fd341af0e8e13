"""One DC's log with its truth told: what it stores, drops and commits, when it does."""

from collections.abc import Mapping

from hermes_actors.log.base import Commit
from hermes_actors.log.faults import Faults
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import StoredRecord
from hermes_chaos.sim.clock import SimulatedClock
from hermes_chaos.sim.determinism import rng_of
from hermes_chaos.sim.history import Committed, Dropped, Expired, History, Stored, message_id_of
from hermes_chaos.sim.nemesis import calm
from hermes_chaos.sim.trace import Trace

_APPEND_TIMEOUT_S = 1.0


def watched_log(
    dc: str, seed: int, message_topics: Mapping[str, str], history: History, trace: Trace
) -> MemoryLog:
    """A healthy log. Of `message_topics` (read as they are at each moment) everything is told."""
    log = MemoryLog(
        dc,
        SimulatedClock(),
        faults=Faults(rng_of(seed, f"log {dc}")),
        append_timeout_s=_APPEND_TIMEOUT_S,
    )
    calm(log)

    def on_append(topic: str, record: StoredRecord) -> None:
        trace.note(dc, f"append {topic}/{record.partition}@{record.offset}")
        if topic in message_topics:
            place = (dc, topic, record.partition)
            history.tell(Stored(place, record.offset, message_id_of(record), record.value))

    def on_commit(group: str, topic: str, partition: int, commit: Commit) -> None:
        trace.note(dc, f"commit {group} {topic}/{partition}@{commit.position}")
        history.tell(Committed((dc, topic, partition), group, commit))

    def on_drop(topic: str, partition: int, end: int) -> None:
        trace.note(dc, f"dropped {topic}/{partition} from {end} on")
        if topic in message_topics:
            history.tell(Dropped((dc, topic, partition), end))

    def on_expire(topic: str, partition: int, start: int) -> None:
        trace.note(dc, f"expired {topic}/{partition} up to {start}")
        if topic in message_topics:
            history.tell(Expired((dc, topic, partition), start))

    log.on_append.append(on_append)
    log.on_commit.append(on_commit)
    log.on_drop.append(on_drop)
    log.on_expire.append(on_expire)
    return log
