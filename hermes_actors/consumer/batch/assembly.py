"""The assembly of batches: full ones are ready at once, others when their time has come. Pure.

Messages go through in the order in which they were read: queue → open batch → the current batch,
the only one that is sent or waits for its retry. A batch holds messages of all partitions. Nothing
overtakes, so the order of a partition holds over any number of retries.

A batch's body is a JSON array that is valid whatever its messages hold. The elements are Hermes'
envelopes, which carry each message's id, or the bare messages. Bodies go in as they were published,
byte for byte, so a body is looked through before: one that is not JSON would break the array for
all others.
"""

import json
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.consumer.delivery.delivery import Batch, Buffer, Delivery
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import Message, UndecodableRecord, enveloped
from hermes_actors.model.subscription import BatchBody

ARRAY_BYTES = 2
"""The brackets of an array."""

_MESSAGE_ID = "messageId"
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class Bounds(Struct, frozen=True):
    """When a batch is complete. `volume_bytes` counts the body, brackets and commas included."""

    size: int
    time_s: float
    volume_bytes: int
    body: BatchBody


class GivenUp(Struct, frozen=True):
    """A message that fits into no batch, or whose batch was given up, for its dead letter."""

    delivery: Delivery
    reason: DiscardReason
    detail: str
    attempts: int = 0
    status: int = 0


class _Element(Struct, eq=False):
    """A message with the time of its reading, and what it is in the open batch."""

    delivery: Delivery
    read_s: float
    data: bytes = b""


class BatchAssembly(Buffer):
    """All messages of one consumer that are not settled; the consumer reads into it.

    `render` makes a message an element and raises UndecodableRecord for one that cannot be.
    """

    def __init__(
        self,
        bounds: Bounds,
        render: Callable[[Delivery, BatchBody], bytes],
        now_s: Callable[[], float],
        *,
        bytes_max: int,
        buried_max: int,
    ) -> None:
        """A batch is also complete when `bytes_max` are held, for then nothing more is read. With
        `buried_max` given up and not let go, nothing more is taken up.
        """
        super().__init__(buried_max)
        self._bounds = bounds
        self._render = render
        self._now_s = now_s
        self._bytes_max = bytes_max
        self._queue: deque[_Element] = deque()
        self._open: list[_Element] = []
        self._open_bytes = 0
        # The next message does not fit in.
        self._is_closed = False
        self.current: Batch | None = None
        self._size_max = bounds.size

    # What reading and the actor ask.

    def add(self, delivery: Delivery) -> None:
        """Queue a message that has been read."""
        self._queue.append(_Element(delivery, self._now_s()))
        self.buffered_bytes += delivery.size_bytes

    @property
    def window(self) -> int:
        """How many messages may be in flight."""
        return min(self._bounds.size, self._size_max)

    @property
    def fresh(self) -> int:
        """How many messages have been read and have no place in a batch yet."""
        return len(self._queue)

    @property
    def gathered(self) -> int:
        """How many messages the open batch holds."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """How many messages wait for the next attempt at their batch."""
        current = self.current
        return 0 if current is None or self.inflight else len(current.deliveries)

    # Assembling.

    @property
    def is_full(self) -> bool:
        """True when the open batch takes no more."""
        if not self._open:
            return False
        bounds = self._bounds
        # A comma and a digit would have to fit.
        is_out_of_bytes = ARRAY_BYTES + self._open_bytes + 2 > bounds.volume_bytes
        return self._is_closed or len(self._open) >= self.window or is_out_of_bytes

    @property
    def can_fill(self) -> bool:
        """True when `fill` has something to do."""
        return bool(self._queue) and not self.is_full and self.buried < self.waiting_max

    def fill(self, count_max: int) -> list[GivenUp]:
        """Take up to `count_max` messages into the open batch; what fits into none is returned,
        and counts as buried.
        """
        rejected: list[GivenUp] = []
        for _ in range(count_max):
            if not self.can_fill:
                break
            problem = self._admit(self._queue[0])
            if problem is not None:
                self._queue.popleft()
                problem.delivery.given_up()
                self.buried += 1
                rejected.append(problem)
        return rejected

    def _admit(self, element: _Element) -> GivenUp | None:
        """Take one in, or close the open batch before it; else return why it fits into none."""
        delivery, bounds = element.delivery, self._bounds
        if not element.data:
            try:
                element.data = self._render(delivery, bounds.body)
            except UndecodableRecord as error:
                return GivenUp(delivery, DiscardReason.UNDECODABLE, str(error))
        size_bytes = len(element.data)
        if ARRAY_BYTES + size_bytes > bounds.volume_bytes:
            detail = f"{size_bytes} bytes do not fit into a batchVolume of {bounds.volume_bytes}"
            return GivenUp(delivery, DiscardReason.TOO_LARGE, detail)
        grown_bytes = self._open_bytes + bool(self._open) + size_bytes
        if ARRAY_BYTES + grown_bytes > bounds.volume_bytes:
            self._is_closed = True
            return None
        self._open_bytes = grown_bytes
        self._open.append(self._queue.popleft())
        delivery.taken_up_s = element.read_s
        return None

    @property
    def ready_s(self) -> float:
        """When the open batch may be sent; infinity while there is none."""
        if not self._open:
            return float("inf")
        if self.is_full or (not self._queue and self.buffered_bytes >= self._bytes_max):
            return float("-inf")
        return self._open[0].read_s + self._bounds.time_s

    def close(self, batch_id: str, now_s: float) -> Batch:
        """Make the open batch the current one and return it."""
        assert self.current is None, "one batch at a time"
        assert self._open, "a batch holds a message at least"
        deliveries = [element.delivery for element in self._open]
        body = array_of([element.data for element in self._open])
        self.current = Batch(batch_id, deliveries, body, now_s)
        self._forget_open()
        return self.current

    # What becomes of the current batch.

    def settle(self) -> None:
        """Settle the current batch: its messages need nothing more."""
        for delivery in self._end_current():
            delivery.settled()
            self.buffered_bytes -= delivery.size_bytes

    def bury(self) -> None:
        """Give the current batch up; `forget` follows for each of its messages."""
        for delivery in self._end_current():
            delivery.given_up()
            self.buried += 1

    def dissolve(self) -> None:
        """Make the current batch, which is not in flight, and the open one anew: their messages lie
        in front of the queue again, but for those that a retransmission has moved.
        """
        again = [] if self.current is None else self._end_current()
        for delivery in again:
            delivery.returned()
        elements = deque(_Element(each, each.taken_up_s or 0.0) for each in again)
        for element in chain(self._open, self._queue):
            element.data = b""
            elements.append(element)
        self._forget_open()
        self._queue = deque()
        for element in elements:
            if element.delivery.is_superseded:
                element.delivery.forgotten()
                self.buffered_bytes -= element.delivery.size_bytes
            else:
                self._queue.append(element)

    def change(self, bounds: Bounds) -> None:
        """Use other bounds from now on, also for what waits."""
        if bounds == self._bounds:
            return
        is_other = (bounds.size, bounds.volume_bytes, bounds.body) != (
            self._bounds.size,
            self._bounds.volume_bytes,
            self._bounds.body,
        )
        self._bounds = bounds
        if is_other:
            self._make_anew()

    def cap(self, size_max: int) -> None:
        """Put no more messages than this into later batches. What waits for a retry stays as it
        is.
        """
        self._size_max = size_max

    def drop_superseded(self) -> None:
        """Forget what waits of partitions that a retransmission has taken elsewhere."""
        current = [] if self.current is None else self.current.deliveries
        read = (element.delivery for element in chain(self._open, self._queue))
        if any(each.offsets.is_superseded for each in chain(current, read)):
            self._make_anew()

    def clear(self) -> None:
        """Forget all messages: the consumer has ended, and who still shows it shows nothing."""
        self._queue.clear()
        self._forget_open()
        self.current = None
        self.inflight = self.buffered_bytes = self.buried = 0

    def _make_anew(self) -> None:
        current = self.current
        if current is not None and self.inflight:
            # When it has failed, it is dissolved: what is in flight cannot be changed.
            current.is_outdated = True
            self.current = None
            self.dissolve()
            self.current = current
        else:
            self.dissolve()

    def _end_current(self) -> list[Delivery]:
        assert self.current is not None, "there is a current batch"
        deliveries = self.current.deliveries
        self.current = None
        return deliveries

    def _forget_open(self) -> None:
        self._open = []
        self._open_bytes = 0
        self._is_closed = False


def element_of(message: Message, form: BatchBody) -> bytes:
    """The message as an element of a batch. Raises UndecodableRecord if its body is not JSON."""
    require_json(message.body)
    if form is BatchBody.MESSAGES:
        return message.body
    if message.propagated:
        # The publisher's headers bring the id with them, as in Hermes, and only they do.
        message = replace(message, propagated=(*message.propagated, (_MESSAGE_ID, message.id)))
    return enveloped(message)


def array_of(elements: list[bytes]) -> bytes:
    """Return the body of a batch with these elements."""
    return b"[" + b",".join(elements) + b"]"


def require_json(body: bytes) -> None:
    """Raise UndecodableRecord unless the body is one JSON value in UTF-8.

    The common case is one pass over the bytes that makes no objects.
    """
    try:
        text = None if body.isascii() else body.decode()
        try:
            _skim(body)
        except msgspec.DecodeError:
            # Stricter than JSON: it takes no half of a surrogate pair, which subscribers may.
            json.loads(text or body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"the message is not JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")
