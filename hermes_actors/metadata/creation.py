"""The ends of a topic's partitions when a subscription to it is created: it starts after them."""

import msgspec
from msgspec import Struct

from hermes_actors.log.base import EARLIEST, LATEST, Log
from hermes_actors.log.commits import LastRead

_BYTES_MAX = 65_536


class Creation(Struct, frozen=True, rename="camel"):
    """The ends of a topic's partitions when a subscription was created, in the log of that
    datacentre.

    `last_records` are the last records of the partitions that had any. If the log has other records
    there, it has lost its end since.
    """

    dc: str
    ends: dict[int, int]
    last_records: dict[int, LastRead] = msgspec.field(default_factory=dict)


async def read_creation(log: Log, log_topic: str) -> Creation:
    """Read the current ends.

    Waits until the last records can be read; the caller limits the time. Raises LogUnavailable,
    UnknownTopic, OffsetOutOfRange.
    """
    starts = await log.positions(log_topic, EARLIEST)
    ends = await log.positions(log_topic, LATEST)
    last = {each: end - 1 for each, end in ends.items() if end > starts.get(each, 0)}
    records: dict[int, LastRead] = {}
    if last:
        async with log.reader(log_topic, last) as reader:
            # A mark of a transaction there is no record: behind it nothing is known.
            while any(reader.position(each) < ends[each] for each in last):
                for record in await reader.next_batch(len(last), _BYTES_MAX):
                    if record.offset == last[record.partition]:
                        records[record.partition] = LastRead.of(
                            record.offset,
                            record.timestamp_ms,
                            record.headers,
                            len(record.value),
                        )
    return Creation(log.dc, ends, records)
