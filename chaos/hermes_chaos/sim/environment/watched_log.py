"""One DC's log with its truth told: what it stores, drops and commits, when it does."""

import random
from collections.abc import Container, Mapping, Sequence

import trio
from msgspec.structs import replace

from hermes_actors.coordination.commands import (
    COORDINATION_TOPIC,
    SETTINGS,
    Said,
    Snapshot,
    Undecodable,
    decode,
)
from hermes_actors.log.base import Commit, Outcome
from hermes_actors.log.faults import Faults
from hermes_actors.log.memory import MemoryLog
from hermes_actors.log.memory_state import MemoryPartition, MemoryTopic
from hermes_actors.model.dead_letter import Letter, dlq_topic, read_entry
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.determinism import rng_of
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.history.events import (
    Closed,
    Committed,
    Dropped,
    Expired,
    History,
    Lettered,
    stored,
)
from hermes_chaos.sim.history.standing import Coordinated
from hermes_chaos.sim.history.trace import Trace
from hermes_chaos.sim.workload.plans import GROUP, KEYLESS_TOPICS

_APPEND_TIMEOUT_S = 1.0
_APPEND_S = (0.0005, 0.004)
_READ_S = (0.0, 0.002)
_STALL_RATE = 0.3
# Above what a producer calls slow (20 ms), below what it takes until a message is kept (50 ms).
_STALL_S = (0.02, 0.04)
_LETTERS = dlq_topic(GROUP)
_UNEVEN = frozenset(topic.name for topic in KEYLESS_TOPICS)


class WatchedLog(MemoryLog):
    """A log on a disk that stalls now and then, for the topics without keys: that is no fault.

    One publisher at a time writes to these, so that each append has the time limit to itself.
    Its `clock`, which stamps what is coordinated, may be set, forwards and back: another broker may
    be off by so much.
    """

    def __init__(
        self, dc: str, rng: random.Random, names: Mapping[str, str], faults: Faults
    ) -> None:
        self.clock = SimulatedClock()
        super().__init__(dc, self.clock, faults=faults, append_timeout_s=_APPEND_TIMEOUT_S)
        self._rng = rng
        self._names = names

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> list[Outcome]:
        """As `Log.append`."""
        if self._names.get(topic) in _UNEVEN and self._rng.random() < _STALL_RATE:
            await trio.sleep(self._rng.uniform(*_STALL_S))
        return await super().append(topic, partition, batch, ack)

    def expire(self, now_ms: int) -> None:
        """As `MemoryLog.expire`; of what is coordinated all goes that is older than the last
        snapshot. What comes after one is never as old as that in life: there is one each 30 s.
        """
        known = self.topics.by_name.get(COORDINATION_TOPIC)
        if known is not None:
            known.settings = replace(known.settings, retention_ms=None)
        super().expire(now_ms)
        if known is not None:
            known.settings = SETTINGS
            partition = known.partitions[0]
            said = [_said(record) for record in partition.records]
            cuts = [each.as_of + 1 for each in said if isinstance(each, Snapshot)]
            start = max([partition.start, *cuts])
            del partition.records[: start - partition.start]
            partition.start = start

    def forget_coordination(self) -> bool:
        """As if nothing had been coordinated for longer than retention. False: a leader change is
        under way, or appends are, which would not have taken so long, or there is nothing yet.
        """
        known = self.topics.by_name.get(COORDINATION_TOPIC)
        if known is None or self.faults.replication_stopped or known.partitions[0].requests:
            return False
        partition = known.partitions[0]
        partition.start = partition.end
        partition.records.clear()
        return True

    def lose_end(self, names: Container[str], records_max: int) -> bool:
        """A broker leads that had not copied the last records of the topics of those names: an
        unclean change of leader, with which also goes what was read already. Their offsets are
        given again. Only where all readers are at the end, and wait there. False: there was none,
        or there is other trouble.
        """
        if not _is_calm(self.faults):
            return False
        is_any = False
        for log_topic, known in self.topics.by_name.items():
            if self._names.get(log_topic) not in names:
                continue
            for number, partition in enumerate(known.partitions):
                was, end = partition.end, max(partition.start, partition.end - records_max)
                if end == was or partition.requests or not self._is_read(log_topic, number, was):
                    continue
                partition.cut(end)
                is_any = True
                for callback in self.on_drop:
                    callback(log_topic, number, end)
            known.readers.unpark_all()
        return is_any

    def _is_read(self, log_topic: str, number: int, end: int) -> bool:
        """Whether all who read it have said that they are done with all of it."""
        kept = self.topics.known(log_topic).commits.values()
        return all(each[number][0].position == end for each in kept if number in each)

    def grow(self, name: str, partitions_max: int) -> bool:
        """Add a partition to the topic of that name, as people do with Kafka's tools. False: it has
        so many already.
        """
        log_topic = next((each for each, own in self._names.items() if own == name), "")
        known = self.topics.by_name.get(log_topic)
        if known is None or len(known.partitions) >= partitions_max:
            return False
        known.partitions.append(MemoryPartition())
        known.settings = replace(known.settings, partitions=len(known.partitions))
        known.readers.unpark_all()
        return True

    def _store_one(self, topic: str, known: MemoryTopic, number: int, record: Record) -> int:
        if topic == COORDINATION_TOPIC:
            # As Kafka does: the time of the broker that leads now, also when it is an earlier one.
            known.partitions[number].high_ms = 0
        return super()._store_one(topic, known, number, record)


class _Coordination:
    """Tells what can be read of the coordination log, as soon as it can."""

    def __init__(self, log: MemoryLog, history: History) -> None:
        self._log = log
        self._history = history
        self._pending: list[StoredRecord] = []

    def on_append(self, record: StoredRecord) -> None:
        """Note a record that is on the leader, perhaps there alone; tell of it once it is
        replicated.
        """
        self._pending.append(record)
        self.tell()

    def on_drop(self, end: int) -> None:
        """Forget the records from offset `end` on that wait to be told: they are lost."""
        self._pending = [record for record in self._pending if record.offset < end]

    def tell(self) -> None:
        """Tell of all that is replicated."""
        if self._log.faults.replication_stopped:
            return
        pending, self._pending = self._pending, []
        for record in pending:
            said, at_s = _said(record), trio.current_time()
            self._history.tell(
                Coordinated(self._log.dc, record.offset, record.timestamp_ms, said, at_s)
            )


def _said(record: StoredRecord) -> Said | None:
    try:
        return decode(record.value)
    except Undecodable:
        return None


def _entry(dc: str, record: StoredRecord) -> Lettered | Closed:
    """Return the letter or the closing that a record of the dead-letter topic holds."""
    entry = read_entry(record)
    if isinstance(entry, Letter):
        return Lettered(dc, entry, trio.current_time())
    subscription = (record.key or b"").decode()
    kind, at_s = entry.kind.value, trio.current_time()
    return Closed(dc, subscription, kind, entry.ids, at_s, entry.up_to_ms)


def watched_log(
    dc: str, seed: int, message_topics: Mapping[str, str], history: History, trace: Trace
) -> WatchedLog:
    """A healthy log. Of `message_topics` (read as they are at each moment) everything is told."""
    faults = Faults(rng_of(seed, f"log {dc}"))
    log = WatchedLog(dc, rng_of(seed, f"disk {dc}"), message_topics, faults)
    calm(log)

    coordination = _Coordination(log, history)

    def on_append(topic: str, record: StoredRecord) -> None:
        trace.note(dc, f"append {topic}/{record.partition}@{record.offset}")
        if topic in message_topics:
            place = (dc, topic, record.partition)
            history.tell(stored(place, message_topics[topic], record))
        elif topic == COORDINATION_TOPIC:
            coordination.on_append(record)
        elif topic == _LETTERS:
            history.tell(_entry(dc, record))

    def on_commit(group: str, topic: str, partition: int, commit: Commit) -> None:
        trace.note(dc, f"commit {group} {topic}/{partition}@{commit.position}")
        history.tell(Committed((dc, topic, partition), group, commit))

    def on_drop(topic: str, partition: int, end: int) -> None:
        trace.note(dc, f"dropped {topic}/{partition} from {end} on")
        if topic in message_topics:
            history.tell(Dropped((dc, topic, partition), end))
        elif topic == COORDINATION_TOPIC:
            coordination.on_drop(end)

    def on_expire(topic: str, partition: int, start: int) -> None:
        trace.note(dc, f"expired {topic}/{partition} up to {start}")
        if topic in message_topics:
            history.tell(Expired((dc, topic, partition), start))

    log.on_append.append(on_append)
    log.on_commit.append(on_commit)
    log.on_drop.append(on_drop)
    log.on_expire.append(on_expire)
    faults.on_heal.append(coordination.tell)
    return log


def _is_calm(faults: Faults) -> bool:
    return faults.delay_s == _APPEND_S and not (
        faults.silent
        or faults.reads_silent
        or faults.replication_stopped
        or faults.reads_failing
        or faults.commits_failing
        or faults.stale_commits
        or faults.unavailable_rate
        or faults.acknowledgement_lost_rate
        or faults.partial_rate
    )


def calm(log: MemoryLog) -> None:
    """End all faults; a healthy log still takes its time, so that what overlaps in life does."""
    log.faults.heal()
    log.faults.delay_s = _APPEND_S
    log.faults.read_delay_s = _READ_S
