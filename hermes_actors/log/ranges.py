"""Reads a stated range of one partition, forwards or backwards, without ever waiting for more."""

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
    """Give `take` the records from `start` to below `end`, in batches, until it says False.

    What retention removes meanwhile is left out. Raises LogUnavailable, UnknownTopic; waits for
    ever where the log ends below `end`, so set a time-out around it.
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
    """Return the record at `offset`; None where the log does not hold it, or has no such topic.

    Raises LogUnavailable. Set a time-out around it.
    """
    records: list[StoredRecord] = []

    def take(batch: Sequence[StoredRecord]) -> bool:
        records.extend(batch)
        return False

    try:
        if offset < (await log.positions(topic, LATEST)).get(partition, 0):
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
    """Give `take` what `convert` makes of the records below `end`, newest first, until it says
    False or `start` is reached.

    A log is read forwards only, so this goes back in pieces. What is held at one time is what
    `convert` made of one piece. Raises and waits as `read_forwards`.
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
