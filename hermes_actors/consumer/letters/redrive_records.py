"""The records of a re-drive in the log: which letters of a range are to be re-driven, those that
are open and meant; their marks; and commits of how far it has come.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.log.base import (
    Commit,
    Log,
    LogUnavailable,
    OffsetOutOfRange,
    Reader,
    Stored,
)
from hermes_actors.log.ranges import read_forwards, read_one
from hermes_actors.metadata.redrives import (
    LetterRange,
    Redrive,
    RedriveProgress,
    progress_metadata,
    progress_of,
)
from hermes_actors.model.dead_letter import (
    Letter,
    LetterFilter,
    Mark,
    MarkKind,
    UndecodableLetter,
    mark_record,
    read_entry,
)
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack

PLAN_MAX = 50_000
"""The most letters that are planned at one time; more are found in passes after it."""


class RedrivePlan(Struct, frozen=True):
    """Offsets of letters, ascending; `next` is where the next pass begins, None after the last."""

    offsets: list[int]
    next: int | None


class Planning:
    """Told of every record from the range's start to the log's end, in order: a letter may be
    closed, or have a successor, far above the range. What is held is bounded by `most` letters.
    """

    def __init__(
        self,
        subscription: str,
        incarnation: int,
        span: LetterRange,
        wanted: LetterFilter,
        most: int = PLAN_MAX,
    ) -> None:
        self._key = subscription.encode()
        self._incarnation = incarnation
        self._end = span.end
        self._is_wanted = wanted.compiled()
        self._most = most
        # Of each letter that is open and meant, by id, the offset of its newest record, and when
        # the message was given up.
        self._open: dict[str, tuple[int, int]] = {}
        self._next: int | None = None

    def take(self, record: StoredRecord) -> None:
        """Take in the next record."""
        if record.key != self._key:
            return
        try:
            entry = read_entry(record)
        except UndecodableLetter:
            return
        if isinstance(entry, Mark):
            for letter_id, up_to_ms in entry.closings():
                held = self._open.get(letter_id)
                if held is not None and held[1] <= up_to_ms:
                    del self._open[letter_id]
            return
        is_known = self._open.pop(entry.id, None) is not None
        is_meant = (
            record.offset < self._end
            and entry.incarnation == self._incarnation
            and self._is_wanted(entry)
        )
        if not is_meant:
            return
        if self._next is None and (is_known or len(self._open) < self._most):
            self._open[entry.id] = record.offset, entry.at_ms
        elif self._next is None:
            self._next = record.offset

    def plan(self, without: frozenset[str] = frozenset()) -> RedrivePlan:
        """Return the plan: the letters that are to be re-driven, but for those in `without`."""
        found = (offset for letter, (offset, _) in self._open.items() if letter not in without)
        return RedrivePlan(sorted(found), self._next)


_BATCH_RECORDS_MAX = 100
_BATCH_BYTES_MAX = 1_048_576
_SKIP_MIN = 200
"""A gap that is wider is not read through."""

_ANSWER_TIMEOUT_S = 10.0
_SCAN_TIMEOUT_S = 600.0


class WantedRecords:
    """The records at stated offsets of one partition, in order; `expired` counts those that
    retention has removed before they were read.
    """

    def __init__(self, reader: Reader, partition: int, wanted: deque[int]) -> None:
        self._reader = reader
        self._partition = partition
        self._wanted = wanted
        self._position = wanted[0] if wanted else 0
        self.expired = 0

    async def next_batch(self) -> Sequence[StoredRecord]:
        """Read some records, which are no longer wanted then; perhaps none. Raises
        LogUnavailable.
        """
        wanted = self._wanted
        if wanted[0] - self._position >= _SKIP_MIN:
            self._seek(wanted[0])
        batch: Sequence[StoredRecord] = ()
        try:
            with trio.fail_after(_ANSWER_TIMEOUT_S):
                batch = await self._reader.next_batch(_BATCH_RECORDS_MAX, _BATCH_BYTES_MAX)
        except trio.TooSlowError as error:
            raise LogUnavailable("the log does not answer") from error
        except OffsetOutOfRange as error:
            # Above the end nothing can be wanted but what the log has lost.
            start = error.start if error.position < error.start else wanted[-1] + 1
            self._pass_by(start)
            self._seek(start)
            return ()
        self._position = batch[-1].offset + 1
        found: list[StoredRecord] = []
        for record in batch:
            self._pass_by(record.offset)
            if wanted and wanted[0] == record.offset:
                wanted.popleft()
                found.append(record)
        return found

    def _pass_by(self, offset: int) -> None:
        while self._wanted and self._wanted[0] < offset:
            self._wanted.popleft()
            self.expired += 1

    def _seek(self, position: int) -> None:
        self._position = position
        self._reader.seek(self._partition, position)


class RedriveRecords:
    """The dead-letter topic of one subscription, as its re-drives see it."""

    def __init__(self, log: Log, subscription: str, topic: str, group: str) -> None:
        self._log = log
        self._subscription = subscription
        self._topic = topic
        self._group = group
        self._committed: Commit | None = None

    async def find_partition(self) -> int:
        """Return where the subscription's letters lie. Raises LogUnavailable, UnknownTopic."""
        ends = await self._log.end_positions(self._topic)
        return partition_of(self._subscription.encode(), len(ends))

    async def progress(
        self, partition: int, redrive: Redrive, span: LetterRange
    ) -> tuple[RedriveProgress, int]:
        """How far it has come, and below which offset all is done. Raises LogUnavailable."""
        commit = (await self._log.committed(self._group, self._topic)).get(partition)
        progress = progress_of(commit, redrive)
        is_begun = commit is not None and (
            progress.total or progress.is_done or commit.metadata == progress_metadata(progress)
        )
        if not is_begun or commit is None:
            return progress, span.start
        return progress, max(span.start, commit.position)

    async def each_from(
        self,
        partition: int,
        start: int,
        take: Callable[[StoredRecord], None],
        goes_on: Callable[[], bool],
    ) -> None:
        """Tell `take` of each record from `start` to the log's end as it is now, while it is to go
        on.

        Raises LogUnavailable, UnknownTopic.
        """
        end = (await self._log.end_positions(self._topic))[partition]

        def take_all(batch: Sequence[StoredRecord]) -> bool:
            for record in batch:
                take(record)
            return goes_on()

        try:
            with trio.fail_after(_SCAN_TIMEOUT_S):
                await read_forwards(self._log, self._topic, partition, start, end, take_all)
        except trio.TooSlowError as error:
            raise LogUnavailable("the log does not answer") from error

    @asynccontextmanager
    async def reader(self, partition: int, wanted: deque[int]) -> AsyncIterator[WantedRecords]:
        """Reads the records at these offsets."""
        start = wanted[0] if wanted else 0
        async with self._log.reader(self._topic, {partition: start}) as reader:
            yield WantedRecords(reader, partition, wanted)

    @staticmethod
    def letter(record: StoredRecord) -> Letter | None:
        """The letter that a record holds, None if it is none."""
        try:
            entry = read_entry(record)
        except UndecodableLetter:
            return None
        return entry if isinstance(entry, Letter) else None

    async def whole(self, letter: Letter) -> Letter | None:
        """The letter with its message, which may be in its topic's log only; None: nowhere.

        Raises LogUnavailable.
        """
        if not letter.missing_bytes:
            return letter
        try:
            with trio.fail_after(_ANSWER_TIMEOUT_S):
                record = await read_one(
                    self._log, letter.log_topic, letter.partition, letter.offset
                )
        except trio.TooSlowError as error:
            raise LogUnavailable("the log does not answer") from error
        if record is None:
            return None
        return replace(
            letter,
            key=record.key,
            value=record.value,
            headers=record.headers,
            missing_bytes=0,
        )

    async def mark(self, partition: int, up_to_ms: Mapping[str, int], now_ms: int) -> None:
        """Close these letters, by their ids, as they were given up till then: they have been
        delivered. Raises LogUnavailable.
        """
        ids, times_ms = tuple(up_to_ms), tuple(up_to_ms.values())
        record = mark_record(self._subscription, Mark(MarkKind.REDRIVEN, ids, now_ms, times_ms))
        (outcome,) = await self._log.append(self._topic, partition, [record], Ack.ALL)
        if not isinstance(outcome, Stored):
            raise LogUnavailable(outcome.reason)

    async def commit(self, partition: int, position: int, progress: RedriveProgress) -> None:
        """Commit how far the re-drive has come, if that has changed. Raises LogUnavailable."""
        commit = Commit(position, progress_metadata(progress))
        if commit == self._committed:
            return
        await self._log.commit(self._group, self._topic, {partition: commit})
        self._committed = commit
