"""The index of the entries in the spool: by topic, in the order in which it came. Pure.

It holds where an entry lies, not the entry: a full spool costs memory by its number of entries, not
by their bytes.
"""

from collections import Counter, deque

from msgspec import Struct

from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.store import Place


class Waiting(Struct, eq=False):
    """One entry that is not known to be in a log. It waits since `since_s` (monotonic, and before
    this process began for an earlier one's). `place` is None until it is written.

    Until `held_until_s` an append that was under way when the entry came may still store it, and it
    is not sent.
    """

    queue: "TopicQueue"
    key: bytes | None
    since_s: float
    held_until_s: float = 0.0
    place: Place | None = None
    is_settled: bool = False


class TopicQueue:
    """The entries of one life of one topic: `count` wait on the disk, in their order, among others
    that are settled. `is_flowing`: a log took the last that was sent.
    """

    def __init__(self, entry: SpoolEntry) -> None:
        self.topic = entry.topic
        self.log_topic = entry.log_topic
        self.incarnation = entry.incarnation
        self.entries: deque[Waiting] = deque()
        self.count = 0
        self.is_flowing = False
        # Of what waits and what is being written; None for those without one.
        self.keys: Counter[bytes | None] = Counter()


class SpoolIndex:
    """All entries that wait or are being written. An entry is `reserve`d, `written` and `settle`d;
    or settled before, when it could not be written or need not be kept.
    """

    def __init__(self) -> None:
        self.queues: dict[str, TopicQueue] = {}
        # In the order in which they came.
        self._waiting: dict[Waiting, None] = {}

    @property
    def entries(self) -> int:
        """How many wait on the disk."""
        return len(self._waiting)

    def holds(self, log_topic: str, key: bytes) -> bool:
        """True while a message with this key waits or is being written."""
        queue = self.queues.get(log_topic)
        return queue is not None and key in queue.keys

    def has(self, topic: str) -> bool:
        """True while any message of a topic, of whatever life, waits or is being written."""
        return any(queue.topic == topic for queue in self.queues.values())

    def places(self) -> list[Place]:
        """Where those lie that wait on the disk, in the order in which they came."""
        return [each.place for each in self._waiting if each.place is not None]

    def oldest_s(self) -> float | None:
        """Since when the first entry waits; None when none does."""
        first = next(iter(self._waiting), None)
        return None if first is None else first.since_s

    def reserve(self, entry: SpoolEntry, since_s: float, held_until_s: float = 0.0) -> Waiting:
        """Add an entry that is about to be written; from here on its key is held."""
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
        """Remove an entry; False when it was removed already."""
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
        # One whose entries are being written is needed too, and made again otherwise.
        if not queue.keys:
            self.queues.pop(queue.log_topic, None)
        return True
