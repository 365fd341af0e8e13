"""The index of what waits in the spool and may be sent next: in order for each key. Pure.

It holds where an entry lies, not the entry: a full spool costs memory by its number of entries, not
by their bytes. Each topic's entries stand in lanes: those without a key in one, those with a key in
the lane of their key's partition. A lane is sent from by one sender at a time.
"""

from collections import Counter, deque
from collections.abc import Hashable, Sequence

from msgspec import Struct

from hermes_actors.model.partitioner import partition_of

KEYLESS = -1
"""The lane of entries without a key."""

_LOOKED_AT_MAX = 10_000
"""How many entries that may not go yet are passed by in search of one that may."""


class Place(Struct, frozen=True, gc=False):
    """Where an entry's frame lies: its segment's number, its first byte, its length."""

    segment: int
    at: int
    size_bytes: int


class Waiting(Struct, eq=False):
    """One entry that is not known to be in a log.

    Until `held_until_s` (monotonic) an append that was under way when the entry came may still
    store it: it is not sent, and what has the same key and came later is not either.
    `held_by` is what that append is known by. `is_stored`: it did, while the entry was written.

    It waits since `since_s` (monotonic, and before this process began for an earlier one's);
    `tried_s` is when it was first about to be sent by this process, None before.
    """

    queue: "TopicQueue"
    key: bytes | None
    sequence: int
    since_s: float
    size_bytes: int
    held_until_s: float = 0.0
    held_by: Hashable = None
    tried_s: float | None = None
    place: Place | None = None
    is_settled: bool = False
    is_stored: bool = False


class TopicQueue:
    """The entries of one life of one topic that wait. `is_flowing`: a log took the last that was
    sent.
    """

    def __init__(self, topic: str, log_topic: str, incarnation: int) -> None:
        self.topic = topic
        self.log_topic = log_topic
        self.incarnation = incarnation
        self.is_flowing = False
        self.count = 0
        # Of what waits and what is being written; None for those without one.
        self.keys: Counter[bytes | None] = Counter()
        self._lanes: dict[int, deque[Waiting]] = {}
        self._partitions = 1

    @property
    def lanes(self) -> list[int]:
        """The lanes that are not empty."""
        return [lane for lane, entries in self._lanes.items() if self._head(entries) is not None]

    def oldest(self) -> Waiting | None:
        """Return the entry that has waited longest; None when nothing waits."""
        heads = (self._head(entries) for entries in self._lanes.values())
        return min((head for head in heads if head), key=lambda each: each.sequence, default=None)

    def arrange(self, partitions: int) -> None:
        """Stand the entries in lanes as the log spreads keys over its partitions, so that one
        partition that is away holds up no other's. Only while nothing is being sent.
        """
        if partitions == self._partitions:
            return
        self._partitions = partitions
        lanes, self._lanes = self._lanes, {}
        entries = [each for lane in lanes.values() for each in lane if not each.is_settled]
        for each in sorted(entries, key=lambda entry: entry.sequence):
            self.stand(each)

    def select(
        self, lane: int, now_s: float, *, records_max: int, bytes_max: int
    ) -> tuple[list[Waiting], float | None]:
        """(what may be sent next, in order; when to look again if that is nothing, None: never).

        At least one entry, if one may go, whatever its size.
        """
        entries = self._lanes.get(lane)
        if entries is None or self._head(entries) is None:
            return [], None
        chosen: list[Waiting] = []
        held_keys: set[bytes | None] = set()
        again_s: float | None = None
        room_bytes = bytes_max
        for looked_at, each in enumerate(entries):
            if looked_at >= _LOOKED_AT_MAX or len(chosen) >= records_max:
                break
            if each.is_settled or (each.key is not None and each.key in held_keys):
                continue
            if each.held_until_s > now_s:
                held_keys.add(each.key)
                again_s = min(again_s or each.held_until_s, each.held_until_s)
                continue
            if chosen and each.size_bytes > room_bytes:
                break
            room_bytes -= each.size_bytes
            chosen.append(each)
        return chosen, again_s

    def stand(self, waiting: Waiting) -> None:
        """Stand it behind the others of its lane."""
        key = waiting.key
        lane = KEYLESS if key is None else partition_of(key, self._partitions)
        self._lanes.setdefault(lane, deque()).append(waiting)

    def _head(self, entries: deque[Waiting]) -> Waiting | None:
        while entries and entries[0].is_settled:
            entries.popleft()
        return entries[0] if entries else None


class SpoolIndex:
    """All entries that wait or are being written: their number, bytes, and each segment's share.

    An entry is `reserve`d, then `written` or `release`d, then `settle`d once.
    """

    def __init__(self) -> None:
        self.entries = 0
        self.size_bytes = 0
        self.being_written = 0
        self.being_written_bytes = 0
        self._queues: dict[str, TopicQueue] = {}
        self._unsettled: dict[int, dict[int, Waiting]] = {}

    @property
    def queues(self) -> Sequence[TopicQueue]:
        """The topics of which something waits."""
        return [queue for queue in self._queues.values() if queue.count]

    def queue(self, log_topic: str) -> TopicQueue | None:
        """Return the queue of that life of a topic; None when nothing of it waits."""
        return self._queues.get(log_topic)

    def holds(self, log_topic: str, key: bytes) -> bool:
        """True while a message with this key waits or is being written."""
        queue = self._queues.get(log_topic)
        return queue is not None and key in queue.keys

    def has(self, topic: str) -> bool:
        """True while any message of a topic, of whatever life, waits or is being written."""
        return any(queue.topic == topic for queue in self._queues.values())

    def oldest_s(self) -> float | None:
        """Since when the entry waits that has waited longest; None when none waits."""
        heads = (queue.oldest() for queue in self._queues.values())
        return min((head.since_s for head in heads if head), default=None)

    def reserve(
        self,
        topic: str,
        log_topic: str,
        incarnation: int,
        key: bytes | None,
        *,
        sequence: int,
        since_s: float,
        size_bytes: int,
        held_until_s: float = 0.0,
        held_by: Hashable = None,
    ) -> Waiting:
        """Add an entry that is about to be written; from here on its key is held."""
        queue = self._queues.get(log_topic)
        if queue is None:
            queue = self._queues[log_topic] = TopicQueue(topic, log_topic, incarnation)
        queue.keys[key] += 1
        self.being_written += 1
        self.being_written_bytes += size_bytes
        return Waiting(queue, key, sequence, since_s, size_bytes, held_until_s, held_by)

    def written(self, waiting: Waiting, place: Place) -> None:
        """Record that an entry is on the disk. Entries are written in order of their sequence."""
        self._end_writing(waiting)
        waiting.place = place
        waiting.queue.count += 1
        waiting.queue.stand(waiting)
        self.entries += 1
        self.size_bytes += waiting.size_bytes
        self._unsettled.setdefault(place.segment, {})[waiting.sequence] = waiting

    def release(self, waiting: Waiting) -> None:
        """Forget an entry that could not be written."""
        self._end_writing(waiting)
        waiting.is_settled = True
        self._free(waiting)

    def settle(self, waiting: Waiting) -> bool:
        """Remove an entry that need not be sent any more; False when it was settled already, or is
        not on the disk.
        """
        if waiting.is_settled or waiting.place is None:
            return False
        waiting.is_settled = True
        # It goes from its lane when it stands at its head: from the middle would cost too much.
        waiting.queue.count -= 1
        self.entries -= 1
        self.size_bytes -= waiting.size_bytes
        self._leave(waiting, waiting.place)
        self._free(waiting)
        return True

    def move(self, waiting: Waiting, place: Place) -> None:
        """Record an entry's new place; its turn is the same. What is settled stays where it was."""
        if waiting.place is not None and not waiting.is_settled:
            self._leave(waiting, waiting.place)
            waiting.place = place
            self._unsettled.setdefault(place.segment, {})[waiting.sequence] = waiting

    def unsettled(self, segment: int) -> list[Waiting]:
        """The entries of a segment that are still needed."""
        return list(self._unsettled.get(segment, {}).values())

    def is_needed(self, segment: int) -> bool:
        """False for a segment of which no entry waits."""
        return segment in self._unsettled

    def _leave(self, waiting: Waiting, place: Place) -> None:
        entries = self._unsettled[place.segment]
        del entries[waiting.sequence]
        if not entries:
            del self._unsettled[place.segment]

    def _end_writing(self, waiting: Waiting) -> None:
        self.being_written -= 1
        self.being_written_bytes -= waiting.size_bytes

    def _free(self, waiting: Waiting) -> None:
        queue = waiting.queue
        queue.keys[waiting.key] -= 1
        if not queue.keys[waiting.key]:
            del queue.keys[waiting.key]
        # One whose entries are being written is needed too, and made again otherwise.
        if not queue.keys:
            self._queues.pop(queue.log_topic, None)
