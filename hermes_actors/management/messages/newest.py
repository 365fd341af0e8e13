"""The newest records of a log topic."""

from collections.abc import Mapping, Sequence

import trio

from hermes_actors.log.base import EARLIEST, Log, LogUnavailable
from hermes_actors.log.ranges import read_forwards
from hermes_actors.model.record import StoredRecord

BYTES_MAX = 16_777_216
TIMEOUT_S = 20.0


async def newest(
    log: Log, log_topic: str, ends: Mapping[int, int], most: int
) -> list[StoredRecord]:
    """The newest records below `ends`, of all partitions together, oldest first: at most `most`
    records and BYTES_MAX bytes. Raises LogUnavailable, UnknownTopic.
    """
    kept: list[StoredRecord] = []
    left = most

    def take(batch: Sequence[StoredRecord]) -> bool:
        nonlocal kept, left
        kept = _newest_of([*kept, *batch], most)
        left -= len(batch)
        return True

    try:
        with trio.fail_after(TIMEOUT_S):
            starts = await log.positions(log_topic, EARLIEST)
            for partition, end in sorted(ends.items()):
                start, back, left = starts.get(partition, 0), most, most
                # Some offsets have no record, so read further back until there are enough.
                while left > 0 and start < end:
                    low = max(start, end - back)
                    await read_forwards(log, log_topic, partition, low, end, take)
                    end, back = low, 2 * back
    except trio.TooSlowError as error:
        raise LogUnavailable(
            f"the log of datacentre {log.dc} did not answer within {TIMEOUT_S:g} s"
        ) from error
    return kept


def _newest_of(records: list[StoredRecord], most: int) -> list[StoredRecord]:
    records.sort(key=lambda each: (each.timestamp_ms, each.partition, each.offset))
    size_bytes = count = 0
    for record in reversed(records[-most:]):
        size_bytes += len(record.value)
        if count and size_bytes > BYTES_MAX:
            break
        count += 1
    return records[len(records) - count :]
