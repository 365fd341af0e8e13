"""Groups one topic's messages into batches: one batch in flight for each partition. Pure.

Messages that waited while a partition's last append was in flight form its next batch. Messages
without a key have one batch in flight at a time, each on another partition than the last (such
sticky batches are larger than a round robin of messages). If that batch is slow, they continue on
another partition, so that one silent partition delays only the messages that it already has.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar

from hermes_actors.model.partitioner import partition_of

RECORD_OVERHEAD_BYTES = 128
"""Approximate size of a record's headers, counted so that the limit on a batch's bytes holds."""


class Batchable(Protocol):
    """An item of a batch: one message, or several that stay together (`count`) and share `key`. If
    it `is_done`, it has been answered and is not sent any more. `body_bytes` is the total of its
    messages.
    """

    @property
    def is_done(self) -> bool: ...  # noqa: D102

    @property
    def key(self) -> bytes | None: ...  # noqa: D102

    @property
    def body_bytes(self) -> int: ...  # noqa: D102

    @property
    def count(self) -> int: ...  # noqa: D102


W = TypeVar("W", bound=Batchable)


class PartitionBatch(Generic[W]):
    """The messages of one append to one partition: `count` of them in `items`."""

    __slots__ = ("body_bytes", "count", "is_keyed", "items", "partition", "started_s")

    def __init__(self, partition: int, is_keyed: bool, started_s: float) -> None:
        self.partition = partition
        self.is_keyed = is_keyed
        self.started_s = started_s
        self.items: list[W] = []
        self.count = 0
        self.body_bytes = 0

    def drop_answered(self) -> None:
        """Remove items that have been answered since the batch was filled, so that they are not
        stored.
        """
        if any(item.is_done for item in self.items):
            self.items = [item for item in self.items if not item.is_done]
            self.body_bytes = sum(item.body_bytes for item in self.items)
            self.count = sum(item.count for item in self.items)


class Batcher(Generic[W]):
    """The queues of one topic's producer.

    A batch has at most `records_max` records and `bytes_max` bytes, but always one record. `first`
    is the partition of the first batch without keys; a batch without keys is slow after `slow_s`.
    """

    def __init__(
        self, partitions: int, *, records_max: int, bytes_max: int, first: int, slow_s: float
    ) -> None:
        assert partitions > 0
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._slow_s = slow_s
        self._keyed: list[deque[W]] = [deque() for _ in range(partitions)]
        self._keyless: deque[W] = deque()
        self._in_flight: dict[int, PartitionBatch[W]] = {}
        # Partitions whose next batch begins with keyed messages.
        self._keyed_next: set[int] = set()
        # Idle partitions that have received keyed messages.
        self._ready: deque[int] = deque()
        self._next_sticky = first
        self._sticky: PartitionBatch[W] | None = None
        self.waiting = 0

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self._keyed)

    @property
    def in_flight(self) -> int:
        """The number of batches in flight."""
        return len(self._in_flight)

    def grow(self, partitions: int) -> None:
        """Add the topic's new partitions; keyed messages that are already queued stay where they
        are.
        """
        while len(self._keyed) < partitions:
            self._keyed.append(deque())

    def rehash(self, partitions: int) -> None:
        """Put the queued messages into the right queues: the number of partitions had been a
        guess.
        """
        waiting = [item for queue in self._keyed for item in queue]
        for queue in self._keyed:
            queue.clear()
        self._ready.clear()
        self.grow(partitions)
        self.waiting -= sum([item.count for item in waiting])
        for item in waiting:
            self.add(item)

    def add(self, item: W) -> None:
        """Queue an item for its partition."""
        self.waiting += item.count
        if item.key is None:
            self._drop_answered(self._keyless)
            self._keyless.append(item)
            return
        partition = partition_of(item.key, len(self._keyed))
        queue = self._keyed[partition]
        self._drop_answered(queue)
        if not queue and partition not in self._in_flight:
            self._ready.append(partition)
        queue.append(item)

    def next_batch(self, now_s: float) -> PartitionBatch[W] | None:
        """Return the next batch that can start now, and count it as in flight; None if there is
        none.
        """
        if self._keyless and self._sticky_is_free(now_s):
            partition = self._idle_partition()
            if partition is not None:
                batch = self._fill_with_both(partition, now_s)
                if batch is not None:
                    return batch
        while self._ready:
            partition = self._ready.popleft()
            if partition in self._in_flight:
                continue  # A batch without keys uses it; `release` puts it back.
            batch = self._fill(PartitionBatch(partition, True, now_s), self._keyed[partition])
            if batch is not None:
                return batch
        return None

    def _fill_with_both(self, partition: int, now_s: float) -> PartitionBatch[W] | None:
        """Make a batch of messages without keys and of keyed messages for this partition, so that
        neither waits for two appends. If there are too many, both kinds take turns in going first.
        """
        keyed, keyless = self._keyed[partition], self._keyless
        queues = (keyless, keyed)
        if partition in self._keyed_next:
            queues = (keyed, keyless)
            self._keyed_next.discard(partition)
        elif keyed:
            self._keyed_next.add(partition)
        waited = len(keyless)
        batch = self._fill(PartitionBatch(partition, bool(keyed), now_s), *queues)
        if batch is not None and len(keyless) < waited:
            self._next_sticky = (partition + 1) % len(self._keyed)
            self._sticky = batch
        return batch

    def release(self, batch: PartitionBatch[W]) -> None:
        """Make the batch's partition idle again: its append has ended."""
        del self._in_flight[batch.partition]
        if batch is self._sticky:
            self._sticky = None
        if self._keyed[batch.partition]:
            self._ready.append(batch.partition)

    def slow_at_s(self) -> float | None:
        """When queued messages without keys may go to another partition; None if that would not
        help. A time in the past means now.
        """
        if not self._keyless or self._sticky is None or len(self._in_flight) >= len(self._keyed):
            return None
        return self._sticky.started_s + self._slow_s

    def take_all(self) -> tuple[list[W], list[W]]:
        """Remove all items: those in flight, and those queued."""
        flying = [item for batch in self._in_flight.values() for item in batch.items]
        waiting = [*self._keyless, *(item for queue in self._keyed for item in queue)]
        self._in_flight.clear()
        self._keyless.clear()
        self._ready.clear()
        for queue in self._keyed:
            queue.clear()
        self._sticky = None
        self.waiting = 0
        return flying, waiting

    def _sticky_is_free(self, now_s: float) -> bool:
        return self._sticky is None or now_s >= self._sticky.started_s + self._slow_s

    def _idle_partition(self) -> int | None:
        count = len(self._keyed)
        if len(self._in_flight) >= count:
            return None
        for step in range(count):
            partition = (self._next_sticky + step) % count
            if partition not in self._in_flight:
                return partition
        return None

    def _drop_answered(self, queue: deque[W]) -> None:
        """Remove answered items at the head; deadlines of one topic are in order, so they are all
        there.
        """
        while queue and queue[0].is_done:
            self.waiting -= queue.popleft().count

    def _fill(self, batch: PartitionBatch[W], *queues: deque[W]) -> PartitionBatch[W] | None:
        """Move items from the heads of the queues into the batch; None if all of them were
        answered.
        """
        room_bytes = self._bytes_max
        items = batch.items
        for queue in queues:
            while queue and batch.count < self._records_max:
                item = queue[0]
                count = item.count
                if not item.is_done:
                    body_bytes = item.body_bytes
                    size_bytes = body_bytes + RECORD_OVERHEAD_BYTES * count
                    if item.key is not None:
                        size_bytes += len(item.key) * count
                    if items and (
                        size_bytes > room_bytes or batch.count + count > self._records_max
                    ):
                        break
                    room_bytes -= size_bytes
                    batch.body_bytes += body_bytes
                    batch.count += count
                    items.append(item)
                queue.popleft()
                self.waiting -= count
        if not items:
            return None
        self._in_flight[batch.partition] = batch
        return batch

    def drop_answered(self) -> None:
        """Remove answered items from the heads of all queues, to make room."""
        for queue in (self._keyless, *self._keyed):
            self._drop_answered(queue)
