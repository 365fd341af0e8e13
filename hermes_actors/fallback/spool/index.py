"""The index of the entries in the spool: by topic, in order of arrival. Pure.

It holds where an entry is, not the entry: the memory for a full spool depends on the number of
entries, not on their bytes.
"""

from collections import Counter, deque

from msgspec import Struct

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.store import Place


class Waiting(Struct, eq=False):
    """One entry that is not known to be in a log. `since_s` (monotonic) is when it arrived; for an
    entry of an earlier process it is before this process began. `place` is None until it is
    written.

    Until `held_until_s` the entry is not sent, because an append that was under way when it arrived
    may still store it.
    """

    queue: "TopicQueue"
    key: bytes | None
    since_s: float
    held_until_s: float = 0.0
    place: Place | None = None
    is_settled: bool = False


class TopicQueue:
    """The entries of one incarnation of a topic, in order, including settled ones; `count` are
    waiting on the disk. `is_flowing`: a log took the last entry that was sent.
    """

    def __init__(self, entry: SpoolEntry) -> None:
        self.topic = entry.topic
        self.log_topic = entry.log_topic
        self.incarnation = entry.incarnation
        self.entries: deque[Waiting] = deque()
        self.count = 0
        self.is_flowing = False
        # Keys of entries that wait or are being written; None for those without one.
        self.keys: Counter[bytes | None] = Counter()


class SpoolIndex:
    """All entries that wait or are being written. An entry is `reserve`d, `written` and `settle`d.
    If it cannot be written, or need not be kept, it is settled without `written`.
    """

    def __init__(self) -> None:
        self.queues: dict[str, TopicQueue] = {}
        # In order of arrival.
        self._waiting: dict[Waiting, None] = {}

    @property
    def entries(self) -> int:
        """The number of entries on the disk."""
        return len(self._waiting)

    def holds(self, log_topic: str, key: bytes) -> bool:
        """True while a message with this key waits or is being written."""
        queue = self.queues.get(log_topic)
        return queue is not None and key in queue.keys

    def has(self, topic: str) -> bool:
        """True while any message of the topic, of any incarnation, waits or is being written."""
        return any(queue.topic == topic for queue in self.queues.values())

    def places(self) -> list[Place]:
        """Return the places of all entries on the disk, oldest first."""
        return [each.place for each in self._waiting if each.place is not None]

    def oldest_s(self) -> float | None:
        """The arrival of the oldest entry (monotonic); None if there is none."""
        first = next(iter(self._waiting), None)
        return None if first is None else first.since_s

    def reserve(self, entry: SpoolEntry, since_s: float, held_until_s: float = 0.0) -> Waiting:
        """Add an entry that is about to be written; its key is held from now on."""
        queue = self.queues.get(entry.log_topic)
        if queue is None:
            queue = self.queues[entry.log_topic] = TopicQueue(entry)
        key = entry.message.key
        queue.keys[key] += 1
        return Waiting(queue, key, since_s, held_until_s)

    def written(self, waiting: Waiting, place: Place) -> None:
        """Record that an entry is on the disk."""
        waiting.place = place
        waiting.queue.count += 1
        waiting.queue.entries.append(waiting)
        self._waiting[waiting] = None

    def settle(self, waiting: Waiting) -> bool:
        """Remove an entry. False if it was already removed."""
        if waiting.is_settled:
            return False
        waiting.is_settled = True
        queue = waiting.queue
        if waiting.place is not None:
            queue.count -= 1
            del self._waiting[waiting]
        queue.keys[waiting.key] -= 1
        if not queue.keys[waiting.key]:
            del queue.keys[waiting.key]
        # A queue whose entries are still being written is needed; `reserve` would create it again.
        if not queue.keys:
            self.queues.pop(queue.log_topic, None)
        return True
