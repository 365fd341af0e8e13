"""Finds, reads and closes the dead letters of one subscription in one datacentre's log."""

from collections.abc import Callable, Sequence

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.log.base import EARLIEST, LATEST, Log, LogUnavailable, Stored, UnknownTopic
from hermes_actors.log.ranges import read_backwards, read_one
from hermes_actors.model.dead_letter import (
    Letter,
    LetterFilter,
    Mark,
    OpenLetters,
    UndecodableLetter,
    dlq_topic,
    mark_record,
    read_entry,
)
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack

ENTRIES_MAX = 500_000
"""Maximum number of a subscription's letters and marks that one search reads."""

_ANSWER_TIMEOUT_S = 5.0
SEARCH_TIMEOUT_S = 20.0


class OpenLetter(Struct, frozen=True, gc=False):
    """An open letter without its value, and the offset of its record."""

    letter: Letter
    offset: int
    timestamp_ms: int
    value_bytes: int


class LetterPlace(Struct, frozen=True):
    """The partition with a subscription's letters, and its current bounds."""

    partition: int
    start: int
    end: int


class LetterBox:
    """The letters of one incarnation of a subscription. All methods raise LogUnavailable."""

    def __init__(
        self, log: Log, name: SubscriptionName, incarnation: int, namespace: str = ""
    ) -> None:
        self.log = log
        self.topic = dlq_topic(name.topic.group, namespace)
        self._subscription = str(name)
        self._incarnation = incarnation

    async def place(self) -> LetterPlace | None:
        """Find the partition with the letters; None while the group has no dead-letter topic in the
        log.
        """
        try:
            with trio.fail_after(_ANSWER_TIMEOUT_S):
                ends = await self.log.positions(self.topic, LATEST)
                starts = await self.log.positions(self.topic, EARLIEST)
        except UnknownTopic:
            return None
        except trio.TooSlowError as error:
            raise self._silent() from error
        partition = partition_of(self._subscription.encode(), len(ends))
        return LetterPlace(partition, starts.get(partition, 0), ends[partition])

    async def search(
        self,
        wanted: LetterFilter,
        found: Callable[[OpenLetter], bool],
        *,
        below: int | None = None,
        timeout_s: float = SEARCH_TIMEOUT_S,
    ) -> bool:
        """Call `found` with each matching open letter, newest first, until it returns False.

        If `below` is given, only letters at offsets below it count. Returns True if all letters
        were searched.
        """
        place = await self.place()
        if place is None:
            return True
        known, is_wanted = OpenLetters(), wanted.compiled()
        is_whole = True

        def take(entries: Sequence[OpenLetter | Mark]) -> bool:
            nonlocal is_whole
            for entry in entries:
                if isinstance(entry, Mark):
                    known.take(entry)
                    continue
                is_meant = (
                    known.take(entry.letter)
                    and (below is None or entry.offset < below)
                    and entry.letter.incarnation == self._incarnation
                    and is_wanted(entry.letter)
                )
                if is_meant and not found(entry):
                    is_whole = False
                    return False
            is_whole = len(known) <= ENTRIES_MAX
            return is_whole

        try:
            with trio.fail_after(timeout_s):
                bounds = (place.partition, place.start, place.end)
                await read_backwards(self.log, self.topic, *bounds, self._entries, take)
        except UnknownTopic:
            return True
        except trio.TooSlowError as error:
            if not len(known):
                raise self._silent() from error
            return False
        return is_whole

    async def read(self, held: OpenLetter) -> Letter | None:
        """Return an open letter with its message; None if no log holds the message any more."""
        place = await self.place()
        if place is None:
            return None
        record = await self.record(self.topic, place.partition, held.offset)
        letter = None if record is None else letter_in(record)
        return None if letter is None else await self.whole(letter)

    async def whole(self, letter: Letter) -> Letter | None:
        """Return the letter with its message, which may be only in its topic's log; None if that
        does not hold it any more.
        """
        if not letter.missing_bytes:
            return letter
        record = await self.record(letter.log_topic, letter.partition, letter.offset)
        if record is None:
            return None
        return replace(
            letter, key=record.key, value=record.value, headers=record.headers, missing_bytes=0
        )

    async def record(self, topic: str, partition: int, offset: int) -> StoredRecord | None:
        """Return a record of any topic of this log; None if it is gone."""
        try:
            with trio.fail_after(_ANSWER_TIMEOUT_S):
                return await read_one(self.log, topic, partition, offset)
        except trio.TooSlowError as error:
            raise self._silent() from error

    async def close(self, mark: Mark) -> None:
        """Close the letters that the mark names."""
        place = await self.place()
        if place is None:
            raise LogUnavailable(f"{self.topic} is gone from the log of datacentre {self.log.dc}")
        record = mark_record(self._subscription, mark)
        (outcome,) = await self.log.append(self.topic, place.partition, [record], Ack.ALL)
        if not isinstance(outcome, Stored):
            raise LogUnavailable(outcome.reason)

    def _entries(self, record: StoredRecord) -> tuple[OpenLetter | Mark, ...]:
        if record.key != self._subscription.encode():
            return ()
        try:
            entry = read_entry(record)
        except UndecodableLetter:
            return ()
        if isinstance(entry, Mark):
            return (entry,)
        bare = replace(entry, value=b"")
        return (OpenLetter(bare, record.offset, record.timestamp_ms, len(record.value)),)

    def _silent(self) -> LogUnavailable:
        return LogUnavailable(
            f"the log of datacentre {self.log.dc} did not answer within {_ANSWER_TIMEOUT_S:g} s"
        )


def letter_in(record: StoredRecord) -> Letter | None:
    """Return the letter in a record; None if it is a mark or unreadable."""
    try:
        entry = read_entry(record)
    except UndecodableLetter:
        return None
    return entry if isinstance(entry, Letter) else None
