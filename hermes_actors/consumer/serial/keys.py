"""One message of each partition key on its way at a time; those behind it keep their order. Pure.

A key is held from the moment its message is taken up until that message needs nothing more, retries
and dead letter included. Messages without a key hold nothing and wait for nobody.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from hermes_actors.model.record import StoredRecord


class Keyed(Protocol):
    """A message with a record, whose partition key it holds or not."""

    record: StoredRecord
    holds_key: bool


D = TypeVar("D", bound=Keyed)


class KeyOrder(Generic[D]):
    """The holder of each key, and the messages that wait behind. `parked` is how many wait.

    A key of one partition is none of another's: a partition's messages are one sequence.
    """

    __slots__ = ("_behind", "parked")

    def __init__(self) -> None:
        # An entry for each key that is held; its queue is made only when somebody waits.
        self._behind: dict[tuple[int, bytes], deque[D] | None] = {}
        self.parked = 0

    @property
    def held(self) -> int:
        """How many keys are held."""
        return len(self._behind)

    def admit(self, delivery: D) -> bool:
        """True when it may be taken up: it holds its key, or has none. Else it is parked."""
        record = delivery.record
        if record.key is None or delivery.holds_key:
            return True
        key = (record.partition, record.key)
        if key not in self._behind:
            self._behind[key] = None
            delivery.holds_key = True
            return True
        queue = self._behind[key]
        if queue is None:
            queue = self._behind[key] = deque()
        queue.append(delivery)
        self.parked += 1
        return False

    def release(self, delivery: D) -> D | None:
        """Free the key of a message that needs nothing more; return the next behind it, which holds
        the key now, or None.
        """
        record = delivery.record
        if record.key is None or not delivery.holds_key:
            return None
        delivery.holds_key = False
        key = (record.partition, record.key)
        queue = self._behind[key]
        if not queue:
            del self._behind[key]
            return None
        following = queue.popleft()
        self.parked -= 1
        following.holds_key = True
        return following

    def drop(self, is_dropped: Callable[[D], bool]) -> list[D]:
        """Forget those that wait and are to be dropped; return them. Holders stay."""
        dropped: list[D] = []
        for key, queue in self._behind.items():
            if queue:
                dropped += (each for each in queue if is_dropped(each))
                self._behind[key] = deque(each for each in queue if not is_dropped(each))
        self.parked -= len(dropped)
        return dropped

    def clear(self) -> None:
        """Forget all keys."""
        self._behind.clear()
        self.parked = 0
