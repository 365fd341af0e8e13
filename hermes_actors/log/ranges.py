"""Reads a fixed range of one partition, forwards or backwards, without waiting for new records."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from hermes_actors.log.base import LATEST, Log, OffsetOutOfRange, UnknownTopic
from hermes_actors.model.record import StoredRecord

T = TypeVar("T")

BATCH_RECORDS_MAX = 500
BATCH_BYTES_MAX = 1_048_576


async def read_forwards(
    log: Log,
    topic: str,
    partition: int,
    start: int,
    end: int,
    take: Callable[[Sequence[StoredRecord]], bool],
) -> None:
    """Call `take` with the records from `start` to below `end`, in batches, until it returns False.

    Records that retention removes meanwhile are skipped. Raises LogUnavailable, UnknownTopic. Waits
    for ever if the log ends below `end`, so set a timeout around it.
    """
    position = start
    while position < end:
        try:
            async with log.reader(topic, {partition: position}) as reader:
                while position < end:
                    batch = await reader.next_batch(
                        min(BATCH_RECORDS_MAX, end - position), BATCH_BYTES_MAX
                    )
                    position = reader.position(partition)
                    if position > end:
                        batch = [record for record in batch if record.offset < end]
                    if batch and not take(batch):
                        return
        except OffsetOutOfRange as error:
            if error.position >= error.start:
                # The log lost its end: there is nothing more in the range.
                return
            position = error.start


async def read_one(log: Log, topic: str, partition: int, offset: int) -> StoredRecord | None:
    """Return the record at `offset`; None if the log does not hold it, or has no such topic.

    Raises LogUnavailable. Set a timeout around it.
    """
    records: list[StoredRecord] = []

    def take(batch: Sequence[StoredRecord]) -> bool:
        records.extend(batch)
        return False

    try:
        if 0 <= offset < (await log.positions(topic, LATEST)).get(partition, 0):
            await read_forwards(log, topic, partition, offset, offset + 1, take)
    except UnknownTopic:
        return None
    return next((record for record in records if record.offset == offset), None)


async def read_backwards(
    log: Log,
    topic: str,
    partition: int,
    start: int,
    end: int,
    convert: Callable[[StoredRecord], Iterable[T]],
    take: Callable[[Sequence[T]], bool],
) -> None:
    """Call `take` with what `convert` makes of the records below `end`, newest first, until it
    returns False or `start` is reached.

    A log can only be read forwards, so this goes back in pieces. The memory is that of one
    converted piece. Raises and waits like `read_forwards`.
    """
    high = end
    while high > start:
        low = max(start, high - BATCH_RECORDS_MAX)
        piece: list[T] = []

        def gather(batch: Sequence[StoredRecord], piece: list[T] = piece) -> bool:
            for record in batch:
                piece.extend(convert(record))
            return True

        await read_forwards(log, topic, partition, low, high, gather)
        piece.reverse()
        if not take(piece):
            return
        high = low
