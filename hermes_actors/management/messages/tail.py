"""A topic's messages as lines of JSON, from this datacentre's log. They are read in bounded
batches, only as fast as the client reads.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import trio

from hermes_actors.errors import ErrorCode, Refused, Unavailable
from hermes_actors.log.base import EARLIEST, LATEST, Log, OffsetOutOfRange, UnknownTopic
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.views import as_text, body_fields
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.messages.newest import newest
from hermes_actors.model.message import UndecodableRecord, from_record, is_avro
from hermes_actors.model.moments import moment_ms
from hermes_actors.model.record import StoredRecord
from hermes_actors.runtime.clock import Clock
from hermes_actors.schema.reading import AvroReader, ShownBody

BATCH_RECORDS_MAX = 200
BATCH_BYTES_MAX = 262_144
IDLE_LINE_S = 15.0

LINES_BYTES_MAX = 1_048_576
"""The limit for lines sent at once. Needed because decoded Avro may be much longer."""

LAST_MAX = 1_000
"""The maximum number of existing messages that a tail begins with."""


class Tail:
    """Reads one topic from given positions.

    `first`: records to send before. `ends`: the positions to stop at; None never stops. `limit`:
    the maximum number of messages after `first`; None for no limit.
    """

    def __init__(
        self,
        topic: str,
        log: Log,
        log_topic: str,
        reader: AvroReader,
        positions: Mapping[int, int],
        ends: Mapping[int, int] | None,
        limit: int | None,
        first: Iterable[StoredRecord] = (),
    ) -> None:
        self._topic = topic
        self._log = log
        self._log_topic = log_topic
        self._reader = reader
        self._positions = dict(positions)
        self._ends = ends
        self._left = math.inf if limit is None else limit
        self._unsent = deque(first)

    async def next_chunk(self) -> bytes:
        """The next messages, a line each. Empty at the end, also when the topic is deleted.

        After IDLE_LINE_S without a message it is an empty line, because only a write shows if the
        client is still connected. Records removed by retention are skipped. A trio coroutine.
        Raises LogUnavailable.
        """
        while not self._unsent:
            positions = self._positions_left()
            if not positions:
                return b""
            try:
                with trio.move_on_after(IDLE_LINE_S) as idle:
                    await self._read(positions)
            except OffsetOutOfRange as error:
                self._positions[error.partition] = error.start
            except UnknownTopic:
                return b""
            else:
                if idle.cancelled_caught:
                    return b"\n"
        lines = bytearray()
        while self._unsent and len(lines) < LINES_BYTES_MAX:
            lines += await self._line(self._unsent.popleft())
        return bytes(lines)

    def _positions_left(self) -> dict[int, int]:
        if self._left <= 0:
            return {}
        ends = self._ends
        if ends is None:
            return self._positions
        return {each: at for each, at in self._positions.items() if at < ends.get(each, 0)}

    async def _read(self, positions: Mapping[int, int]) -> None:
        # A new reader for each batch, so that none stays open for a client that has gone.
        async with self._log.reader(self._log_topic, positions) as reader:
            records = await reader.next_batch(
                int(min(self._left, BATCH_RECORDS_MAX)), BATCH_BYTES_MAX
            )
            self._positions |= {each: reader.position(each) for each in positions}
        for record in records:
            if self._ends is None or record.offset < self._ends.get(record.partition, 0):
                self._unsent.append(record)
                self._left -= 1

    async def _line(self, record: StoredRecord) -> bytes:
        shown = None
        if is_avro(record):
            await trio.lowlevel.checkpoint()
            shown = await self._reader.shown(self._topic, from_record(record))
        return line_of(record, shown)


def line_of(record: StoredRecord, shown: ShownBody | None = None) -> bytes:
    """A record as a line of JSON."""
    return msgspec.json.encode(message_view(record, shown)) + b"\n"


def message_view(record: StoredRecord, shown: ShownBody | None = None) -> dict[str, Any]:
    """A record's JSON object. `shown`: its decoded Avro.

    A body or key that is not UTF-8 becomes base64 in another field. A record without a message, and
    unreadable Avro, have an `error`.
    """
    view: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    try:
        message = from_record(record)
    except UndecodableRecord as error:
        view |= {
            "id": record.place,
            **as_text("key", record.key),
            "headers": {},
            "error": str(error),
        }
        view |= as_text("body", record.value)
    else:
        body = None if message.is_tombstone else message.body
        view |= {"id": message.id, **as_text("key", message.key)}
        view |= {"headers": dict(message.propagated), **body_fields("body", body, shown)}
    return view


class Tails:
    """The messages of topics, for owners and administrators."""

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
        partition: int | None = None,
    ) -> Tail:
        """A tail from `start`: `beginning`, `end`, or a time (UTC unless it has a zone). With
        `last`, it begins with that many existing messages instead. With `partition`, only of that
        partition.

        Without `follow` it stops at the present end of the log. A trio coroutine. Raises Refused
        and Unavailable.
        """
        live = self._topics.owned(caller, topic, "read the messages of topic")
        if limit is not None and limit < 0:
            raise Refused("limit must be greater than or equal to 0")
        if last is not None and not 0 < last <= LAST_MAX:
            raise Refused(f"last must be from 1 to {LAST_MAX}")
        log, log_topic = self._log, live.log_topic
        try:
            ends = await log.positions(log_topic, LATEST)
            if partition is not None:
                if partition not in ends:
                    text = f"partition: topic {topic} has {len(ends)} partitions, from 0"
                    raise Refused(text, ErrorCode.PARTITIONS_NOT_FOUND_FOR_TOPIC)
                ends = {partition: ends[partition]}
            first: list[StoredRecord] = []
            if last is not None:
                first, positions = await newest(log, log_topic, ends, last), ends
            else:
                positions = ends if start == "end" else await self._positions(log_topic, start)
        except UnknownTopic as error:
            raise Unavailable(
                f"The log of datacentre {log.dc} does not hold topic {topic} yet; try again"
            ) from error
        positions = {each: positions[each] for each in ends if each in positions}
        stops = None if follow else ends
        return Tail(topic, log, log_topic, self._reader, positions, stops, limit, first)

    async def _positions(self, log_topic: str, start: str) -> dict[int, int]:
        if start == "beginning":
            return await self._log.positions(log_topic, EARLIEST)
        try:
            at_ms = moment_ms(start, self._clock.now_ms())
        except ValueError as error:
            raise Refused(f"from '{start}' is neither 'beginning' nor 'end' nor {error}") from error
        return await self._log.positions(log_topic, at_ms)
