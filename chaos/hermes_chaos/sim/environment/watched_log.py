"""One datacentre's log, which reports what it stores, drops and commits, when it happens."""

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
# Above what a producer calls slow (20 ms), below the time until a message is kept (50 ms).
_STALL_S = (0.02, 0.04)
_LETTERS = dlq_topic(GROUP)
_UNEVEN = frozenset(topic.name for topic in KEYLESS_TOPICS)


class WatchedLog(MemoryLog):
    """A log whose disk stalls now and then, for topics without keys. That does not count as a
    fault.

    Only one publisher at a time writes to these topics, so each append has the whole time limit.
    `clock`, which stamps coordination records, may be set forwards and back, as if another broker's
    were off.
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
        """As `MemoryLog.expire`. Of the coordination log only records before the last snapshot
        expire: with a snapshot each 30 s, later ones never get old enough in production.
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
        """Forget the coordination log, as if it had expired. False if a leader change or appends
        are under way, which would not have taken so long, or if it is empty.
        """
        known = self.topics.by_name.get(COORDINATION_TOPIC)
        if known is None or self.faults.replication_stopped or known.partitions[0].requests:
            return False
        partition = known.partitions[0]
        partition.start = partition.end
        partition.records.clear()
        return True

    def lose_end(self, names: Container[str], records_max: int) -> bool:
        """Lose the last records of these topics, read or not, and reuse their offsets, as after an
        unclean leader election. Only if all readers wait at the end. False if nothing was lost, or
        there is another fault.
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
        """True if all consumer groups have committed everything."""
        kept = self.topics.known(log_topic).commits.values()
        return all(each[number][0].position == end for each in kept if number in each)

    def grow(self, name: str, partitions_max: int) -> bool:
        """Add a partition to the topic with that name, as people do with Kafka's tools. False if it
        already has the maximum.
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
            # Like Kafka: the time of the current leader, even if it is earlier.
            known.partitions[number].high_ms = 0
        return super()._store_one(topic, known, number, record)


class _Coordination:
    """Reports coordination records as soon as they can be read."""

    def __init__(self, log: MemoryLog, history: History) -> None:
        self._log = log
        self._history = history
        self._pending: list[StoredRecord] = []

    def on_append(self, record: StoredRecord) -> None:
        """Note a record on the leader; report it once it is replicated."""
        self._pending.append(record)
        self.tell()

    def on_drop(self, end: int) -> None:
        """Forget unreported records from offset `end` on: they are lost."""
        self._pending = [record for record in self._pending if record.offset < end]

    def tell(self) -> None:
        """Report everything that is replicated."""
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
    """The letter or the mark in a record of the dead-letter topic."""
    entry = read_entry(record)
    if isinstance(entry, Letter):
        return Lettered(dc, entry, trio.current_time())
    subscription = (record.key or b"").decode()
    kind, at_s = entry.kind.value, trio.current_time()
    return Closed(dc, subscription, kind, entry.ids, at_s, entry.up_to_ms)


def watched_log(
    dc: str, seed: int, message_topics: Mapping[str, str], history: History, trace: Trace
) -> WatchedLog:
    """A healthy log. Everything about `message_topics` is reported; the mapping may grow."""
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
    """End all faults. A healthy log still takes some time, so that operations overlap as in
    production.
    """
    log.faults.heal()
    log.faults.delay_s = _APPEND_S
    log.faults.read_delay_s = _READ_S
