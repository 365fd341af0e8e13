"""The tracking events of one life of a node that wait for one datacentre's log. Pure."""

from collections import deque

from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.tracking.events import TrackingBatch, TrackingEvent

BATCH_EVENTS_MAX = 2_000
_BATCH_BYTES_MAX = 786_432


class TrackingBuffer:
    """A bounded queue of events; further events are dropped, and counted in the next batch.

    A batch stays the same until the log has it, so that it can be appended again with the same
    number. `added` counts all accepted events, `stored` those that the log has.
    """

    def __init__(
        self, dc: str, node: str, boot: str, *, events_max: int, bytes_max: int = 16_777_216
    ) -> None:
        self.added = 0
        self.stored = 0
        self.dropped = 0
        self.wakeup = Wakeup()
        self._names = dc, node, boot
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._events: deque[tuple[TrackingEvent, int]] = deque()
        self._bytes = 0
        self._sequence = 0
        self._batch: TrackingBatch | None = None
        self._told_dropped = 0

    def __len__(self) -> int:
        return self.added - self.stored

    @property
    def has_room(self) -> bool:
        """False if another event would be dropped."""
        return len(self._events) < self._events_max and self._bytes < self._bytes_max

    def add(self, event: TrackingEvent) -> None:
        """Queue an event, or drop it."""
        if not self.has_room:
            self.drop(1)
            return
        size = event.size_bytes
        self._events.append((event, size))
        self._bytes += size
        self.added += 1
        if not self.wakeup.is_set:
            self.wakeup.set()

    def drop(self, count: int) -> None:
        """Count lost events."""
        self.dropped += count
        if not self.wakeup.is_set:
            self.wakeup.set()

    def next_batch(self) -> TrackingBatch | None:
        """Return the batch to append, the same one until `appended`; None if there is nothing
        new.
        """
        if self._batch is None and self._has_news:
            self._batch = self._made()
        return self._batch

    def appended(self) -> None:
        """Record that the log has the batch."""
        assert self._batch is not None, "a batch was begun"
        self.stored += len(self._batch.events)
        self._told_dropped = self._batch.dropped
        self._batch = None
        self._sequence += 1

    @property
    def _has_news(self) -> bool:
        return bool(self._events) or self.dropped != self._told_dropped

    def _made(self) -> TrackingBatch:
        events: list[TrackingEvent] = []
        bytes_left = _BATCH_BYTES_MAX
        while self._events and len(events) < BATCH_EVENTS_MAX:
            event, size = self._events[0]
            if size > bytes_left and events:
                break
            bytes_left -= size
            self._bytes -= size
            self._events.popleft()
            events.append(event)
        dc, node, boot = self._names
        return TrackingBatch(dc, node, boot, self._sequence, self.dropped, tuple(events))
