"""An append in progress: its partition, and its records as Kafka batches."""

from collections.abc import Sequence

import trio

from hermes_actors.log.base import (
    Outcome,
    RefusedRecord,
    Stored,
    StoredRun,
    UnavailableRecord,
    UnknownRecord,
)
from hermes_actors.log.kafka.batches import Numbering, encode
from hermes_actors.model.record import Record
from hermes_actors.model.run import RecordRun


class PartitionTurn:
    """One partition at one ack level: lets one append at a time pass, and numbers its batches.
    `is_suspect`: its last answer was slow or lost. `waits_for_replicas`: ack ALL.
    """

    __slots__ = ("_turn", "is_suspect", "numbering", "partition", "topic", "waits_for_replicas")

    def __init__(self, topic: str, partition: int, waits_for_replicas: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.waits_for_replicas = waits_for_replicas
        self.is_suspect = False
        self.numbering = Numbering()
        self._turn = trio.Lock()

    @property
    def is_busy(self) -> bool:
        """True while an append has the turn."""
        return self._turn.locked()

    async def take_turn(self, timeout_s: float) -> bool:
        """Wait for the turn, first come, first served. False if it did not come in time."""
        if not self._turn.locked():
            # No checkpoint: it would cost each append an iteration of the loop.
            self._turn.acquire_nowait()
            return True
        with trio.move_on_after(timeout_s) as scope:
            await self._turn.acquire()
        return not scope.cancelled_caught

    def pass_turn(self) -> None:
        """Pass the turn to the next append in the queue; no other can get in between."""
        self._turn.release()


class AppendPart:
    """Some records of an append as one Kafka batch. Encoding lowers `end` to what fits.

    `is_perhaps_stored`: an earlier attempt may have been stored. `is_out`: sent, but not yet
    answered.
    """

    __slots__ = (
        "batch",
        "bytes_max",
        "data",
        "end",
        "is_out",
        "is_perhaps_stored",
        "offset",
        "place",
        "start",
    )

    def __init__(
        self,
        place: PartitionTurn,
        batch: Sequence[Record],
        start: int,
        bytes_max: int,
        count_max: int,
    ) -> None:
        self.place = place
        self.batch = batch
        self.start = start
        self.end = min(len(batch), start + count_max)
        self.bytes_max = bytes_max
        self.data: bytes | bytearray | None = None
        self.is_out = False
        self.is_perhaps_stored = False
        self.offset = -1

    @property
    def count(self) -> int:
        """The number of records."""
        return self.end - self.start

    @property
    def size_bytes(self) -> int:
        """The size of the Kafka batch; 0 before it is encoded."""
        return 0 if self.data is None else len(self.data)

    def encoded(self) -> bytes | bytearray:
        """Return the Kafka batch: the same bytes each time, so that a broker recognises a copy."""
        if self.data is None:
            numbering = self.place.numbering
            self.data, self.end = encode(
                self.batch, self.start, self.end, self.bytes_max, numbering.identity, numbering.next
            )
        return self.data

    def stored(self) -> Sequence[Outcome]:
        """Return the outcomes of a stored part, and use up its sequence numbers."""
        if self.place.waits_for_replicas:
            self.place.numbering.stored(self.count)
        if isinstance(self.batch, RecordRun):
            return StoredRun(self.offset, self.count)
        return [Stored(offset) for offset in range(self.offset, self.offset + self.count)]

    def refused(self, reason: str, *, is_too_large: bool = False) -> list[Outcome]:
        """Return the outcomes of a refused part: unknown if an earlier attempt may be stored."""
        if self.is_perhaps_stored:
            return [UnknownRecord(reason)] * self.count
        return [RefusedRecord(reason, is_too_large)] * self.count

    def given_up(self, reason: str) -> list[Outcome]:
        """Return the outcomes of a part that timed out, or whose outcome cannot be known."""
        outcome = UnknownRecord if self.is_perhaps_stored else UnavailableRecord
        return [outcome(reason)] * self.count
