"""One partition's part of a fetch: whole batches come in, single records go out. Pure.

Records are unpacked when they are taken, so that a megabyte never holds the loop.

Records of aborted transactions are left out as Kafka's own consumer does it: an answer names each
transaction by producer and first offset, and the producer's next control batch ends it (KIP-98,
https://cwiki.apache.org/confluence/display/KAFKA/KIP-98; CompletedFetch in Kafka's clients).
"""

from collections.abc import Iterator, Sequence
from operator import itemgetter

import aiokafka.errors as kafka_errors
from aiokafka.record.memory_records import MemoryRecords

from hermes_actors.model.record import StoredRecord


class Fetched:
    """The records of one partition that were fetched and not yet taken, and how its fetches fare.

    `flight`: the fetch that is out for it, if any; `is_held`: not to be fetched just now, since
    the last fetch failed. `origin` is the records'.
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
        """True when it is to be fetched: nothing is here or on its way, and its last failure is a
        while ago.
        """
        return self.is_taken and not (self.flight or self.is_held)

    @property
    def is_taken(self) -> bool:
        """True when nothing is left of what was fetched: `fetch_from` is the next offset."""
        return not (self._records or self.head)

    def restart(self, position: int) -> None:
        """Drop what was fetched, also what is still on its way, and go on from there."""
        self._records = self.head = self.flight = None
        self.fetch_from = position

    def fill(self, data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> bool:
        """Take over the record batches of a fetch's answer, and the transactions in them that were
        aborted: producer id and first offset. False when it holds no batches.
        """
        records = MemoryRecords(data)
        if not records.has_next():
            return False
        self._records = self._unpack(records, sorted(aborted, key=itemgetter(1), reverse=True))
        return True

    def take(self) -> StoredRecord | None:
        """The next record; None when all is taken. Raises KafkaError for damage."""
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
        # The producers whose transaction is open here and was aborted later.
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
                    # A batch comes whole, also when the position lies in its middle.
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
            # Offsets have gaps: the marks of transactions, and what compaction took.
            self.fetch_from = max(self.fetch_from, batch.next_offset)
