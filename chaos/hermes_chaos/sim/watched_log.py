"""One DC's log with its truth told: what it stores, drops and commits, when it does."""

import random
from collections.abc import Mapping, Sequence

import trio

from hermes_actors.log.base import Commit, Outcome
from hermes_actors.log.faults import Faults
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.dead_letter import Letter, dlq_topic, read_entry
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.clock import SimulatedClock
from hermes_chaos.sim.determinism import rng_of
from hermes_chaos.sim.history import (
    Closed,
    Committed,
    Dropped,
    Expired,
    History,
    Lettered,
    stored,
)
from hermes_chaos.sim.nemesis import calm
from hermes_chaos.sim.trace import Trace
from hermes_chaos.sim.workload import GROUP, KEYLESS_TOPICS

_APPEND_TIMEOUT_S = 1.0
_STALL_RATE = 0.3
# Above what a producer calls slow (20 ms), below what it takes until a message is kept (50 ms).
_STALL_S = (0.02, 0.04)
_LETTERS = dlq_topic(GROUP)
_UNEVEN = frozenset(topic.name for topic in KEYLESS_TOPICS)


class _UnevenLog(MemoryLog):
    """A log on a disk that stalls now and then, for the topics without keys: that is no fault.

    One publisher at a time writes to these, so that each append has the time limit to itself.
    """

    def __init__(
        self, dc: str, rng: random.Random, names: Mapping[str, str], faults: Faults
    ) -> None:
        super().__init__(dc, SimulatedClock(), faults=faults, append_timeout_s=_APPEND_TIMEOUT_S)
        self._rng = rng
        self._names = names

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> list[Outcome]:
        """As `Log.append`."""
        if self._names.get(topic) in _UNEVEN and self._rng.random() < _STALL_RATE:
            await trio.sleep(self._rng.uniform(*_STALL_S))
        return await super().append(topic, partition, batch, ack)


def _entry(dc: str, record: StoredRecord) -> Lettered | Closed:
    """What a record of the dead-letter topic says."""
    entry = read_entry(record)
    if isinstance(entry, Letter):
        return Lettered(dc, entry, trio.current_time())
    subscription = (record.key or b"").decode()
    return Closed(dc, subscription, entry.kind.value, entry.ids, trio.current_time())


def watched_log(
    dc: str, seed: int, message_topics: Mapping[str, str], history: History, trace: Trace
) -> MemoryLog:
    """A healthy log. Of `message_topics` (read as they are at each moment) everything is told."""
    faults = Faults(rng_of(seed, f"log {dc}"))
    log = _UnevenLog(dc, rng_of(seed, f"disk {dc}"), message_topics, faults)
    calm(log)

    def on_append(topic: str, record: StoredRecord) -> None:
        trace.note(dc, f"append {topic}/{record.partition}@{record.offset}")
        if topic in message_topics:
            place = (dc, topic, record.partition)
            history.tell(stored(place, message_topics[topic], record))
        elif topic == _LETTERS:
            history.tell(_entry(dc, record))

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
