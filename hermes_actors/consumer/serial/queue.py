"""Chooses the next message to attempt: fresh messages in order of reading, retries by due time;
neither can take the whole in-flight window from the other. Pure: the time is an argument.

While both wait, each is sure of half the window. So retries that time out slowly leave room for
fresh messages, and a flood of fresh messages leaves room for retries. If ordered, a fresh message
whose key is under way is parked behind it, and others pass it.
"""

import heapq
from collections import deque
from collections.abc import Callable

from hermes_actors.consumer.delivery.delivery import Buffer, Delivery


class KeyOrder:
    """Lets one message per partition key be under way at a time; `parked` counts those behind,
    which keep their order.

    A message holds its key from dispatch until it is settled, including retries and dead letter.
    Messages without a key are not ordered.

    Keys are per partition, because the log orders messages only within a partition.
    """

    def __init__(self) -> None:
        # An entry for each held key; its queue is made only when a message waits.
        self._behind: dict[tuple[int, bytes], deque[Delivery] | None] = {}
        self.parked = 0

    @property
    def held(self) -> int:
        """The number of held keys."""
        return len(self._behind)

    def admit(self, delivery: Delivery) -> bool:
        """True if the message may be dispatched: it holds its key, or has none. Otherwise it is
        parked.
        """
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

    def release(self, delivery: Delivery) -> Delivery | None:
        """Free the key of a finished message. Return the next message of the key, which now holds
        it, or None.
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

    def drop(self, is_dropped: Callable[[Delivery], bool]) -> list[Delivery]:
        """Drop and return the parked messages that match. Messages that hold their key stay."""
        dropped: list[Delivery] = []
        for key, queue in self._behind.items():
            if queue:
                dropped += (each for each in queue if is_dropped(each))
                self._behind[key] = deque(each for each in queue if not is_dropped(each))
        self.parked -= len(dropped)
        return dropped

    def clear(self) -> None:
        """Forget all keys and parked messages."""
        self._behind.clear()
        self.parked = 0


class SerialQueue(Buffer):
    """All unsettled messages of one consumer: fresh, waiting, in flight, buried, and, if ordered,
    parked behind their key.
    """

    def __init__(self, window: int, waiting_max: int, *, is_ordered: bool = False) -> None:
        """At most `window` messages are in flight, and `waiting_max` wait or may come to wait.

        `is_ordered`: one message of each partition key is under way at a time, in order of reading.
        """
        super().__init__(waiting_max)
        self.window = window
        self._fresh: deque[Delivery] = deque()
        # (due, sequence, delivery): the sequence keeps equal times in order of arrival.
        self._waiting: list[tuple[float, int, Delivery]] = []
        self._sequence = 0
        self._inflight_retries = 0
        self._retry_is_next = False
        self._keys: KeyOrder | None = KeyOrder() if is_ordered else None

    def add(self, delivery: Delivery) -> None:
        """Add a message that was just read."""
        self._fresh.append(delivery)
        self.buffered_bytes += delivery.size_bytes

    def next(self, now_s: float) -> Delivery | None:
        """The message to attempt now, counted as in flight. None if there is none, or no room."""
        if self.inflight >= self.window:
            return None
        fresh, waiting = self._fresh, self._waiting
        if not waiting and self._keys is None:
            # The usual case, without the calls below.
            if not fresh or self.inflight + self.buried >= self.waiting_max:
                return None
            self._retry_is_next = True
            self.inflight += 1
            return fresh.popleft()
        is_due = bool(waiting) and waiting[0][0] <= now_s
        if self._keys is not None:
            self._park(self._keys)
        is_fresh = bool(fresh) and not self.is_waiting_full
        if is_due and (not is_fresh or self._is_retrys_turn()):
            delivery = self._pop_waiting()
            self._retry_is_next = False
        elif is_fresh:
            delivery = fresh.popleft()
            self._retry_is_next = True
        else:
            return None
        self.inflight += 1
        return delivery

    def next_over(self, now_s: float, is_over: Callable[[Delivery], bool]) -> Delivery | None:
        """The retry that has been due for longest, if it is over. It counts as in flight, to be
        buried; the window does not matter.
        """
        if not self._waiting or self._waiting[0][0] > now_s or not is_over(self._waiting[0][2]):
            return None
        self.inflight += 1
        return self._pop_waiting()

    def wait(self, delivery: Delivery, due_s: float) -> None:
        """Queue a message in flight for its next attempt at `due_s`."""
        self._land(delivery)
        delivery.wait()
        self._sequence += 1
        heapq.heappush(self._waiting, (due_s, self._sequence, delivery))

    def remove(self, delivery: Delivery) -> None:
        """Drop a message in flight that is settled."""
        if delivery.is_retry or self._keys is not None:
            self._land(delivery)
            self._drop(delivery)
        else:
            self.inflight -= 1
            self.buffered_bytes -= delivery.size_bytes

    def let_go(self, delivery: Delivery) -> None:
        """Drop a message in flight whose partition was moved by a retransmission."""
        delivery.forgotten()
        self.remove(delivery)

    def bury(self, delivery: Delivery) -> None:
        """Give up a message in flight; `forget` follows when its dead letter is kept."""
        self._land(delivery)
        delivery.given_up()
        self.buried += 1

    def drop_superseded(self) -> None:
        """Drop the unsent and waiting messages of partitions that a retransmission has moved."""
        dropped = [] if self._keys is None else self._keys.drop(_is_superseded)
        dropped += (each for each in self._fresh if each.offsets.is_superseded)
        dropped += (each for _, _, each in self._waiting if each.offsets.is_superseded)
        self._fresh = deque(each for each in self._fresh if not each.offsets.is_superseded)
        self._waiting = [entry for entry in self._waiting if not entry[2].offsets.is_superseded]
        heapq.heapify(self._waiting)
        for delivery in dropped:
            delivery.forgotten()
            self._drop(delivery)

    def clear(self) -> None:
        """Drop all messages, because the consumer has ended; its gauges then show zero."""
        self._fresh.clear()
        self._waiting.clear()
        if self._keys is not None:
            self._keys.clear()
        self.inflight = self._inflight_retries = self.buffered_bytes = self.buried = 0

    @property
    def fresh(self) -> int:
        """The number of messages read and not dispatched."""
        return len(self._fresh)

    @property
    def waiting(self) -> int:
        """The number of messages waiting for their next attempt."""
        return len(self._waiting)

    @property
    def parked(self) -> int:
        """The number of messages parked behind an earlier one of their key."""
        return 0 if self._keys is None else self._keys.parked

    @property
    def is_waiting_full(self) -> bool:
        """True if no fresh message may be dispatched, as there would be no room for its retry."""
        held = len(self._waiting) + self.inflight + self.buried
        if self._keys is not None:
            held += self._keys.parked
        return held >= self.waiting_max

    @property
    def next_due_s(self) -> float:
        """When the next waiting message is due; infinity if none waits."""
        return self._waiting[0][0] if self._waiting else float("inf")

    def _pop_waiting(self) -> Delivery:
        delivery = heapq.heappop(self._waiting)[2]
        delivery.is_retry = True
        self._inflight_retries += 1
        return delivery

    def _is_retrys_turn(self) -> bool:
        share = self.window // 2
        if self._inflight_retries >= max(1, share):
            return False
        if self.inflight - self._inflight_retries >= max(1, self.window - share):
            return True
        return self._retry_is_next

    def _land(self, delivery: Delivery) -> None:
        self.inflight -= 1
        if delivery.is_retry:
            self._inflight_retries -= 1
            delivery.is_retry = False

    def _drop(self, delivery: Delivery) -> None:
        """Free the memory and the key of a finished message."""
        super()._drop(delivery)
        if self._keys is not None:
            following = self._keys.release(delivery)
            if following is not None:
                # It was read before all fresh messages.
                self._fresh.appendleft(following)

    def _park(self, keys: KeyOrder) -> None:
        """Park fresh messages whose key is held, up to the first that may be dispatched."""
        while self._fresh and not self.is_waiting_full and not keys.admit(self._fresh[0]):
            self._fresh.popleft().is_parked = True


def _is_superseded(delivery: Delivery) -> bool:
    return delivery.offsets.is_superseded
