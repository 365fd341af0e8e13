"""The messages that clients have: their ack ids and deadlines. Pure: times are arguments.

An ack id says epoch, partition, offset, the consumer's life and a number. The epoch is that of the
owner's grant, so an id of an earlier owner is recognized. The life is drawn at random for each
start of the consumer, so an id of another subscription, or of the time before a restart, is too.
"""

import heapq
import re

from msgspec import Struct

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.model.pulling import RefusedAck, refused

_ACK_ID = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})\.([0-9]{1,20})\.([0-9a-f]{16})\.([0-9]{1,20})")
_SHOWN_MAX = 200
_STALE_MAX = 100


class AckId(Struct, frozen=True):
    """The parts of an ack id."""

    epoch: int
    partition: int
    offset: int
    life: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.partition}.{self.offset}.{self.life}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> "AckId | None":
        """The parts of the text; None if it is no ack id."""
        found = _ACK_ID.fullmatch(text)
        if found is None:
            return None
        epoch, partition, offset, life, number = found.groups()
        return cls(int(epoch), int(partition), int(offset), life, int(number))


class HandOut(Struct, eq=False):
    """A message that a client has until its deadline. Times are monotonic seconds."""

    delivery: Delivery
    ack_id: AckId
    until_s: float


class HandOuts:
    """All messages of one consumer that are with clients. Their number is bounded by its window."""

    def __init__(self, epoch: int, life: str) -> None:
        self._epoch = epoch
        self._life = life
        self._number = 0
        self._out: dict[int, HandOut] = {}
        # Deadlines with numbers. Settled messages, and earlier deadlines, stay for a while.
        self._deadlines: list[tuple[float, int]] = []

    def add(self, delivery: Delivery, until_s: float) -> HandOut:
        """Note that a client gets the message, and has until then to acknowledge it."""
        self._number += 1
        record = delivery.record
        ack_id = AckId(self._epoch, record.partition, record.offset, self._life, self._number)
        out = self._out[self._number] = HandOut(delivery, ack_id, until_s)
        self.extend(out, until_s)
        return out

    def find(self, text: str) -> HandOut | RefusedAck:
        """The message of an ack id, or why the id is refused."""
        ack_id = AckId.parse(text)
        if ack_id is None:
            return refused(text[:_SHOWN_MAX], "UNKNOWN")
        if (ack_id.epoch, ack_id.life) != (self._epoch, self._life):
            return refused(text, "STALE")
        out = self._out.get(ack_id.number)
        return out if out is not None and out.ack_id == ack_id else refused(text, "NOT_OUT")

    def remove(self, out: HandOut) -> None:
        """Forget a message: it is acknowledged, given back or overdue."""
        del self._out[out.ack_id.number]

    def extend(self, out: HandOut, until_s: float) -> None:
        """Replace the deadline of a message."""
        out.until_s = until_s
        heapq.heappush(self._deadlines, (until_s, out.ack_id.number))
        if len(self._deadlines) > 2 * len(self._out) + _STALE_MAX:
            # Sorted, so it is a heap.
            self._deadlines = sorted((each.until_s, n) for n, each in self._out.items())

    def overdue(self, now_s: float, most: int) -> list[HandOut]:
        """Remove and return messages whose deadline has passed, at most so many."""
        found: list[HandOut] = []
        while len(found) < most and self.next_s <= now_s:
            found.append(self._out.pop(heapq.heappop(self._deadlines)[1]))
        return found

    @property
    def next_s(self) -> float:
        """The earliest deadline; infinity if no message is out."""
        while self._deadlines:
            until_s, number = self._deadlines[0]
            out = self._out.get(number)
            if out is not None and out.until_s == until_s:
                return until_s
            heapq.heappop(self._deadlines)
        return float("inf")

    def clear(self) -> None:
        """Forget all messages."""
        self._out.clear()
        self._deadlines.clear()
