"""A datacentre's log, with topics that are only in the memory of its nodes. Everything above reads,
commits and measures them as any other topic.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial

import trio
from msgspec import Struct, field

from hermes_actors.log.base import (
    EARLIEST,
    Commit,
    Edge,
    Log,
    LogTopics,
    LogUnavailable,
    OffsetOutOfRange,
    Outcome,
    Reader,
    TopicSettings,
    UnavailableRecord,
    UnknownTopic,
)
from hermes_actors.log.cursor import Cursor, Room
from hermes_actors.log.volatile.held import Asked, Held, Told
from hermes_actors.model.names import is_volatile
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.redaction import HIDDEN, redacted
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.wakeup import Wakeup

_READ_RECORDS, _READ_BYTES, _WAIT_MS = 1_000, 1_048_576, 5_000
_PAUSE_S = 1.0
GONE_AFTER_S = 10.0
"""A holder that does not answer for so long counts as gone, with what it held."""
LIFE_OFFSETS = 1_000_000
"""The offsets of a life begin at its number, which is about its start in seconds, times this. So
they are above those of all earlier lives, unless a node stores a million messages a second.
"""


class Holder(Struct, frozen=True):
    """The node that holds a partition of each topic in memory, in its life number `life`. `url` and
    `key` are for asking it; without a key it holds the partition no more.
    """

    node: str = ""
    life: int = 0
    url: str = ""
    key: str = field(default="", name="memoryKey")

    @property
    def base(self) -> int:
        """The first offset of its life."""
        return self.life * LIFE_OFFSETS

    def __repr__(self) -> str:
        return redacted(self, key=HIDDEN)


_NOBODY = Holder()
Ask = Callable[[Holder, Asked], Awaitable[Told]]
"""Asks a holder. Raises LogUnavailable."""


class VolatileLog:
    """Implements `Log`; passes everything on to `log` but what concerns topics in memory. `held` is
    what this node holds under `key`, None if it holds nothing.
    """

    def __init__(
        self,
        log: Log,
        ask: Ask,
        now_s: Callable[[], float],
        held: Held | None = None,
        key: str = "",
    ) -> None:
        self.dc = log.dc
        self.holders: Mapping[int, Holder] = {}
        self.topics = _Topics(log.topics, self, held)
        self.changed = trio.lowlevel.ParkingLot()
        self._log = log
        self._ask = ask
        self._now_s = now_s
        self._held = held
        self._key = key
        # By its key: since when a holder has not answered, and when to ask it again.
        self._silent: dict[str, tuple[float, float]] = {}
        # The last commits of this node, by partition, topic and group; and those on their way.
        self._commits: dict[tuple[int, str, str], Commit] = {}
        self._unsent: dict[tuple[int, str, str], None] = {}

    def adopt(self, holders: Mapping[int, Holder], topics: Collection[str]) -> None:
        """Take over who holds which partition, and which topics there are."""
        self._commits = {at: each for at, each in self._commits.items() if at[1] in topics}
        self._unsent = {at: None for at in self._unsent if at in self._commits}
        if holders != self.holders:
            self.holders = holders
            self._silent.clear()
            self.changed.unpark_all()

    @property
    def partitions(self) -> range:
        """The partitions that each topic in memory has: as many as there were holders at once."""
        return range(1 + max(self.holders, default=0))

    async def append(
        self, topic: str, partition: int, batch: Sequence[Record], ack: Ack
    ) -> Sequence[Outcome]:
        """As `Log.append`; in memory, to this node's partition."""
        if not is_volatile(topic):
            return await self._log.append(topic, partition, batch, ack)
        if self._held is None:
            return [UnavailableRecord("this node holds no messages") for _ in batch]
        return await self._held.append(topic, batch)

    def reader(
        self, topic: str, positions: Mapping[int, int]
    ) -> AbstractAsyncContextManager[Reader]:
        """As `Log.reader`."""
        opened = self._reader if is_volatile(topic) else self._log.reader
        return opened(topic, positions)

    @asynccontextmanager
    async def _reader(self, topic: str, positions: Mapping[int, int]) -> AsyncIterator[Reader]:
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            reader = _VolatileReader(self, topic, positions)
            for number in positions:
                nursery.start_soon(reader.fetch, number)
            try:
                yield reader
            except (LogUnavailable, OffsetOutOfRange, UnknownTopic) as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def positions(self, topic: str, at: Edge | int) -> dict[int, int]:
        """As `Log.positions`."""
        if not is_volatile(topic):
            return await self._log.positions(topic, at)
        asked = Asked(topic, time_ms=0 if isinstance(at, Edge) else at)
        found: dict[int, int] = {}
        for number in self.partitions:
            told = await self.tell(number, asked)
            edge = told.start if at is EARLIEST else told.end
            found[number] = edge if isinstance(at, Edge) else told.at_time
        return found

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """As `Log.bounds`."""
        if not is_volatile(topic):
            return await self._log.bounds(topic, partition)
        told = await self.tell(partition, Asked(topic))
        return told.start, told.end

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """As `Log.commit`. A commit that its holder does not get now is sent with the next
        question.
        """
        if not is_volatile(topic):
            return await self._log.commit(group, topic, commits)
        for number, commit in commits.items():
            place = (number, topic, group)
            self._commits[place] = commit
            self._unsent[place] = None
            with suppress(LogUnavailable):
                await self.tell(number, Asked(topic))
        return None

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """As `Log.committed`."""
        if not is_volatile(topic):
            return await self._log.committed(group, topic)
        asked = Asked(topic, group)
        found = {number: (await self.tell(number, asked)).commit for number in self.partitions}
        return {number: commit for number, commit in found.items() if commit is not None}

    async def tell(self, partition: int, asked: Asked) -> Told:
        """Ask the holder of a partition, and send it the commits that it lacks. Raises
        LogUnavailable while it does not answer; once it is gone, the partition is empty.
        """
        holder, now_s = self.holders.get(partition, _NOBODY), self._now_s()
        since_s, again_s = self._silent.get(holder.key, (now_s, now_s))
        if holder.key and now_s >= again_s:
            try:
                told = await self._ask_holder(holder, partition, asked)
            except LogUnavailable:
                self._silent[holder.key] = since_s, self._now_s() + _PAUSE_S
                if now_s - since_s < GONE_AFTER_S:
                    raise
            else:
                self._silent.pop(holder.key, None)
                return told
        elif holder.key and now_s - since_s < GONE_AFTER_S:
            raise LogUnavailable(f"node {holder.node}, which holds the messages, is silent")
        await trio.lowlevel.checkpoint()
        commit = self._commits.get((partition, asked.topic, asked.group))
        return Told(holder.base, holder.base, holder.base, commit)

    async def _ask_holder(self, holder: Holder, partition: int, asked: Asked) -> Told:
        held = self._held if holder.key == self._key else None
        ask = held.answer if held is not None else partial(self._ask, holder)
        for place in [each for each in self._unsent if each[0] == partition]:
            # None: meanwhile its topic was deleted.
            commit = self._commits.get(place)
            if commit is not None and commit.position >= holder.base:
                await ask(Asked(*place[1:], commit))
            if self._commits.get(place) is commit:
                self._unsent.pop(place, None)
        return await ask(asked)


class _VolatileReader:
    """Fetches from each partition's holder at once; what one holder does delays no other."""

    doubtful: Collection[int] = ()

    def __init__(self, log: VolatileLog, topic: str, positions: Mapping[int, int]) -> None:
        self._log = log
        self._topic = topic
        self._cursor = Cursor(topic, positions)
        self._fetched: dict[int, list[StoredRecord]] = {}
        self._news, self._taken = Wakeup(), trio.lowlevel.ParkingLot()
        self._has_moved = False
        self._failure: OffsetOutOfRange | None = None

    def position(self, partition: int) -> int:
        return self._cursor.position(partition)

    def seek(self, partition: int, position: int) -> None:
        self._cursor.seek(partition, position)
        self._failure = None
        self._fetched.pop(partition, None)
        self._taken.unpark_all()

    async def next_batch(self, records_max: int, bytes_max: int) -> Sequence[StoredRecord]:
        while True:
            room, batch = Room(records_max, bytes_max), list[StoredRecord]()
            for number, _ in self._cursor.in_turn():
                fetched, count = self._fetched.get(number, []), 0
                while count < len(fetched) and room.take(fetched[count].size_bytes):
                    count += 1
                batch += fetched[:count]
                del fetched[:count]
            if batch:
                self._cursor.advance(batch)
                self._taken.unpark_all()
                await trio.lowlevel.checkpoint()
                return batch
            if self._failure is not None:
                raise self._failure
            if self._has_moved:
                self._has_moved = False
                return ()
            await self._news.wait()

    async def fetch(self, partition: int) -> None:
        """Keep a batch of the partition ready. Never returns."""
        log, cursor = self._log, self._cursor
        while True:
            position, base = cursor.position(partition), log.holders.get(partition, _NOBODY).base
            if position < base:
                # A new life of its holder has begun, and nothing lies between.
                position = base
                cursor.seek(partition, base)
                self._has_moved = True
                self._news.set()
            asked = Asked(self._topic, "", None, 0, position, _READ_RECORDS, _READ_BYTES, _WAIT_MS)
            began_s, told = trio.current_time(), None
            with suppress(LogUnavailable):
                told = await log.tell(partition, asked)
            if position != cursor.position(partition):
                continue
            if told is not None and told.records:
                self._fetched[partition] = told.records
                self._news.set()
                while self._fetched.get(partition):
                    await self._taken.park()
            elif told is not None and position < told.start:
                self._failure = OffsetOutOfRange(
                    self._topic, partition, position, told.start, told.end
                )
                self._news.set()
                await self._taken.park()
            elif trio.current_time() - began_s < _WAIT_MS / 2_000:
                # Nobody holds the partition, or the holder does not answer.
                with trio.move_on_after(_PAUSE_S):
                    await log.changed.park()


class _Topics:
    """Implements `LogTopics`. A topic in memory needs no creation."""

    def __init__(self, topics: LogTopics, log: VolatileLog, held: Held | None) -> None:
        self._topics, self._log, self._held = topics, log, held
        self.create, self.alter, self.delete = topics.create, topics.alter, topics.delete
        self.names = topics.names

    async def describe(self, topic: str) -> TopicSettings | None:
        """As `LogTopics.describe`. A producer here has one partition of a topic in memory."""
        if not is_volatile(topic):
            return await self._topics.describe(topic)
        await trio.lowlevel.checkpoint()
        number = None if self._held is None else self._held.number_for(topic)
        return None if number is None else TopicSettings(first=number)

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """As `LogTopics.partitions`."""
        found = {topic: len(self._log.partitions) for topic in topics if is_volatile(topic)}
        stored = [topic for topic in topics if topic not in found]
        return found | (await self._topics.partitions(stored) if stored else {})
