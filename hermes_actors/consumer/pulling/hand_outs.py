"""The messages that clients have: their ack ids and deadlines. Pure: times are arguments.

An ack id says epoch, partition, offset, the consumer's life and a number. The epoch is that of the
owner's grant, so an id of an earlier owner is recognized. The life is drawn at random for each
start of the consumer, so an id of another subscription, or of the time before a restart, is too.
"""

import heapq
from math import ceil

from msgspec import Struct

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.model.pulling import RefusedAck, RefusedCode

_GRAIN_S = 0.1
_ACK_ID_CHARACTERS_MAX = 200


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
        parts = text.split(".") if len(text) <= _ACK_ID_CHARACTERS_MAX else ()
        if len(parts) != 5:
            return None
        epoch, partition, offset, life, number = parts
        if not all(
            each.isascii() and each.isdigit() for each in (epoch, partition, offset, number)
        ):
            return None
        return cls(int(epoch), int(partition), int(offset), life, int(number))


class HandOut(Struct, eq=False):
    """A message that a client has, until `tick`, a multiple of a tenth of a second."""

    delivery: Delivery
    ack_id: AckId
    tick: int = 0

    @property
    def until_s(self) -> float:
        """The deadline."""
        return self.tick * _GRAIN_S


class HandOuts:
    """All messages of one consumer that are with clients. Their number is bounded by its window."""

    def __init__(self, epoch: int, life: str) -> None:
        self._epoch = epoch
        self._life = life
        self._number = 0
        self._out: dict[int, HandOut] = {}
        # By deadline; the inner dictionaries serve as ordered sets.
        self._by_tick: dict[int, dict[HandOut, None]] = {}
        # The keys of `_by_tick`, and at most as many that have become empty.
        self._ticks: list[int] = []

    def __len__(self) -> int:
        return len(self._out)

    def add(self, delivery: Delivery, until_s: float) -> HandOut:
        """Note that a client gets the message, and has until then to acknowledge it."""
        self._number += 1
        record = delivery.record
        place = record.partition, record.offset
        out = HandOut(delivery, AckId(self._epoch, *place, self._life, self._number))
        self._out[self._number] = out
        self._place(out, until_s)
        return out

    def find(self, text: str) -> HandOut | RefusedAck:
        """The message of an ack id, or why the id is refused."""
        ack_id = AckId.parse(text)
        if ack_id is None:
            return RefusedAck.because(text[:_ACK_ID_CHARACTERS_MAX], RefusedCode.UNKNOWN)
        if ack_id.epoch != self._epoch:
            return RefusedAck.because(text, RefusedCode.STALE)
        out = self._out.get(ack_id.number)
        if out is None or out.ack_id != ack_id:
            is_ours = ack_id.life == self._life
            return RefusedAck.because(text, RefusedCode.NOT_OUT if is_ours else RefusedCode.STALE)
        return out

    def remove(self, out: HandOut) -> None:
        """Forget a message: it is acknowledged, given back or overdue."""
        del self._out[out.ack_id.number]
        self._displace(out)

    def extend(self, out: HandOut, until_s: float) -> None:
        """Replace the deadline of a message."""
        self._displace(out)
        self._place(out, until_s)

    def overdue(self, now_s: float, most: int) -> list[HandOut]:
        """Remove and return messages whose deadline has passed, at most so many."""
        found: list[HandOut] = []
        while len(found) < most and self.next_s <= now_s:
            of_tick = self._by_tick[self._ticks[0]]
            for out in list(of_tick)[: most - len(found)]:
                self.remove(out)
                found.append(out)
        return found

    @property
    def next_s(self) -> float:
        """The earliest deadline; infinity if no message is out."""
        ticks = self._ticks
        while ticks and ticks[0] not in self._by_tick:
            heapq.heappop(ticks)
        return ticks[0] * _GRAIN_S if ticks else float("inf")

    def clear(self) -> None:
        """Forget all messages."""
        self._out.clear()
        self._by_tick.clear()
        self._ticks.clear()

    def _place(self, out: HandOut, until_s: float) -> None:
        out.tick = ceil(until_s / _GRAIN_S)
        of_tick = self._by_tick.get(out.tick)
        if of_tick is None:
            of_tick = self._by_tick[out.tick] = {}
            if len(self._ticks) > 2 * len(self._by_tick) + 16:
                # Sorted, so it is a heap.
                self._ticks = sorted(self._by_tick)
            else:
                heapq.heappush(self._ticks, out.tick)
        of_tick[out] = None

    def _displace(self, out: HandOut) -> None:
        of_tick = self._by_tick[out.tick]
        del of_tick[out]
        if not of_tick:
            del self._by_tick[out.tick]
