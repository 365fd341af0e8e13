"""Finds the open dead letters of one subscription in one datacentre's log, newest first."""

from collections.abc import Callable, Sequence

import trio
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.log.base import Log, LogUnavailable, UnknownTopic
from hermes_actors.log.ranges import read_backwards, read_one
from hermes_actors.model.dead_letter import (
    Letter,
    LetterFilter,
    Mark,
    OpenLetters,
    UndecodableLetter,
    read_entry,
)
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import StoredRecord

IDS_MAX = 500_000
"""The most letters and marks of one subscription that one search looks at."""

_ANSWER_TIMEOUT_S = 5.0
_SEARCH_TIMEOUT_S = 20.0


class OpenLetter(Struct, frozen=True, gc=False):
    """An open letter, without its value, and where its record lies."""

    letter: Letter
    offset: int
    timestamp_ms: int
    value_bytes: int


_Entry = OpenLetter | Mark


class LetterPartition(Struct, frozen=True):
    """The partition that holds the letters of one life of a subscription, and its bounds now."""

    log: Log
    topic: str
    subscription: str
    incarnation: int
    partition: int
    start: int
    end: int


async def find_place(
    log: Log, topic: str, subscription: str, incarnation: int
) -> LetterPartition | None:
    """None where there is no dead-letter topic yet. Raises LogUnavailable."""
    try:
        with trio.fail_after(_ANSWER_TIMEOUT_S):
            ends = await log.end_positions(topic)
            starts = await log.start_positions(topic)
    except UnknownTopic:
        return None
    except trio.TooSlowError as error:
        raise _silent(log) from error
    partition = partition_of(subscription.encode(), len(ends))
    return LetterPartition(
        log,
        topic,
        subscription,
        incarnation,
        partition,
        starts.get(partition, 0),
        ends[partition],
    )


async def search(
    place: LetterPartition,
    wanted: LetterFilter,
    found: Callable[[OpenLetter], bool],
    below: int | None = None,
) -> bool:
    """Tell `found` of each open letter that is wanted, newest first, until it says False.

    `below`: only those whose records lie below this offset. True when all of them were looked at.
    Raises LogUnavailable.
    """
    key = place.subscription.encode()
    known = OpenLetters()
    is_wanted = wanted.compiled()
    is_whole = True

    def convert(record: StoredRecord) -> tuple[_Entry, ...]:
        if record.key != key:
            return ()
        try:
            entry = read_entry(record)
        except UndecodableLetter:
            return ()
        if isinstance(entry, Mark):
            return (entry,)
        bare = replace(entry, value=b"")
        return (OpenLetter(bare, record.offset, record.timestamp_ms, len(record.value)),)

    def take(entries: Sequence[_Entry]) -> bool:
        nonlocal is_whole
        for entry in entries:
            if not known.take(entry if isinstance(entry, Mark) else entry.letter):
                continue
            assert isinstance(entry, OpenLetter), "only letters are open"
            is_meant = below is None or entry.offset < below
            is_ours = entry.letter.incarnation == place.incarnation
            if is_meant and is_ours and is_wanted(entry.letter) and not found(entry):
                is_whole = False
                return False
        if len(known) > IDS_MAX:
            is_whole = False
            return False
        return True

    try:
        with trio.fail_after(_SEARCH_TIMEOUT_S):
            await read_backwards(
                place.log, place.topic, place.partition, place.start, place.end, convert, take
            )
    except UnknownTopic:
        return True
    except trio.TooSlowError as error:
        if not len(known):
            raise _silent(place.log) from error
        is_whole = False
    return is_whole


async def record_at(log: Log, topic: str, partition: int, offset: int) -> StoredRecord | None:
    """One record, None where the log does not hold it any more. Raises LogUnavailable."""
    try:
        with trio.fail_after(_ANSWER_TIMEOUT_S):
            return await read_one(log, topic, partition, offset)
    except trio.TooSlowError as error:
        raise _silent(log) from error


async def message_of(place: LetterPartition, held: OpenLetter) -> bytes | None:
    """A letter's message as its record held it; None where no log holds it any more.

    Raises LogUnavailable.
    """
    letter = held.letter
    if letter.missing_bytes:
        record = await record_at(place.log, letter.log_topic, letter.partition, letter.offset)
    else:
        record = await record_at(place.log, place.topic, place.partition, held.offset)
    return None if record is None else record.value


def _silent(log: Log) -> LogUnavailable:
    return LogUnavailable(
        f"the log of datacentre {log.dc} did not answer within {_ANSWER_TIMEOUT_S:g} s"
    )
