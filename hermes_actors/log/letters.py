"""Finds dead letters in one datacentre's log; reads and closes those of one subscription."""

from collections.abc import Callable, Mapping, Sequence

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
"""Maximum number of letters and marks that one search of a partition reads."""

_ANSWER_TIMEOUT_S = 5.0
SEARCH_TIMEOUT_S = 20.0


class OpenLetter(Struct, frozen=True, gc=False):
    """An open letter without its value, and the offset of its record."""

    letter: Letter
    offset: int
    timestamp_ms: int
    value_bytes: int


class LetterPlace(Struct, frozen=True):
    """A partition with dead letters, and its current bounds."""

    partition: int
    start: int
    end: int


async def places_of(log: Log, topic: str) -> list[LetterPlace]:
    """Return the partitions of a dead-letter topic, [] if the log has no such topic. Raises
    LogUnavailable.
    """
    try:
        with trio.fail_after(_ANSWER_TIMEOUT_S):
            ends = await log.positions(topic, LATEST)
            starts = await log.positions(topic, EARLIEST)
    except UnknownTopic:
        return []
    except trio.TooSlowError as error:
        raise _silent(log) from error
    return [LetterPlace(each, starts.get(each, 0), end) for each, end in sorted(ends.items())]


async def search_letters(
    log: Log,
    topic: str,
    place: LetterPlace,
    lives: Mapping[bytes, int],
    wanted: LetterFilter,
    found: Callable[[OpenLetter], bool],
    *,
    below: int | None = None,
    timeout_s: float = SEARCH_TIMEOUT_S,
) -> bool:
    """Call `found` with each matching open letter of a partition, newest first, until it returns
    False. `lives` maps the full names of subscriptions to the incarnation whose letters count.

    If `below` is given, only letters at offsets below it count. Returns True if all letters were
    searched. Raises LogUnavailable.
    """
    known = {key: OpenLetters() for key in lives}
    is_wanted, is_whole = wanted.compiled(), True

    def entries(record: StoredRecord) -> tuple[tuple[bytes, OpenLetter | Mark], ...]:
        key = record.key or b""
        try:
            entry = read_entry(record) if key in known else None
        except UndecodableLetter:
            entry = None
        if isinstance(entry, Letter):
            bare = replace(entry, value=b"")
            size = len(record.value)
            return ((key, OpenLetter(bare, record.offset, record.timestamp_ms, size)),)
        return () if entry is None else ((key, entry),)

    def take(piece: Sequence[tuple[bytes, OpenLetter | Mark]]) -> bool:
        nonlocal is_whole
        for key, entry in piece:
            if isinstance(entry, Mark):
                known[key].take(entry)
                continue
            is_meant = (
                known[key].take(entry.letter)
                and (below is None or entry.offset < below)
                and entry.letter.incarnation == lives[key]
                and is_wanted(entry.letter)
            )
            if is_meant and not found(entry):
                is_whole = False
                return False
        is_whole = sum(map(len, known.values())) <= ENTRIES_MAX
        return is_whole

    try:
        with trio.fail_after(timeout_s):
            bounds = (place.partition, place.start, place.end)
            await read_backwards(log, topic, *bounds, entries, take)
    except UnknownTopic:
        return True
    except trio.TooSlowError as error:
        if not any(known.values()):
            raise _silent(log) from error
        return False
    return is_whole


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
        places = await places_of(self.log, self.topic)
        if not places:
            return None
        return places[partition_of(self._subscription.encode(), len(places))]

    async def search(
        self,
        wanted: LetterFilter,
        found: Callable[[OpenLetter], bool],
        *,
        below: int | None = None,
        timeout_s: float = SEARCH_TIMEOUT_S,
    ) -> bool:
        """Search the subscription's letters, as `search_letters`."""
        place = await self.place()
        if place is None:
            return True
        lives = {self._subscription.encode(): self._incarnation}
        return await search_letters(
            self.log, self.topic, place, lives, wanted, found, below=below, timeout_s=timeout_s
        )

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
            raise _silent(self.log) from error

    async def close(self, mark: Mark) -> None:
        """Close the letters that the mark names."""
        place = await self.place()
        if place is None:
            raise LogUnavailable(f"{self.topic} is gone from the log of datacentre {self.log.dc}")
        record = mark_record(self._subscription, mark)
        (outcome,) = await self.log.append(self.topic, place.partition, [record], Ack.ALL)
        if not isinstance(outcome, Stored):
            raise LogUnavailable(outcome.reason)


def _silent(log: Log) -> LogUnavailable:
    return LogUnavailable(
        f"the log of datacentre {log.dc} did not answer within {_ANSWER_TIMEOUT_S:g} s"
    )


def letter_in(record: StoredRecord) -> Letter | None:
    """Return the letter in a record; None if it is a mark or unreadable."""
    try:
        entry = read_entry(record)
    except UndecodableLetter:
        return None
    return entry if isinstance(entry, Letter) else None
