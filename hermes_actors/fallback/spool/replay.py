"""Sends the spool's messages to a log that works again: in order for each key, until stored.

Each topic has a sender with its own back-off, so that a failing topic does not delay the others.
Messages that can no longer be sent (the topic was deleted, a log refuses them, they are too old)
are set aside and counted, never dropped.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import trio

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.index import TopicQueue, Waiting
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.log.base import (
    Log,
    LogUnavailable,
    Outcome,
    RefusedRecord,
    Stored,
    UnavailableRecord,
    UnknownRecord,
)
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.message import Envelope, to_record
from hermes_actors.model.partitioner import partition_of
from hermes_actors.runtime.backoff import Backoff

_REST_MIN_S = 0.1
_REST_MAX_S = 3.0
_GATHER_S = 0.01
"""How long senders wait after new entries, which often arrive in groups."""
_HELD_POLL_S = 0.05
_LOOKUP_MAX_S = 5.0
_SENDING_MAX = 256

_FAILURES: dict[type[Outcome], str] = {
    UnknownRecord: "unknown",
    RefusedRecord: "refused",
    UnavailableRecord: "unavailable",
}

Item = tuple[Waiting, SpoolEntry]

Logs = Callable[[LiveTopic], Sequence[Log]]
"""Returns the logs that may take a topic's messages now, in order of preference."""

Appended = Callable[[Sequence[SpoolEntry], str, int, Sequence[Outcome], float], None]


@dataclass(eq=False)
class Replayer:
    """The actor. Batches are limited by `records_max` and `bytes_max`. `listeners` are called after
    each append with its entries, datacentre, partition, outcomes and duration in seconds.
    """

    spool: Spool
    metadata: Metadata
    logs: Logs
    rng: random.Random
    envelope: Envelope = Envelope.NATIVE
    records_max: int = 1_000
    bytes_max: int = 1_000_000
    listeners: Sequence[Appended] = ()

    def __post_init__(self) -> None:
        self._now_s = self.spool.clock.monotonic_s
        self._topics: set[TopicQueue] = set()
        self._turns = trio.CapacityLimiter(_SENDING_MAX)

    async def run(self, stop: trio.Event) -> None:
        """Send until asked to stop. Messages being sent at that moment may be sent again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, nursery)
            await stop.wait()
            nursery.cancel_scope.cancel()

    async def _follow(self, nursery: trio.Nursery) -> None:
        """Start a sender for each topic with waiting entries."""
        while True:
            changed = self.spool.changed
            for queue in self.spool.index.queues.values():
                if queue.count and queue not in self._topics:
                    self._topics.add(queue)
                    nursery.start_soon(self._send_topic, queue)
            await changed.wait()
            await trio.sleep(_GATHER_S)

    async def _send_topic(self, queue: TopicQueue) -> None:
        """Send until the topic has no waiting entries. After each failure, the next log is
        tried.
        """
        entries, turn = queue.entries, 0
        backoff = Backoff(self.rng, _REST_MIN_S, _REST_MAX_S)
        queue.is_flowing = True
        while entries:
            if entries[0].is_settled:
                entries.popleft()
                continue
            if entries[0].held_until_s > self._now_s():
                # Another append may still store it.
                await trio.sleep(_HELD_POLL_S)
                continue
            async with self._turns:
                batch = self._next_batch(entries)
                is_sent = await self._send(queue, batch, turn)
            queue.is_flowing = is_sent
            if is_sent:
                backoff.reset()
            else:
                turn += 1
                await trio.sleep(backoff.next_s())
        self._topics.discard(queue)

    def _next_batch(self, entries: deque[Waiting]) -> list[Waiting]:
        """Return the entries to send next: at least one, whatever its size."""
        batch: list[Waiting] = []
        now_s, size_bytes = self._now_s(), 0
        for each in islice(entries, self.records_max):
            assert each.place is not None, "queued entries are on the disk"
            size_bytes += each.place.size_bytes
            if each.held_until_s > now_s or (batch and size_bytes > self.bytes_max):
                break
            if not each.is_settled:
                batch.append(each)
        return batch

    async def _send(self, queue: TopicQueue, batch: list[Waiting], turn: int) -> bool:
        """Send a batch, or set it aside. False if it has to be retried after a pause."""
        try:
            logs = self._logs(queue)
            if not (logs and queue.is_flowing):
                # If the disk is full, only sending may make room.
                with suppress(SpoolUnavailable):
                    await self._set_hopeless_aside(queue, batch)
            items = await self.spool.read([each for each in batch if not each.is_settled])
            if not items or not logs:
                return not items
            log = logs[turn % len(logs)]
            partitions = await self._partitions(log, queue)
            if not partitions:
                return False
            # A different partition each time, so that an unavailable one does not delay messages
            # without keys.
            keyless = self.rng.randrange(partitions)
            groups: dict[int, list[Item]] = {}
            for item in items:
                key = item[0].key
                partition = keyless if key is None else partition_of(key, partitions)
                groups.setdefault(partition, []).append(item)
            return all([await self._append(queue, log, *group) for group in groups.items()])
        except SpoolUnavailable:
            return False

    async def _append(self, queue: TopicQueue, log: Log, partition: int, items: list[Item]) -> bool:
        measures = self.spool.measures
        entries = [entry for _, entry in items]
        strictest = max([entry.ack for entry in entries], key=lambda ack: ack.waits_for_replicas)
        records = [to_record(entry.message, self.envelope) for entry in entries]
        started_s = self._now_s()
        outcomes = await log.append(queue.log_topic, partition, records, strictest)
        took_s = self._now_s() - started_s
        for appended in self.listeners:
            appended(entries, log.dc, partition, outcomes, took_s)
        by_kind: dict[type[Outcome], list[Waiting]] = {}
        for (each, _), outcome in zip(items, outcomes, strict=True):
            by_kind.setdefault(type(outcome), []).append(each)
        stored = by_kind.pop(Stored, [])
        self.spool.settle(stored)
        measures.replayed.add(len(stored))
        for kind, failed in by_kind.items():
            measures.replay_failures[_FAILURES[kind]].add(len(failed))
        if refused := by_kind.pop(RefusedRecord, []):
            if not await self._partitions(log, queue):
                return False  # The topic is not there yet; the message is not refused.
            await self.spool.set_aside(refused, "refused")
        return not by_kind

    async def _set_hopeless_aside(self, queue: TopicQueue, entries: Iterable[Waiting]) -> None:
        """Set aside the entries that are too old or whose topic is gone."""
        now_s = self._now_s()
        # If the topic is merely unknown, they wait.
        is_gone = self.metadata.has_ended(queue.topic, queue.incarnation)
        hopeless = [
            each
            for each in islice(entries, self.records_max)
            if not each.is_settled and (is_gone or self.spool.has_expired(each, now_s))
        ]
        if hopeless:
            await self.spool.set_aside(hopeless, "topic_gone" if is_gone else "expired")

    def _logs(self, queue: TopicQueue) -> Sequence[Log]:
        """Return the logs that may take its messages; none if this incarnation of the topic is
        gone.
        """
        live = self.metadata.catalog.topics.get(queue.topic)
        is_live = live is not None and live.log_topic == queue.log_topic
        return self.logs(live) if live is not None and is_live else ()

    async def _partitions(self, log: Log, queue: TopicQueue) -> int:
        """Return the topic's number of partitions in that log; 0 if it does not answer."""
        # A log that hangs must not keep messages from another one that works.
        with trio.move_on_after(_LOOKUP_MAX_S), suppress(LogUnavailable):
            settings = await log.topics.describe(queue.log_topic)
            return 0 if settings is None else settings.partitions
        return 0
