"""One partition's part of a fetch: whole batches come in, single records go out. Pure.

Records are decoded when they are taken, so that a large answer does not block the loop.

Records of aborted transactions are omitted in the same way as by Kafka's own consumer: an answer
lists the producer and first offset of each transaction, and the producer's next control batch ends
it (KIP-98, https://cwiki.apache.org/confluence/display/KAFKA/KIP-98; CompletedFetch in Kafka's
clients).
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter

import aiokafka.errors as kafka_errors
from aiokafka.record.memory_records import MemoryRecords

from hermes_actors.model.record import StoredRecord


class Fetched:
    """The fetched records of one partition that have not been taken yet, and the state of its
    fetches.

    `flight`: the open fetch, if any. `is_held`: do not fetch now, because the last fetch failed.
    `origin`: of the records.
    """

    __slots__ = (
        "_records",
        "failed_since_s",
        "fetch_from",
        "flight",
        "head",
        "is_held",
        "number",
        "origin",
        "tries",
    )

    def __init__(self, number: int, position: int, origin: str = "") -> None:
        self.number = number
        self.origin = origin
        self._records: Iterator[StoredRecord] | None = None
        self.fetch_from = position
        self.head: StoredRecord | None = None
        self.flight: object = None
        self.failed_since_s: float | None = None
        self.tries = 0
        self.is_held = False

    @property
    def is_wanted(self) -> bool:
        """True if the partition needs a fetch: all records are taken, no fetch is open, and it is
        not held.
        """
        return self.is_taken and not (self.flight or self.is_held)

    @property
    def is_taken(self) -> bool:
        """True if all fetched records have been taken; then `fetch_from` is the next offset."""
        return not (self._records or self.head)

    def restart(self, position: int) -> None:
        """Drop the fetched records and any open fetch, and continue at `position`."""
        self._records = self.head = self.flight = None
        self.fetch_from = position

    def fill(self, data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> bool:
        """Set the record batches of a fetch's answer. `aborted`: producer id and first offset of
        each aborted transaction. False if there are no batches.
        """
        records = MemoryRecords(data)
        if not records.has_next():
            return False
        self._records = self._unpack(records, sorted(aborted, key=itemgetter(1), reverse=True))
        return True

    def take(self) -> StoredRecord | None:
        """Return the next record; None if there is none. Raises KafkaError if it is damaged."""
        record = self.head
        if record is not None:
            self.head = None
            return record
        if self._records is None:
            return None
        record = next(self._records, None)
        if record is None:
            self._records = None
        return record

    def _unpack(
        self, records: MemoryRecords, aborted: list[tuple[int, int]]
    ) -> Iterator[StoredRecord]:
        number, origin = self.number, self.origin
        # Producers that are inside an aborted transaction at this point.
        aborting: set[int | None] = set()
        while records.has_next():
            batch = records.next_batch()
            if not batch.validate_crc():
                raise kafka_errors.CorruptRecordException(f"partition {number}: wrong checksum")
            while aborted and aborted[-1][1] < batch.next_offset:
                aborting.add(aborted.pop()[0])
            if batch.is_control_batch:
                aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                for record in batch:
                    offset = record.offset
                    # A broker sends whole batches, even if the position is inside one.
                    if offset < self.fetch_from:
                        continue
                    self.fetch_from = offset + 1
                    headers = record.headers
                    yield StoredRecord(
                        number,
                        offset,
                        record.timestamp,
                        record.key,
                        record.value or b"",
                        tuple([(name, value or b"") for name, value in headers]) if headers else (),
                        origin,
                        record.value is None,
                    )
            # Offsets have gaps: transaction markers, and records that compaction removed.
            self.fetch_from = max(self.fetch_from, batch.next_offset)
