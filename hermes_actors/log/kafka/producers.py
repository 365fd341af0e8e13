"""Appends to Kafka: an outcome never claims more than is known about the record.

A batch is sent at once, without lingering; messages published meanwhile form the next batch. Each
partition has one batch in flight. The partitions of a broker share a few connections in such a way
that a slow one does not delay the others (see broker_connections.py).

With acks "all" a batch carries a producer id and a sequence number, so a broker recognises a copy.
Only such a batch is sent again after its answer was lost; the outcome of any other is unknown.
"""

import asyncio
import logging
import random
from collections.abc import Sequence

import trio
from msgspec import Struct

from hermes_actors.log.base import (
    Outcome,
    RefusedRecord,
    Stored,
    UnavailableRecord,
    UnknownRecord,
    is_all_stored,
    no_such_partition,
)
from hermes_actors.log.kafka.batches import BatchBounds
from hermes_actors.log.kafka.broker_connections import BrokerConnections, Lost, NotSent, SentBatch
from hermes_actors.log.kafka.brokers import Brokers
from hermes_actors.log.kafka.identities import Identities
from hermes_actors.log.kafka.leaders import Leaders
from hermes_actors.log.kafka.parts import AppendPart, PartitionTurn
from hermes_actors.log.kafka.perpetual import Perpetual
from hermes_actors.log.kafka.translate import BatchVerdict, Fate, produce_verdict
from hermes_actors.model.record import Record
from hermes_actors.model.run import size_of
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_actors.runtime.backoff import backoff_s
from hermes_actors.runtime.clock import Clock

_logger = logging.getLogger(__name__)
_BATCH_BYTES_MAX = 1_000_000
_RECORD_BYTES_MAX = 90 * 1024 * 1024
_WAITING_BYTES_MAX = 256 * 1024 * 1024
_BOUND_EXPIRES_S = 60.0
_SWEEP_S = 0.05
# Long enough for an orderly change of leader, and short for a caller that can use another log.
_PATIENCE_S = 1.0
_LOOKUPS = 3
_PAUSE_FIRST_S = 0.02
_PAUSE_MAX_S = 0.25
_TIDY_S = 60.0
_FAILURES_TOLD = 3
_HALVED = (Fate.TOO_LARGE, Fate.REFUSED_TOGETHER)


class ProducerStatistics(Struct, frozen=True):
    """The counters of producing since the log was opened. `replaced`: partitions that needed a new
    producer id, by cause. `lost`: requests whose answer was lost. `reason`: why the log is not
    connected.
    """

    is_connected: bool
    reason: str
    appends: int
    records: int
    bytes: int
    stored: int
    refused: int
    unavailable: int
    unknown: int
    in_flight: int
    connections: int
    lost: int
    replaced: dict[str, int]


class _Limits(Struct, frozen=True, gc=False):
    """The time limits of one append: a batch that is not stored is retried until `patience_s`, one
    that may be stored until `end_s`.
    """

    patience_s: float
    end_s: float


class Producers:
    """Produces for one log. `append` is for trio, everything else for the host loop."""

    def __init__(self, brokers: Brokers, clock: Clock, rng: random.Random) -> None:
        settings = brokers.settings
        self._connection = brokers.connection
        self._clock = clock
        self._rng = rng
        self._append_timeout_s = settings.append_timeout_ms / 1_000
        self._request_timeout_s = min(settings.request_timeout_ms / 1_000, self._append_timeout_s)
        self._leaders = Leaders(brokers, clock, rng, self._cluster_changed)
        self._identities = Identities(brokers)
        self._connections: dict[tuple[int, bool], BrokerConnections] = {}
        self._retired: list[BrokerConnections] = []
        self._places: dict[tuple[str, int, bool], PartitionTurn] = {}
        self._bounds = BatchBounds(_BATCH_BYTES_MAX, _BOUND_EXPIRES_S)
        self._sweeper = Perpetual(self._sweep, f"sweeping what Kafka of {self._connection.dc} owes")
        self._was_connected = False
        self._tidy_at_s = 0.0
        self._waiting_bytes = self._in_flight = self._lost = 0
        self._appends = self._records = self._bytes = 0
        self._counts: dict[type, int] = dict.fromkeys(
            (Stored, RefusedRecord, UnavailableRecord, UnknownRecord), 0
        )

    async def open(self) -> None:
        """Start to connect in the background."""
        self._leaders.start()
        self._sweeper.start()

    async def close(self) -> None:
        """Close all connections: batches in flight are unknown, queued ones are unavailable."""
        await self._sweeper.close()
        await self._leaders.close()
        await self._identities.close()
        for connections in [*self._connections.values(), *self._retired]:
            await connections.close()

    def forget(self, topic: str) -> None:
        """Forget a deleted topic: appends are refused, and not sent to its former leaders."""
        self._leaders.forget(topic)

    def statistics(self) -> ProducerStatistics:
        """Return the counters since the log was opened, and whether it is connected."""
        connections = [*self._connections.values(), *self._retired]
        counts = self._counts
        return ProducerStatistics(
            is_connected=self._leaders.is_connected,
            reason=self._leaders.reason,
            appends=self._appends,
            records=self._records,
            bytes=self._bytes,
            stored=counts[Stored],
            refused=counts[RefusedRecord],
            unavailable=counts[UnavailableRecord],
            unknown=counts[UnknownRecord],
            in_flight=self._in_flight,
            connections=sum(each.connections for each in connections),
            lost=self._lost + sum(each.lost for each in connections),
            replaced=dict(self._identities.replaced),
        )

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """As `Log.append`."""
        if not batch:
            return []
        size_bytes = size_of(batch)
        count = len(batch)
        self._appends += 1
        self._records += count
        self._bytes += size_bytes
        self._waiting_bytes += size_bytes
        self._in_flight += count
        try:
            if self._waiting_bytes > max(size_bytes, _WAITING_BYTES_MAX):
                outcomes: Sequence[Outcome] = [
                    UnavailableRecord("too many bytes are waiting for Kafka")
                ] * count
            else:
                outcomes = await self._append_in_turn(
                    topic, partition, batch, ack.waits_for_replicas
                )
        finally:
            self._waiting_bytes -= size_bytes
            self._in_flight -= count
        counts = self._counts
        if is_all_stored(outcomes):
            counts[Stored] += count
            return outcomes
        for outcome in outcomes:
            counts[type(outcome)] += 1
        return outcomes

    # One append.

    async def _append_in_turn(
        self, topic: str, partition: int, batch: Sequence[Record], waits: bool
    ) -> Sequence[Outcome]:
        key = (topic, partition, waits)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = PartitionTurn(topic, partition, waits)
        now_s = self._clock.monotonic_s()
        end_s = now_s + self._append_timeout_s
        limits = _Limits(min(now_s + _PATIENCE_S, end_s), end_s)
        if not await place.take_turn(self._append_timeout_s):
            late = UnavailableRecord("earlier batches of the partition took too long")
            return [late] * len(batch)
        try:
            return await self._append_parts(place, batch, limits)
        finally:
            place.pass_turn()
            self._leave_if_gone(place)

    async def _append_parts(
        self, place: PartitionTurn, batch: Sequence[Record], limits: _Limits
    ) -> Sequence[Outcome]:
        """Append the batch as few Kafka batches, in order; after a failure no later one is sent.

        A part that is refused as a whole is halved until only a single record is refused.
        """
        outcomes: list[Outcome] = []
        bytes_max = known_max = self._bounds.of(place.topic, self._clock.monotonic_s())
        count_max = len(batch)
        while len(outcomes) < len(batch):
            start = len(outcomes)
            if batch[start].size_bytes > _RECORD_BYTES_MAX:
                outcomes.append(
                    RefusedRecord("larger than a broker takes in one request", is_too_large=True)
                )
                continue
            part = AppendPart(place, batch, start, bytes_max, count_max)
            try:
                found = await self._deliver(part, limits)
            except BaseException:
                if part.is_out or part.is_perhaps_stored:
                    self._identities.lose(place.numbering, "cancelled")
                raise
            if found is Fate.TOO_LARGE:
                bytes_max = part.size_bytes // 2
                continue
            if isinstance(found, Fate):
                count_max = part.count // 2
                continue
            if len(found) == len(batch) and is_all_stored(found):
                return found
            outcomes += found
            last = type(found[-1])
            if last is Stored:
                count_max *= 2
            if last is UnknownRecord:
                self._identities.lose(place.numbering, "unacknowledged")
            if last is UnknownRecord or last is UnavailableRecord:
                unsent = UnavailableRecord("not sent, since an earlier record of the batch failed")
                outcomes += [unsent] * (len(batch) - len(outcomes))
        if bytes_max != known_max:
            self._bounds.learn(place.topic, bytes_max, self._clock.monotonic_s())
        return outcomes

    async def _deliver(self, part: AppendPart, limits: _Limits) -> Sequence[Outcome] | Fate:
        """Send one part until its outcome is known or time is up. Returns a fate if the part must
        be halved.
        """
        place, leaders = part.place, self._leaders
        lookups = tries = 0
        while True:
            limit_s = limits.end_s if part.is_perhaps_stored else limits.patience_s
            leader = leaders.leader(place.topic, place.partition)
            if leader is not None and leader >= 0:
                verdict = await self._attempt(part, leader, limit_s)
                if verdict.fate is Fate.STORED:
                    return part.stored()
                if verdict.fate in _HALVED and part.count > 1 and not part.is_perhaps_stored:
                    return verdict.fate
                ended = self._ended(part, verdict)
                if ended is not None:
                    return ended
                if part.is_perhaps_stored:
                    limit_s = limits.end_s
                is_stale, reason = verdict.metadata_is_stale, verdict.reason
                is_denied = verdict.is_denied
            elif leader is None and lookups >= _LOOKUPS:
                if trouble := leaders.trouble(place.topic):
                    return part.given_up(trouble)
                return part.refused(_no_such_place(place, leaders.partitions(place.topic)))
            else:
                is_stale, is_denied = True, False
                reason = f"{place.topic}/{place.partition} has no leader"
                lookups += leader is None and leaders.is_connected
            left_s = limit_s - self._clock.monotonic_s()
            is_cut_off = leaders.has_tried and not leaders.is_connected
            if left_s <= 0 or (is_cut_off and not part.is_perhaps_stored):
                return part.given_up(leaders.reason or reason)
            if is_stale:
                await self._refresh(place.topic, left_s)
                if leaders.leader(place.topic, place.partition) not in (None, -1, leader):
                    continue
                if is_denied:
                    leaders.doubt()
            pause_s = backoff_s(tries, self._rng.random(), _PAUSE_FIRST_S, _PAUSE_MAX_S)
            tries += 1
            await trio.sleep(min(pause_s, max(left_s, 0.001)))

    def _ended(self, part: AppendPart, verdict: BatchVerdict) -> list[Outcome] | None:
        """Return the outcomes if the verdict is final, else None. Marks a part that may be
        stored.
        """
        place = part.place
        match verdict.fate:
            case Fate.REFUSED | Fate.TOO_LARGE | Fate.REFUSED_TOGETHER:
                is_too_large = verdict.fate is Fate.TOO_LARGE
                return part.refused(verdict.reason, is_too_large=is_too_large)
            case Fate.PERHAPS_STORED:
                part.is_perhaps_stored = True
                if not place.waits_for_replicas:
                    return part.given_up(verdict.reason)
            case Fate.DUPLICATE:
                part.is_perhaps_stored = True
                return part.given_up(verdict.reason)
            case Fate.OUT_OF_SEQUENCE:
                self._identities.lose(place.numbering, verdict.reason)
                if part.is_perhaps_stored:
                    return part.given_up(verdict.reason)
        return None

    async def _refresh(self, topic: str, left_s: float) -> None:
        with trio.move_on_after(left_s):
            await guest.call(self._leaders.refresh, topic)

    async def _attempt(self, part: AppendPart, leader: int, limit_s: float) -> BatchVerdict:
        """Send the part once."""
        place = part.place
        connections = self._connections_of(leader, place.waits_for_replicas)
        if connections is None:
            return BatchVerdict(Fate.NOT_STORED, f"the leader, broker {leader}, is not up", True)
        if place.waits_for_replicas and place.numbering.needs_identity(part.count):
            self._identities.lose(place.numbering, "numbers used up")
            left_s = limit_s - self._clock.monotonic_s()
            identity = await guest.call(self._identities.take, left_s)
            if identity is None:
                return BatchVerdict(Fate.NOT_STORED, self._identities.reason or "no producer id")
            place.numbering.begin(identity)
            part.data = None
        sending = SentBatch(place.topic, place.partition, part.encoded(), limit_s, place.is_suspect)
        part.is_out = True
        try:
            connections.send(sending)
            code, part.offset = await sending.answer()
        except NotSent as error:
            part.is_out = False
            return BatchVerdict(Fate.NOT_STORED, str(error), True)
        except Lost as error:
            part.is_out = False
            place.is_suspect = True
            return BatchVerdict(Fate.PERHAPS_STORED, str(error), True)
        part.is_out = False
        place.is_suspect = sending.was_slow
        return produce_verdict(code, waits_for_replicas=place.waits_for_replicas)

    # Brokers.

    def _connections_of(self, node: int, waits_for_replicas: bool) -> BrokerConnections | None:
        found = self._connections.get((node, waits_for_replicas))
        if found is not None:
            return found
        address = self._leaders.addresses.get(node)
        if address is None:
            return None
        connections = BrokerConnections(
            self._connection,
            self._clock,
            address,
            acks=-1 if waits_for_replicas else 1,
            timeout_s=self._request_timeout_s,
            delay_s=lambda attempt: self._connection.reconnect_delay_s(attempt, self._rng),
            on_failure=lambda reason: self._connection_failed(connections, reason),
        )
        self._connections[node, waits_for_replicas] = connections
        return connections

    def _cluster_changed(self) -> None:
        """Keep a connection for each broker and ack level; retire those of brokers that have moved
        or left.
        """
        addresses = self._leaders.addresses
        for key, connections in list(self._connections.items()):
            if addresses.get(key[0]) != connections.address:
                connections.retire("the broker has moved")
                self._retired.append(connections)
                del self._connections[key]
        was_connected, self._was_connected = self._was_connected, self._leaders.is_connected
        if not self._was_connected:
            return
        for node in sorted(addresses):
            for waits_for_replicas in (False, True):
                connections = self._connections_of(node, waits_for_replicas)  # type: ignore[assignment]
                if not was_connected:
                    connections.forgive()
                connections.warm()
        self._identities.prepare()
        now_s = self._clock.monotonic_s()
        if now_s >= self._tidy_at_s:
            self._tidy_at_s = now_s + _TIDY_S
            for place in list(self._places.values()):
                self._leave_if_gone(place)

    def _leave_if_gone(self, place: PartitionTurn) -> None:
        """Forget an idle partition whose topic is gone; others keep their producer id."""
        if not place.is_busy and self._leaders.partitions(place.topic) is None:
            self._identities.lose(place.numbering, "topic gone")
            del self._places[place.topic, place.partition, place.waits_for_replicas]

    def _connection_failed(self, connections: BrokerConnections, reason: str) -> None:
        # Once for each outage; `Leaders` logs it if the whole cluster is unreachable.
        if connections.failures == _FAILURES_TOLD and self._leaders.is_connected:
            _logger.warning(
                "%s; the cluster advertises this address (see the broker's advertised.listeners "
                "when it is up); trying again until it answers",
                reason,
            )
        self._leaders.look_soon()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = self._clock.monotonic_s()
            for connections in [*self._connections.values(), *self._retired]:
                connections.sweep(now_s)
            for connections in [each for each in self._retired if each.is_idle]:
                self._lost += connections.lost
                self._retired.remove(connections)


def _no_such_place(place: PartitionTurn, partitions: int | None) -> str:
    if partitions is None:
        return f"there is no topic {place.topic}"
    return no_such_partition(place.topic, place.partition, partitions)
