"""A topic's messages as lines of JSON, read from the own datacentre's log, one bounded batch at a
time: what a slow client has not taken is not read.
"""

import heapq
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import trio

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Log,
    LogUnavailable,
    OffsetOutOfRange,
    UnknownTopic,
)
from hermes_actors.log.ranges import read_forwards
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.dead_letters.letters import as_text, body_fields
from hermes_actors.model.message import Message, UndecodableRecord, from_record, is_avro
from hermes_actors.model.moments import moment_ms
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.reading import AvroReader, ShownBody

BATCH_RECORDS_MAX = 200
BATCH_BYTES_MAX = 262_144
IDLE_LINE_S = 15.0

LINES_BYTES_MAX = 1_048_576
"""Lines that are sent at once; Avro may become much longer than it is."""

LAST_MAX = 1_000
"""The most messages from before the end that a tail begins with."""
LAST_BYTES_MAX = 16_777_216
_LAST_TIMEOUT_S = 20.0


Show = Callable[[Message], Awaitable[ShownBody]]
"""Makes a message in Avro readable."""


class Tail:
    """Reads one log topic from given positions on.

    `ends` are the positions to stop at; None goes on for ever. `limit` is how many messages come
    at most; None is as many as there are.
    """

    def __init__(
        self,
        log: Log,
        log_topic: str,
        positions: Mapping[int, int],
        ends: Mapping[int, int] | None,
        limit: int | None,
        show: Show,
        first: Iterable[StoredRecord] = (),
    ) -> None:
        """`first` are messages that come before all others; `show` makes Avro readable."""
        self._first = deque(first)
        self._show = show
        self._log = log
        self._topic = log_topic
        self._positions = dict(positions)
        self._ends = ends
        self._left = math.inf if limit is None else limit

    async def next_lines(self) -> bytes:
        """The next messages, a line each; waits for them, and is empty at the end.

        While nothing comes it is an empty line each `IDLE_LINE_S`: a client that has gone without
        saying so is found out by writing to it.

        A trio coroutine. Retention that overtakes the reader makes it skip what is gone; a topic
        that is deleted ends it. Raises LogUnavailable.
        """
        if self._first:
            some = bytearray()
            while self._first and len(some) < LINES_BYTES_MAX:
                some += await self._line(self._first.popleft())
            return bytes(some)
        while True:
            wanted = self._wanted()
            if not wanted:
                return b""
            lines = b"\n"
            try:
                with trio.move_on_after(IDLE_LINE_S):
                    lines = await self._read(wanted)
            except OffsetOutOfRange as error:
                self._positions[error.partition] = error.start
                continue
            except UnknownTopic:
                return b""
            if lines:
                return lines

    def _wanted(self) -> dict[int, int]:
        """The positions still to be read from; none when the end is reached."""
        if self._left <= 0:
            return {}
        ends = self._ends
        if ends is None:
            return self._positions
        return {
            partition: position
            for partition, position in self._positions.items()
            if position < ends.get(partition, 0)
        }

    async def _read(self, positions: Mapping[int, int]) -> bytes:
        # A reader for each batch: nothing stays open on behalf of a client that may be gone.
        async with self._log.reader(self._topic, positions) as reader:
            records = await reader.next_batch(
                int(min(self._left, BATCH_RECORDS_MAX)), BATCH_BYTES_MAX
            )
        lines = bytearray()
        for record in records:
            if len(lines) >= LINES_BYTES_MAX:
                # The others are read again.
                break
            self._positions[record.partition] = record.offset + 1
            if self._ends is not None and record.offset >= self._ends.get(record.partition, 0):
                continue
            lines += await self._line(record)
            self._left -= 1
        return bytes(lines)

    async def _line(self, record: StoredRecord) -> bytes:
        if not is_avro(record):
            return line_of(record)
        # Others have their turn after each.
        await trio.lowlevel.checkpoint()
        return line_of(record, await self._show(from_record(record, str)))


async def open_tail(
    log: Log,
    log_topic: str,
    start: str,
    *,
    show: Show,
    follow: bool,
    limit: int | None,
    now_ms: int,
    last: int | None = None,
) -> Tail:
    """A tail from `start`: `beginning`, `end`, or a moment (without a zone: UTC). With `last` it
    begins with so many messages from before the end, whatever `start` is.

    Without `follow` it ends where the log ends now. A trio coroutine. Raises Refused, UnknownTopic
    and LogUnavailable.
    """
    if limit is not None and limit < 0:
        raise Refused("limit must be greater than or equal to 0")
    if last is not None and not 0 < last <= LAST_MAX:
        raise Refused(f"last must be from 1 to {LAST_MAX}")
    ends = await log.positions(log_topic, LATEST)
    if last is not None:
        starts = await log.positions(log_topic, EARLIEST)
        first = await newest(log, log_topic, starts, ends, last)
        return Tail(log, log_topic, ends, None if follow else ends, limit, show, first)
    if start == "beginning":
        positions = await log.positions(log_topic, EARLIEST)
    elif start == "end":
        positions = ends
    else:
        positions = await log.positions(log_topic, _timestamp_ms(start, now_ms))
    return Tail(log, log_topic, positions, None if follow else ends, limit, show)


async def newest(
    log: Log, log_topic: str, starts: Mapping[int, int], ends: Mapping[int, int], most: int
) -> list[StoredRecord]:
    """The newest records of all partitions together by their timestamps, the oldest first: `most`,
    or as many as have LAST_BYTES_MAX. Raises LogUnavailable, UnknownTopic.
    """
    # The oldest on top; of one time the partitions in their order.
    kept: list[tuple[int, int, int, StoredRecord]] = []
    size_bytes = 0

    def take(batch: Sequence[StoredRecord]) -> bool:
        nonlocal size_bytes
        for record in batch:
            place = record.timestamp_ms, record.partition, record.offset
            heapq.heappush(kept, (*place, record))
            size_bytes += len(record.value)
            while len(kept) > most or (len(kept) > 1 and size_bytes > LAST_BYTES_MAX):
                size_bytes -= len(heapq.heappop(kept)[-1].value)
        return True

    try:
        with trio.fail_after(_LAST_TIMEOUT_S):
            for partition, end in sorted(ends.items()):
                start = max(starts.get(partition, 0), end - most)
                await read_forwards(log, log_topic, partition, start, end, take)
    except trio.TooSlowError as error:
        raise LogUnavailable(
            f"the log of datacentre {log.dc} did not answer within {_LAST_TIMEOUT_S:g} s"
        ) from error
    return [each[-1] for each in sorted(kept, key=lambda each: each[:3])]


def line_of(record: StoredRecord, shown: ShownBody | None = None) -> bytes:
    """Return one message as a line of JSON; `shown` is a body in Avro made readable.

    A body or key that is not UTF-8 comes in base64 under another name; a record that holds no
    message, and Avro that cannot be read, comes with an `error` and its raw value.
    """
    line: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    try:
        message = from_record(record, lambda: "")
    except UndecodableRecord as error:
        line |= {"id": None, **as_text("key", record.key), "headers": {}, "error": str(error)}
        line |= as_text("body", record.value)
    else:
        line |= {"id": message.id or None, **as_text("key", message.key)}
        line |= {"headers": dict(message.propagated), **body_fields("body", message.body, shown)}
    return msgspec.json.encode(line) + b"\n"


def _timestamp_ms(text: str, now_ms: int) -> int:
    try:
        return moment_ms(text, now_ms)
    except ValueError as error:
        raise Refused(
            f"from '{text}' is neither 'beginning' nor 'end' nor {error}",
            ErrorCode.VALIDATION_ERROR,
        ) from error


class Tails:
    """The messages of topics in this datacentre's log, for those who may read them."""

    def __init__(self, topics: Topics, log: Log, clock: Clock, reader: AvroReader) -> None:
        self._topics = topics
        self._log = log
        self._clock = clock
        self._reader = reader

    async def open(
        self,
        caller: Caller,
        topic: str,
        start: str,
        follow: bool,
        limit: int | None,
        last: int | None = None,
    ) -> Tail:
        """A topic's messages from `start` on, for owners and administrators; see `open_tail`."""
        live = self._topics.owned(caller, topic, "read the messages of topic")
        try:
            return await open_tail(
                self._log,
                live.log_topic,
                start,
                show=partial(self._reader.shown, topic),
                follow=follow,
                limit=limit,
                last=last,
                now_ms=self._clock.now_ms(),
            )
        except UnknownTopic as error:
            raise Unavailable(
                f"The log of datacentre {self._log.dc} does not hold topic {topic} yet; try again"
            ) from error
