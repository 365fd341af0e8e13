"""Sends what the spool holds to a log that works again: in order for each key, until stored.

Each lane of each topic has a sender of its own, which backs off by itself, so that a topic or a
partition that stays away holds up no other; when a whole log is back, all are woken. Who waits for
no log, only for this node to know the topic (it has just started), goes on when it does. What
cannot be sent any more (its topic was deleted, a log refuses it, it is too old) is set aside and
counted, never dropped.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio
from msgspec import Struct

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.index import KEYLESS, TopicQueue, Waiting
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.log.backoff import Backoff
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

_FIRST_REST_S = 0.1
_FIRST_REST_AFTER_RETURN_S = 1.0
"""After a log was back: it may answer some seconds before it takes anything."""
_ASK_EVERY_S = 1.0
_ANSWER_MAX_S = 1.0
_TELL_EVERY_S = 30.0
"""A log that comes and goes is not tried by all each time it comes."""
_AT_ONCE = 64
_PAUSE_S = 0.01
"""So many go on at a time: there may be thousands, and a node has other things to do."""
_LOOK_EVERY_S = 0.5
_LOOK_S = 0.01
"""New entries wait this long before a sender looks for them: many come at once."""
_FIRST_RECORDS = 10
"""The first batch, and the one after a failure: what may be stored twice then is little."""
_HELD_POLL_S = 0.05
_PARTITIONS_AGE_MAX_S = 30.0
_LOOKUP_MAX_S = 1.0
_PASSED_OVER_S = 3.0
"""A log that has failed is asked after the others for so long: each time it may hang again."""
_SENDING_MAX = 64
_PROBING_MAX = 256

_FAILURES: dict[type[Outcome], str] = {
    UnknownRecord: "unknown",
    RefusedRecord: "refused",
    UnavailableRecord: "unavailable",
}

Item = tuple[Waiting, SpoolEntry]

Logs = Callable[[LiveTopic], Sequence[Log]]
"""The logs that may take a topic's messages now, in their order."""

Appended = Callable[[Sequence[SpoolEntry], str, int, Sequence[Outcome], float], None]


class _Sending(Struct, eq=False):
    """The state of a topic's sending, kept while something of the topic waits."""

    queue: TopicQueue
    is_arranged: bool = False
    lanes: set[int] = set()
    partitions: dict[str, tuple[int, float]] = {}
    away_until_s: dict[str, float] = {}
    next_partition: int = 0


@dataclass(eq=False)
class Replayer:
    """The actor. Batches are bounded by `records_max` and `bytes_max`. `listeners` hear of each
    append that has ended: its entries, the datacentre, the partition, their outcomes, and the
    seconds it took.
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
        self._clock = self.spool.clock
        self._topics: dict[str, _Sending] = {}
        self._returns = Returns(self._asked)
        # Whoever failed last waits among the like: topics that are away take no healthy one's turn.
        self._healthy = trio.CapacityLimiter(_SENDING_MAX)
        self._probing = trio.CapacityLimiter(_PROBING_MAX)

    async def run(self, stop: trio.Event) -> None:
        """Send until asked to stop. What is being sent then may be sent again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, nursery)
            nursery.start_soon(self._returns.watch)
            await stop.wait()
            nursery.cancel_scope.cancel()

    async def _follow(self, nursery: trio.Nursery) -> None:
        """Start who can send. One look in half a second serves all whose topic is not known; they
        go on a few at a time.
        """
        while True:
            unknown = 0
            queues = self.spool.index.queues
            for at in range(0, len(queues), _AT_ONCE):
                known = [each for each in queues[at : at + _AT_ONCE] if self._is_known(each)]
                unknown += len(queues[at : at + _AT_ONCE]) - len(known)
                begun = [self._start_lanes(queue, nursery) for queue in known]
                if len(queues) > _AT_ONCE:
                    await trio.sleep(_PAUSE_S if any(begun) else 0)
            with trio.move_on_after(_LOOK_EVERY_S if unknown else math.inf):
                await self.spool.changed.wait()
            self.spool.changed = trio.Event()
            await trio.sleep(_LOOK_S)

    def _start_lanes(self, queue: TopicQueue, nursery: trio.Nursery) -> bool:
        sending = self._topics.get(queue.log_topic)
        if sending is None or sending.queue is not queue:
            sending = self._topics[queue.log_topic] = _Sending(queue)
        lanes = queue.lanes
        if not sending.is_arranged:
            # One sender finds out how many lanes there are.
            lanes = [] if sending.lanes else lanes[:1]
        idle = [lane for lane in lanes if lane not in sending.lanes]
        for lane in idle:
            sending.lanes.add(lane)
            nursery.start_soon(self._send_lane, sending, lane, nursery)
        return bool(idle)

    async def _send_lane(self, sending: _Sending, lane: int, nursery: trio.Nursery) -> None:
        """Send until the lane is empty or its topic not known; at first only arrange the lanes."""
        queue = sending.queue
        pauses = Pauses(self._returns, self.rng, self.spool.config.replay_backoff_max_ms / 1_000)
        records_max = min(_FIRST_RECORDS, self.records_max)
        while queue.count and self._is_known(queue):
            if not sending.is_arranged:
                if await self._arrange(sending, pauses.tries):
                    break
                await pauses.rest()
                continue
            now_s = self._clock.monotonic_s()
            batch, again_s = queue.select(
                lane, now_s, records_max=records_max, bytes_max=self.bytes_max
            )
            if not batch:
                if again_s is None:
                    break
                queue.is_flowing = False
                # Sooner than that if the append that may still store it ends.
                await trio.sleep(max(min(again_s - now_s, _HELD_POLL_S), 0.001))
                continue
            async with self._probing if pauses.tries else self._healthy:
                is_ok = await self._replay(sending, lane, batch, pauses.tries)
            queue.is_flowing = is_ok
            if is_ok:
                pauses.reset()
                records_max = min(records_max * 2, self.records_max)
            else:
                records_max = min(_FIRST_RECORDS, self.records_max)
                await pauses.rest()
        sending.lanes.discard(lane)
        if queue.count and self._is_known(queue):
            self._start_lanes(queue, nursery)
            return
        if not sending.lanes and self._topics.get(queue.log_topic) is sending:
            del self._topics[queue.log_topic]
        if queue.count:
            queue.is_flowing = False
            self.spool.changed.set()

    async def _arrange(self, sending: _Sending, failures: int) -> bool:
        """Stand what waits in lanes, as many as the log has partitions; what goes to no log needs
        none. False when the log does not say.
        """
        queue = sending.queue
        live = self._live(queue)
        if live is not None and not self._is_gone(queue) and not self._has_expired(queue):
            partitions = await self._partitions(sending, self._next_log(sending, live, failures))
            if partitions is None:
                return False
            queue.arrange(partitions)
            sending.next_partition = self.rng.randrange(partitions)
        sending.is_arranged = True
        return True

    def _is_known(self, queue: TopicQueue) -> bool:
        """True when it is known where its messages go, or that some of them go nowhere."""
        return self._live(queue) is not None or self._is_gone(queue) or self._has_expired(queue)

    def _live(self, queue: TopicQueue) -> LiveTopic | None:
        """Return the topic if this life of it goes on, else None."""
        live = self.metadata.catalog.topics.get(queue.topic)
        return live if live is not None and live.log_topic == queue.log_topic else None

    def _is_gone(self, queue: TopicQueue) -> bool:
        """True when that life of the topic is over for good: what is only not known is waited
        for.
        """
        return self.metadata.has_ended(queue.topic, queue.incarnation)

    def _has_expired(self, queue: TopicQueue) -> bool:
        """True when its oldest entry has waited too long, perhaps for a topic that nobody knows."""
        oldest = queue.oldest()
        now_s = self._clock.monotonic_s()
        is_tried = self._live(queue) is not None
        return oldest is not None and self.spool.has_expired(oldest, now_s, is_tried=is_tried)

    async def _replay(
        self, sending: _Sending, lane: int, batch: list[Waiting], failures: int
    ) -> bool:
        """Send a batch, or set it aside; False when it has to be tried again, not at once."""
        queue = sending.queue
        live = self._live(queue)
        try:
            if self._is_gone(queue):
                await self.spool.set_aside(batch, "topic_gone")
                return True
            if live is None:
                await self._set_expired_aside(batch, is_tried=False)
                return False
            log = self._next_log(sending, live, failures)
            items = await self._readable(batch)
            if not items:
                return True
            partitions = await self._partitions(sending, log)
            if partitions is None:
                return False
            is_ok = True
            for partition, group in self._spread(sending, lane, items, partitions).items():
                is_ok &= await self._append(sending, log, partition, group)
            if not is_ok:
                self._pass_over(sending, log)
            return is_ok
        except SpoolUnavailable:
            return False

    def _next_log(self, sending: _Sending, live: LiveTopic, failures: int) -> Log:
        """Return the first of the topic's logs that has not failed of late, else each in turn."""
        logs = self.logs(live)
        now_s = self._clock.monotonic_s()
        for log in logs:
            if sending.away_until_s.get(log.dc, now_s) <= now_s:
                return log
        return logs[failures % len(logs)]

    def _asked(self) -> dict[str, tuple[Log, str]]:
        """Return the logs that may take something of what waits, by datacentre, and a topic of
        each.
        """
        found: dict[str, tuple[Log, str]] = {}
        for sending in self._topics.values():
            live = self.metadata.catalog.topics.get(sending.queue.topic)
            for log in self.logs(live) if live is not None else ():
                found.setdefault(log.dc, (log, sending.queue.log_topic))
        return found

    def _pass_over(self, sending: _Sending, log: Log) -> None:
        sending.away_until_s[log.dc] = self._clock.monotonic_s() + _PASSED_OVER_S

    async def _readable(self, batch: list[Waiting]) -> list[Item]:
        """Return the entries of a batch that can be sent; the expired and the unreadable are set
        aside.
        """
        await self._set_expired_aside(batch, is_tried=True)
        read = await self.spool.read([each for each in batch if not each.is_settled])
        damaged = [each for each, entry in read if entry is None]
        if damaged:
            await self.spool.set_aside(damaged, "unreadable")
        return [(each, entry) for each, entry in read if entry is not None]

    async def _set_expired_aside(self, batch: list[Waiting], *, is_tried: bool) -> None:
        now_s = self._clock.monotonic_s()
        expired = [each for each in batch if self.spool.has_expired(each, now_s, is_tried=is_tried)]
        if expired:
            await self.spool.set_aside(expired, "expired")

    def _spread(
        self, sending: _Sending, lane: int, items: list[Item], partitions: int
    ) -> dict[int, list[Item]]:
        if lane == KEYLESS:
            # Another one each time, so that one that is away does not hold up what has no key.
            sending.next_partition = (sending.next_partition + 1) % partitions
            return {sending.next_partition: items}
        groups: dict[int, list[Item]] = {}
        for each, entry in items:
            assert each.key is not None, "only those without a key are in the other lane"
            groups.setdefault(partition_of(each.key, partitions), []).append((each, entry))
        return groups

    async def _append(self, sending: _Sending, log: Log, partition: int, items: list[Item]) -> bool:
        # A late acknowledgement may have come while the log was asked for its partitions.
        items = [(each, entry) for each, entry in items if not each.is_settled]
        if not items:
            return True
        strictest = max((entry.ack for _, entry in items), key=lambda ack: ack.waits_for_replicas)
        records = [to_record(entry.message, self.envelope) for _, entry in items]
        started_s = self._clock.monotonic_s()
        outcomes = await log.append(sending.queue.log_topic, partition, records, strictest)
        took_s = self._clock.monotonic_s() - started_s
        for appended in self.listeners:
            appended([entry for _, entry in items], log.dc, partition, outcomes, took_s)
        by_kind: dict[type[Outcome], list[Waiting]] = {}
        for (each, _), outcome in zip(items, outcomes, strict=True):
            by_kind.setdefault(type(outcome), []).append(each)
        stored, refused = by_kind.pop(Stored, []), by_kind.get(RefusedRecord, [])
        self.spool.settle(stored)
        measures = self.spool.measures
        measures.replayed.add(len(stored))
        for kind, failed in by_kind.items():
            measures.replay_failures[_FAILURES[kind]].add(len(failed))
        if not refused:
            return not by_kind
        sending.partitions.clear()
        if await self._partitions(sending, log) is None:
            return False  # The topic is not there yet; that is no refusal of the message.
        await self.spool.set_aside(refused, "refused")
        return len(by_kind) == 1

    async def _partitions(self, sending: _Sending, log: Log) -> int | None:
        """The topic's number of partitions in that log; None when it does not say."""
        now_s = self._clock.monotonic_s()
        known = sending.partitions.get(log.dc)
        if known is not None and known[1] + _PARTITIONS_AGE_MAX_S > now_s:
            return known[0]
        settings = None
        # A log that hangs must not keep what waits from another one that works.
        with trio.move_on_after(_LOOKUP_MAX_S), suppress(LogUnavailable):
            settings = await log.describe_topic(sending.queue.log_topic)
        if settings is None:
            self._pass_over(sending, log)
            return None
        sending.partitions[log.dc] = (settings.partitions, now_s)
        return settings.partitions


class Returns:
    """Run `watch` beside those who `rest`. It asks only while somebody rests.

    A log that answers and yet takes nothing wakes nobody: only one that had not answered before.
    `count` tells how often one was back: who was trying just then, and failed, knows by that.
    `logs` tells, of each datacentre that may take something, the log and a topic to ask it for.
    """

    def __init__(self, logs: Callable[[], Mapping[str, tuple[Log, str]]]) -> None:
        self.count = 0
        self._logs = logs
        self._resting: dict[trio.Event, None] = {}
        self._somebody_rests = trio.Event()

    async def rest(self, wait_s: float) -> None:
        """Return after that time, or when a log is back."""
        is_back = trio.Event()
        self._resting[is_back] = None
        self._somebody_rests.set()
        try:
            with trio.move_on_after(wait_s):
                await is_back.wait()
        finally:
            del self._resting[is_back]

    async def watch(self) -> None:
        """Ask, for ever."""
        # Kept while nobody rests: whoever rests next may have tried before the log was back.
        silent: set[str] = set()
        next_s = 0.0
        while True:
            if not self._resting:
                self._somebody_rests = trio.Event()
                await self._somebody_rests.wait()
            await trio.sleep(_ASK_EVERY_S)
            asked = self._logs()
            answering = await self._answering(asked)
            silent |= asked.keys() - answering
            if silent & answering and trio.current_time() >= next_s:
                silent -= answering
                next_s = trio.current_time() + _TELL_EVERY_S
                await self._tell()

    async def _tell(self) -> None:
        self.count += 1
        resting = list(self._resting)
        for at in range(0, len(resting), _AT_ONCE):
            for is_back in resting[at : at + _AT_ONCE]:
                is_back.set()
            await trio.sleep(_PAUSE_S)

    async def _answering(self, asked: Mapping[str, tuple[Log, str]]) -> set[str]:
        """The datacentres whose logs answer at once."""
        found: set[str] = set()

        async def ask(dc: str, log: Log, topic: str) -> None:
            with suppress(LogUnavailable):
                await log.describe_topic(topic)
                found.add(dc)

        with trio.move_on_after(_ANSWER_MAX_S):
            async with trio.open_nursery() as nursery:
                for dc, (log, topic) in asked.items():
                    nursery.start_soon(ask, dc, log, topic)
        return found


class Pauses:
    """The pauses of one who tries again and again; they grow, and begin anew when a log is back.

    `tries` is how often in a row it has failed.
    """

    def __init__(self, returns: Returns, rng: random.Random, longest_s: float) -> None:
        self._returns = returns
        self._rng = rng
        self._longest_s = longest_s
        self._returned = returns.count
        self._backoff = Backoff(rng, _FIRST_REST_S, longest_s)
        self.tries = 0

    async def rest(self) -> None:
        """Count a failure, and return when it is time to try again."""
        self.tries += 1
        if self._returned != self._returns.count:
            self._returned = self._returns.count
            self._backoff = Backoff(self._rng, _FIRST_REST_AFTER_RETURN_S, self._longest_s)
        await self._returns.rest(self._backoff.next_s())

    def reset(self) -> None:
        """Begin anew after a success."""
        self.tries = 0
        self._returned = self._returns.count
        self._backoff = Backoff(self._rng, _FIRST_REST_S, self._longest_s)
