"""Sends what the spool holds to a log that works again: in order for each key, until stored.

Each lane of each topic has a sender of its own, which backs off by itself, so that a topic or a
partition that stays away holds up no other; when a whole log is back, all are woken. Who waits for
no log, only for this node to know the topic (it has just started), goes on when it does. What
cannot be sent any more (its topic was deleted, a log refuses it, it is too old) is set aside and
counted, never dropped.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import trio
from msgspec import Struct

from hermes_actors.config.spool import SpoolConfig
from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.index import KEYLESS, TopicQueue, Waiting
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.fallback.spool.waking import Known, Pauses, Returns
from hermes_actors.log.base import (
    Log,
    LogUnavailable,
    Outcome,
    RefusedRecord,
    Stored,
    UnknownRecord,
)
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.model.message import Envelope, to_record
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.topic import Ack

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

Item = tuple[Waiting, SpoolEntry]


class Destinations(Struct, frozen=True):
    """Where entries go.

    `live` looks a topic up by its name. `is_gone` says whether a life of a topic, by name and
    incarnation, was deleted: what is only not known is waited for. `logs` are those that may take
    a topic's messages, in their order.
    """

    live: Callable[[str], LiveTopic | None]
    is_gone: Callable[[str, int], bool]
    logs: Callable[[LiveTopic], Sequence[Log]]


class _Sending(Struct, eq=False):
    """What is known of a topic while something of it waits."""

    queue: TopicQueue
    is_arranged: bool = False
    lanes: set[int] = set()
    partitions: dict[str, tuple[int, float]] = {}
    away_until_s: dict[str, float] = {}
    next_partition: int = 0


class Replayer:
    """The actor. Batches are bounded by `records_max` and `bytes_max`."""

    def __init__(
        self,
        spool: Spool,
        destinations: Destinations,
        config: SpoolConfig,
        rng: random.Random,
        *,
        envelope: Envelope = Envelope.NATIVE,
        records_max: int = 1_000,
        bytes_max: int = 1_000_000,
    ) -> None:
        self._spool = spool
        self._clock = spool.clock
        self._destinations = destinations
        self._config = config
        self._rng = rng
        self._envelope = envelope
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._topics: dict[str, _Sending] = {}
        self._returns = Returns(self._logs)
        self._known = Known()
        # Whoever failed last waits among the like: topics that are away take no healthy one's turn.
        self._healthy = trio.CapacityLimiter(_SENDING_MAX)
        self._probing = trio.CapacityLimiter(_PROBING_MAX)

    async def run(self, stop: trio.Event) -> None:
        """Send until asked to stop. What is being sent then may be sent again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, nursery)
            nursery.start_soon(self._returns.watch)
            nursery.start_soon(self._known.watch)
            await stop.wait()
            nursery.cancel_scope.cancel()

    async def _follow(self, nursery: trio.Nursery) -> None:
        while True:
            for queue in self._spool.index.queues:
                self._start_lanes(queue, nursery)
            await trio.sleep(_LOOK_S)
            await self._spool.wait_changed()

    def _start_lanes(self, queue: TopicQueue, nursery: trio.Nursery) -> None:
        sending = self._topics.get(queue.log_topic)
        if sending is None or sending.queue is not queue:
            sending = self._topics[queue.log_topic] = _Sending(queue)
        lanes = queue.lanes
        if not sending.is_arranged:
            # One sender finds out how many lanes there are.
            lanes = [] if sending.lanes else lanes[:1]
        for lane in lanes:
            if lane not in sending.lanes:
                sending.lanes.add(lane)
                nursery.start_soon(self._send_lane, sending, lane, nursery)

    async def _send_lane(self, sending: _Sending, lane: int, nursery: trio.Nursery) -> None:
        """Send until the lane is empty; until lanes are arranged, only arrange them."""
        try:
            if not sending.is_arranged:
                await self._arrange(sending)
            else:
                await self._empty(sending, lane)
        finally:
            sending.lanes.discard(lane)
        queue = sending.queue
        if queue.count:
            self._start_lanes(queue, nursery)
        elif not sending.lanes and self._topics.get(queue.log_topic) is sending:
            del self._topics[queue.log_topic]

    async def _arrange(self, sending: _Sending) -> None:
        backoff = self._backoff()
        queue = sending.queue
        while queue.count:
            await self._wait_known(queue)
            live = self._destinations.live(queue.topic)
            if self._is_gone(queue) or self._has_expired(queue):
                break
            if live is None or live.log_topic != queue.log_topic:
                continue
            log = self._next_log(sending, live, backoff.tries)
            partitions = await self._partitions(sending, log)
            if partitions is not None:
                queue.arrange(partitions)
                sending.next_partition = self._rng.randrange(partitions)
                break
            await backoff.rest()
        sending.is_arranged = True

    async def _empty(self, sending: _Sending, lane: int) -> None:
        backoff = self._backoff()
        records_max = min(_FIRST_RECORDS, self._records_max)
        queue = sending.queue
        while True:
            if queue.count and not self._is_known(queue):
                queue.is_flowing = False
                await self._wait_known(queue)
                backoff.reset()
            now_s = self._clock.monotonic_s()
            batch, again_s = queue.select(
                lane, now_s, records_max=records_max, bytes_max=self._bytes_max
            )
            if not batch:
                if again_s is None:
                    return
                queue.is_flowing = False
                # Sooner than that if the append that may still store it ends.
                await trio.sleep(max(min(again_s - now_s, _HELD_POLL_S), 0.001))
                continue
            async with self._probing if backoff.tries else self._healthy:
                is_ok = await self._replay(sending, lane, batch, backoff.tries)
            queue.is_flowing = is_ok
            if is_ok:
                backoff.reset()
                records_max = min(records_max * 2, self._records_max)
            else:
                records_max = min(_FIRST_RECORDS, self._records_max)
                await backoff.rest()

    def _backoff(self) -> Pauses:
        return Pauses(self._returns, self._rng, self._config.replay_backoff_max_ms / 1_000)

    async def _wait_known(self, queue: TopicQueue) -> None:
        """Return when it is known where its messages go, or nothing of it waits any more."""
        await self._known.wait(lambda: not queue.count or self._is_known(queue))

    def _is_known(self, queue: TopicQueue) -> bool:
        """True when it is known where its messages go, or that some of them go nowhere."""
        live = self._destinations.live(queue.topic)
        if live is not None and live.log_topic == queue.log_topic:
            return True
        return self._is_gone(queue) or self._has_expired(queue)

    def _has_expired(self, queue: TopicQueue) -> bool:
        """True when its oldest entry has waited too long, perhaps for a topic that nobody knows."""
        oldest = queue.oldest()
        now_s = self._clock.monotonic_s()
        return oldest is not None and self._spool.has_expired(oldest, now_s)

    def _is_gone(self, queue: TopicQueue) -> bool:
        """True when that life of the topic is over for good."""
        return self._destinations.is_gone(queue.topic, queue.incarnation)

    async def _replay(
        self, sending: _Sending, lane: int, batch: list[Waiting], failures: int
    ) -> bool:
        """False when it has to be tried again, not at once."""
        queue = sending.queue
        live = self._destinations.live(queue.topic)
        try:
            if self._is_gone(queue):
                await self._spool.set_aside(batch, "topic_gone")
                return True
            if live is None or live.log_topic != queue.log_topic:
                await self._set_expired_aside(batch)
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
        """Of several datacentres the first that has not failed of late, else each in turn."""
        logs = self._destinations.logs(live)
        now_s = self._clock.monotonic_s()
        for log in logs:
            if sending.away_until_s.get(log.dc, now_s) <= now_s:
                return log
        return logs[failures % len(logs)]

    def _logs(self) -> dict[str, tuple[Log, str]]:
        """The logs that may take something of what waits, and a topic of each."""
        found: dict[str, tuple[Log, str]] = {}
        for sending in self._topics.values():
            live = self._destinations.live(sending.queue.topic)
            if live is not None:
                for log in self._destinations.logs(live):
                    found.setdefault(log.dc, (log, sending.queue.log_topic))
        return found

    def _pass_over(self, sending: _Sending, log: Log) -> None:
        sending.away_until_s[log.dc] = self._clock.monotonic_s() + _PASSED_OVER_S

    async def _readable(self, batch: list[Waiting]) -> list[Item]:
        """What can be sent of a batch; the rest is set aside."""
        await self._set_expired_aside(batch)
        read = await self._spool.read([each for each in batch if not each.is_settled])
        damaged = [each for each, entry in read if entry is None]
        if damaged:
            await self._spool.set_aside(damaged, "unreadable")
        return [(each, entry) for each, entry in read if entry is not None]

    async def _set_expired_aside(self, batch: list[Waiting]) -> None:
        now_s = self._clock.monotonic_s()
        expired = [each for each in batch if self._spool.has_expired(each, now_s)]
        if expired:
            await self._spool.set_aside(expired, "expired")

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
        strictest = Ack.ALL if any(entry.ack is Ack.ALL for _, entry in items) else Ack.LEADER
        records = [to_record(entry.message, self._envelope) for _, entry in items]
        outcomes = await log.append(sending.queue.log_topic, partition, records, strictest)
        stored = [
            each
            for (each, _), outcome in zip(items, outcomes, strict=True)
            if type(outcome) is Stored
        ]
        self._spool.settle(stored)
        self._spool.measures.replayed.add(len(stored))
        if len(stored) == len(items):
            return True
        self._count_failures(outcomes)
        refused = [
            each
            for (each, _), outcome in zip(items, outcomes, strict=True)
            if type(outcome) is RefusedRecord
        ]
        if not refused:
            return False
        sending.partitions.clear()
        if await self._partitions(sending, log) is None:
            return False  # The topic is not there yet; that is no refusal of the message.
        await self._spool.set_aside(refused, "refused")
        return len(stored) + len(refused) == len(items)

    def _count_failures(self, outcomes: Sequence[Outcome]) -> None:
        measures = self._spool.measures
        for outcome in outcomes:
            if type(outcome) is UnknownRecord:
                measures.replay_failures("unknown").add()
            elif type(outcome) is RefusedRecord:
                measures.replay_failures("refused").add()
            elif type(outcome) is not Stored:
                measures.replay_failures("unavailable").add()

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
