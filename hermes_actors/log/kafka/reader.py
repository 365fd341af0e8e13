"""Reads partitions of a topic without skipping a record, at most one fetch ahead of the caller.

The caller is a trio task; fetches run on the host loop in the same thread, so they share state
without locks. A fetch holds a connection of a shared pool while the broker waits for data. So an
idle reader costs one connection, and one request in `fetch_wait_ms`, for each broker that leads one
of its partitions.

A partition is fetched again when all its fetched records have been taken. If a fetch for quieter
partitions of the same broker is still open, a second one is sent that waits only briefly, so that
the next fetch can combine them again.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiokafka.errors as kafka_errors
import trio
from outcome import Error, capture

from hermes_actors.log.base import (
    LogUnavailable,
    OffsetOutOfRange,
    UnknownTopic,
)
from hermes_actors.log.cursor import Cursor, Room
from hermes_actors.log.kafka import fetch
from hermes_actors.log.kafka.brokers import FAILURES, Brokers
from hermes_actors.log.kafka.fetched import Fetched
from hermes_actors.log.kafka.positions import Positions
from hermes_actors.log.kafka.session import Session
from hermes_actors.model.record import StoredRecord

_BESIDE_WAIT_MS = 100
_BESIDE_MAX = 2
_PARTITION_BYTES_MIN = 65_536
_NOT_LEADER = kafka_errors.NotLeaderForPartitionError.errno
_DAMAGE: tuple[type[Exception], ...] = (*FAILURES, ValueError)
"""ValueError is raised for a header name that is not UTF-8."""


@asynccontextmanager
async def open_reader(
    brokers: Brokers, positions: Positions, topic: str, start: Mapping[int, int]
) -> AsyncIterator["KafkaReader"]:
    """Open a reader of the partitions in `start`. Sends no request yet. In trio."""
    reader = KafkaReader(brokers, positions, topic, start)
    try:
        yield reader
    finally:
        reader.close()


class _Flight:
    """An open fetch and its partitions. `work` is the connection on which it waits for its answer,
    or the task that opens one.
    """

    __slots__ = ("node", "partitions", "started_s", "work")

    def __init__(self, node: int, partitions: list[Fetched], started_s: float) -> None:
        self.node = node
        self.partitions = partitions
        self.started_s = started_s
        self.work: Session | asyncio.Task[None] | None = None

    @property
    def is_live(self) -> bool:
        return any(partition.flight is self for partition in self.partitions)


class KafkaReader:
    """Satisfies `Reader`; made by `open_reader`, used by one trio task."""

    def __init__(
        self, brokers: Brokers, positions: Positions, topic: str, start: Mapping[int, int]
    ) -> None:
        self._brokers = brokers
        self._positions = positions
        self._loop = asyncio.get_running_loop()
        self._topic = topic
        self._cursor = Cursor(topic, start)
        origin = f"{brokers.connection.dc}:{topic}"
        self._partitions = {
            number: Fetched(number, at, origin) for number, at in sorted(start.items())
        }
        self._leaders: dict[int, int] | None = None
        self._flights: list[_Flight] = []
        self._learning: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        self._arrived: trio.Event | None = None
        self._waiting_since_s = 0.0
        self._is_closed = False
        # The leaders at the last look-up, and the partitions whose fetches have failed since.
        self._led: dict[int, int] = {}
        self._unheard: set[int] = set()
        self._doubtful: set[int] = set()

    @property
    def doubtful(self) -> Collection[int]:
        """Partitions whose leader has changed, or whose fetch has failed: a broker that restarts
        may have lost its last records too.
        """
        return self._doubtful

    def position(self, partition: int) -> int:
        """As `Reader.position`."""
        return self._cursor.position(partition)

    def seek(self, partition: int, position: int) -> None:
        """As `Reader.seek`."""
        self._cursor.seek(partition, position)
        self._partitions[partition].restart(position)
        self._failure = None
        for flight in [flight for flight in self._flights if not flight.is_live]:
            self._flights.remove(flight)
            self._brokers.abandon(flight.work)

    async def next_batch(self, records_max: int, bytes_max: int) -> Sequence[StoredRecord]:
        """As `Reader.next_batch`. After LogUnavailable it can be called again.

        A broker that stops answering during a fetch is noticed after fetch_wait_ms +
        request_timeout_ms.
        """
        await trio.lowlevel.checkpoint()
        self._waiting_since_s = self._loop.time()
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            batch = self._take(Room(records_max, bytes_max))
            # Fetch the empty partitions while the caller processes this batch.
            if batch:
                self._cursor.advance(batch)
                self._fetch()
                return batch
            if self._pass_what_is_not_read():
                return ()
            self._arrived = trio.Event()
            try:
                self._fetch()
                await self._arrived.wait()
            finally:
                self._arrived = None

    def close(self) -> None:
        """End all fetches, and drop fetched records. Partitions whose fetch has failed become
        doubtful, because their leader is not looked up any more.
        """
        self._is_closed = True
        self._doubtful |= self._unheard
        if self._retry is not None:
            self._retry.cancel()
        for flight in self._flights:
            for partition in flight.partitions:
                partition.flight = None
            self._brokers.abandon(flight.work)
        self._flights.clear()
        if self._learning is not None:
            self._learning.cancel()

    def _take(self, room: Room) -> list[StoredRecord]:
        batch: list[StoredRecord] = []
        for number, position in self._cursor.in_turn():
            partition = self._partitions[number]
            try:
                while (record := partition.take()) is not None:
                    if not room.take(record.size_bytes):
                        partition.head = record
                        return batch
                    batch.append(record)
            except _DAMAGE as error:
                # The records before the damage have been taken; fetch the rest again.
                taken = [record for record in batch if record.partition == number]
                partition.restart(taken[-1].offset + 1 if taken else position)
                if not batch:
                    raise self._unavailable(error) from error
                return batch
        return batch

    def _pass_what_is_not_read(self) -> bool:
        """Advance over fetched offsets without records, such as transaction markers. True if there
        were any.
        """
        passed = {
            number: self._partitions[number].fetch_from
            for number, position in self._cursor.in_turn()
            if self._partitions[number].is_taken and self._partitions[number].fetch_from > position
        }
        for number, position in passed.items():
            self._cursor.seek(number, position)
        return bool(passed)

    # Fetching. Everything below may run on the host loop.

    def _fetch(self) -> None:
        """Send fetches for the partitions that need one; look up unknown leaders first."""
        if self._is_closed or self._learning is not None:
            return
        if not any(partition.is_wanted for partition in self._partitions.values()):
            return
        if self._leaders is None:
            self._learning = self._start(self._learn())
            return
        wanted: dict[int, list[Fetched]] = {}
        for number, _ in self._cursor.in_turn():
            partition = self._partitions[number]
            if partition.is_wanted:
                wanted.setdefault(self._leaders[number], []).append(partition)
        now_s = self._loop.time()
        for node, partitions in wanted.items():
            beside = sum(flight.node == node for flight in self._flights)
            if beside < _BESIDE_MAX:
                wait_ms = _BESIDE_WAIT_MS if beside else self._brokers.settings.fetch_wait_ms
                flight = _Flight(node, partitions, now_s)
                for partition in partitions:
                    partition.flight = flight
                self._flights.append(flight)
                connection = self._brokers.spare(node)
                if connection is None:
                    flight.work = self._start(self._open(flight, wait_ms))
                else:
                    self._ask(flight, connection, wait_ms)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._brokers.start(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        # What nobody foresaw is the caller's to raise; without it the caller would wait for ever.
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._fail(error)

    async def _learn(self) -> None:
        """Look up the partitions' leaders."""
        try:
            leaders = await self._brokers.leaders_of(self._topic, self._partitions)
        except FAILURES as error:
            self._learning = None
            self._failed(list(self._partitions.values()), error, None)
            return
        except UnknownTopic as error:
            self._learning = None
            self._fail(error)
            return
        self._learning = None
        if self._led:
            changed = {n for n in self._partitions if leaders[n] != self._led[n]}
            self._doubtful |= changed | self._unheard
        self._unheard.clear()
        self._leaders = self._led = leaders
        self._fetch()

    async def _open(self, flight: _Flight, wait_ms: int) -> None:
        """Send the fetch on a new connection."""
        try:
            if flight.node < 0:
                raise kafka_errors.LeaderNotAvailableError(self._topic)
            connection = await self._brokers.borrow(flight.node)
        except FAILURES as error:
            self._not_answered(flight, error)
            return
        if flight.is_live:
            self._ask(flight, connection, wait_ms)
        else:
            self._brokers.give_back(connection, is_usable=True)

    def _ask(self, flight: _Flight, connection: Session, wait_ms: int) -> None:
        settings = self._brokers.settings
        bytes_max = settings.fetch_bytes_max
        partition_bytes_max = max(_PARTITION_BYTES_MIN, bytes_max // len(flight.partitions))
        wanted = [
            fetch.Fetch(partition.number, partition.fetch_from, partition_bytes_max)
            for partition in flight.partitions
        ]
        flight.work = connection
        try:
            version = connection.version(fetch.API_KEY, fetch.VERSION_MIN, fetch.VERSION_MAX)
            connection.ask(
                fetch.API_KEY,
                version,
                fetch.encode(
                    version,
                    self._topic,
                    wanted,
                    wait_ms=wait_ms,
                    bytes_max=bytes_max,
                    isolation=fetch.ISOLATION_LEVELS[settings.isolation],
                ),
                partial(self._answered, flight, connection, version),
                timeout_s=(settings.request_timeout_ms + settings.fetch_wait_ms) / 1_000,
            )
        except FAILURES as error:
            self._brokers.give_back(connection, is_usable=False)
            self._not_answered(flight, error)

    def _answered(
        self, flight: _Flight, connection: Session, version: int, answer: bytes | Exception
    ) -> None:
        self._brokers.give_back(connection, is_usable=isinstance(answer, bytes))
        if isinstance(answer, Exception):
            self._not_answered(flight, answer)
            return
        # What nobody foresaw is the caller's to raise; without it the caller would wait for ever.
        result = capture(self._arrive, flight, answer, version)
        if isinstance(result, Error) and isinstance(result.error, Exception):
            self._fail(result.error)

    def _not_answered(self, flight: _Flight, error: Exception) -> None:
        failed = self._land(flight)
        if failed:
            is_silent = isinstance(error, TimeoutError)
            self._failed(failed, error, flight.started_s if is_silent else None)

    def _arrive(self, flight: _Flight, answer: bytes, version: int) -> None:
        landed = {partition.number: partition for partition in self._land(flight)}
        if not landed:
            return
        has_come = False
        refused: list[Fetched] = []
        failures: dict[int, Exception] = {}
        for found in fetch.decode(answer, version):
            partition = landed.get(found.partition)
            if partition is None:
                continue
            if not found.code:
                partition.failed_since_s = None
                partition.tries = 0
                has_come |= partition.fill(found.records, found.aborted)
                continue
            if found.code == kafka_errors.OffsetOutOfRangeError.errno:
                refused.append(partition)
                continue
            if found.code == _NOT_LEADER and partition.tries:
                self._brokers.doubt()
            place = f"{self._topic}/{found.partition}"
            failures[found.partition] = kafka_errors.for_code(found.code)(place)
        if failures:
            failed = [landed[number] for number in failures]
            self._failed(failed, next(iter(failures.values())), None)
        if self._arrived is not None:
            if has_come:
                self._arrived.set()
            elif not refused:
                self._fetch()
        if refused:
            for partition in refused:
                partition.flight = flight
            flight.work = self._start(self._see_why(flight, refused))

    async def _see_why(self, flight: _Flight, refused: list[Fetched]) -> None:
        """Find out why positions were refused. Skips partitions that were moved by `seek` since."""
        try:
            for partition in refused:
                reason = await self._check_bounds(partition)
                if partition.flight is not flight:
                    continue
                partition.flight = None
                if isinstance(reason, OffsetOutOfRange | UnknownTopic | LogUnavailable):
                    self._fail(reason)
                    return
                self._failed([partition], reason, None)
        finally:
            self._land(flight)
        if self._arrived is not None:
            self._fetch()

    def _land(self, flight: _Flight) -> list[Fetched]:
        """End a fetch. Returns its partitions, except those that were moved by `seek` since."""
        if flight in self._flights:
            self._flights.remove(flight)
        landed = [partition for partition in flight.partitions if partition.flight is flight]
        for partition in landed:
            partition.flight = None
        return landed

    async def _check_bounds(self, partition: Fetched) -> Exception:
        """Return why a position was refused: Kafka's own error if it is within the bounds now."""
        position = partition.fetch_from
        try:
            start, end = await self._positions.bounds(self._topic, partition.number)
        except (LogUnavailable, UnknownTopic) as error:
            return error
        if start <= position <= end:
            transient: Exception = kafka_errors.OffsetOutOfRangeError(self._topic)
            return transient
        return OffsetOutOfRange(self._topic, partition.number, position, start, end)

    # Failing.

    def _failed(self, partitions: list[Fetched], error: Exception, since_s: float | None) -> None:
        """Retry soon; after request_timeout_ms without success, fail the waiting caller."""
        now_s = self._loop.time()
        self._leaders = None
        self._brokers.forget(self._topic)
        oldest_s = now_s
        for partition in partitions:
            self._unheard.add(partition.number)
            partition.tries += 1
            partition.is_held = True
            if partition.failed_since_s is None:
                partition.failed_since_s = now_s if since_s is None else since_s
            oldest_s = min(oldest_s, partition.failed_since_s)
        silent_s = now_s - max(oldest_s, self._waiting_since_s)
        if self._arrived is not None and silent_s >= self._brokers.request_timeout_s:
            for partition in partitions:
                partition.failed_since_s = None
            self._fail(self._unavailable(error))
        if self._retry is None and not self._is_closed:
            tries = max(partition.tries for partition in partitions)
            self._retry = self._loop.call_later(self._brokers.delay_s(tries), self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        for partition in self._partitions.values():
            partition.is_held = False
        if self._arrived is not None:
            self._fetch()

    def _fail(self, error: Exception) -> None:
        self._leaders = None
        self._failure = error
        if self._arrived is not None:
            self._arrived.set()

    def _unavailable(self, error: Exception) -> LogUnavailable:
        return self._brokers.unavailable(f"{self._topic} cannot be read", error)
