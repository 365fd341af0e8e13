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
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.consumer.delivery.delivery import Batch, Buffer, Delivery
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import Message, UndecodableRecord, enveloped
from hermes_actors.model.subscription import BatchBody, BatchPolicy

ARRAY_BYTES = 2
"""The brackets of an array."""

_MESSAGE_ID = "messageId"
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class _Element(Struct, eq=False):
    """A message with the time of its reading, and what it is in the open batch."""

    delivery: Delivery
    read_s: float
    data: bytes = b""


class BatchAssembly(Buffer):
    """All messages of one consumer that are not settled; the consumer reads into it.

    `render` makes a message an element and raises UndecodableRecord for one that cannot be.
    `size_max`, set by its user, is how many messages a batch may hold.
    """

    def __init__(
        self,
        policy: BatchPolicy,
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
        self._policy = policy
        self.size_max = policy.batch_size
        self._render = render
        self._now_s = now_s
        self._bytes_max = bytes_max
        self._queue: deque[_Element] = deque()
        self._open: list[_Element] = []
        self._open_bytes = 0
        # The next message does not fit in.
        self._is_closed = False
        self.current: Batch | None = None

    def add(self, delivery: Delivery) -> None:
        """Queue a message that has been read."""
        self._queue.append(_Element(delivery, self._now_s()))
        self.buffered_bytes += delivery.size_bytes

    @property
    def fresh(self) -> int:
        """How many messages have been read and have no place in a batch yet."""
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """How many messages wait for the next attempt at their batch."""
        current = self.current
        return 0 if current is None or self.inflight else len(current.deliveries)

    # Assembling.

    @property
    def is_full(self) -> bool:
        """True when the open batch takes no more."""
        # A comma and a digit would have to fit.
        is_out_of_bytes = ARRAY_BYTES + self._open_bytes + 2 > self._policy.batch_volume
        is_complete = self._is_closed or len(self._open) >= self.size_max or is_out_of_bytes
        return bool(self._open) and is_complete

    @property
    def can_fill(self) -> bool:
        """True when `fill` has something to do."""
        return bool(self._queue) and not self.is_full and self.buried < self.waiting_max

    def fill(self, count_max: int, give_up: Callable[[Delivery, DiscardReason, str], None]) -> None:
        """Take up to `count_max` messages into the open batch. What fits into none counts as
        buried, and `give_up` is called with why.
        """
        for _ in range(count_max):
            if not self.can_fill:
                return
            element, problem = self._queue[0], None
            if not element.data:
                try:
                    element.data = self._render(element.delivery, self._policy.body)
                except UndecodableRecord as error:
                    problem = DiscardReason.UNDECODABLE, str(error)
            size_bytes, volume_bytes = len(element.data), self._policy.batch_volume
            grown_bytes = self._open_bytes + bool(self._open) + size_bytes
            if ARRAY_BYTES + size_bytes > volume_bytes:
                detail = f"{size_bytes} bytes do not fit into a batchVolume of {volume_bytes}"
                problem = DiscardReason.TOO_LARGE, detail
            if problem is not None:
                self._queue.popleft()
                element.delivery.given_up()
                self.buried += 1
                give_up(element.delivery, *problem)
            elif ARRAY_BYTES + grown_bytes > volume_bytes:
                self._is_closed = True
            else:
                self._open_bytes = grown_bytes
                self._open.append(self._queue.popleft())
                element.delivery.taken_up_s = element.read_s

    @property
    def ready_s(self) -> float:
        """When the open batch may be sent; infinity while there is none."""
        if not self._open:
            return float("inf")
        if self.is_full or (not self._queue and self.buffered_bytes >= self._bytes_max):
            return float("-inf")
        return self._open[0].read_s + self._policy.batch_time / 1_000

    @property
    def due(self) -> tuple[float, int]:
        """When the next attempt may be made, of the current batch or of the open one, and how many
        messages it has; infinity while one is under way or there is none.
        """
        if self.current is None:
            return self.ready_s, len(self._open)
        return (float("inf") if self.inflight else self.current.due_s), len(self.current.deliveries)

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

    def wait(self, what: Batch, due_s: float) -> None:
        """Let it wait until `due_s` for its next attempt."""
        self.inflight = 0
        what.due_s = due_s
        for each in what.deliveries:
            each.wait()

    def remove(self, what: Batch) -> None:
        """Drop it: its messages are settled, and need nothing more."""
        self._end_current()
        for each in what.deliveries:
            self._drop(each)

    def bury(self, what: Batch) -> None:
        """Give it up; `forget` follows for each of its messages."""
        self._end_current()
        for each in what.deliveries:
            each.given_up()
        self.buried += len(what.deliveries)

    def let_go(self, what: Batch) -> None:
        """Make it anew: its messages come again in batches as they are to be now."""
        self._end_current()
        self._dissolve(what.deliveries)

    def change(self, policy: BatchPolicy) -> None:
        """Use another policy from now on; new limits batch the waiting messages anew."""
        before, self._policy = self._policy, policy
        self.size_max = policy.batch_size
        if (before.batch_size, before.batch_volume, before.body) != (
            policy.batch_size,
            policy.batch_volume,
            policy.body,
        ):
            self._make_anew()

    def drop_superseded(self) -> None:
        """Forget the waiting messages of partitions that a retransmission has moved."""
        current = [] if self.current is None else self.current.deliveries
        read = (element.delivery for element in chain(self._open, self._queue))
        if any(each.is_superseded for each in chain(current, read)):
            self._make_anew()

    def clear(self) -> None:
        """Forget all messages: the consumer has ended, and who still shows it shows nothing."""
        self._queue.clear()
        self._forget_open()
        self._end_current()
        self.buffered_bytes = self.buried = 0

    def _make_anew(self) -> None:
        current = self.current
        if current is not None and self.inflight:
            # It is let go when it has failed: what is in flight cannot be changed.
            current.is_superseded = True
            self._dissolve([])
        elif current is not None:
            self.let_go(current)
        else:
            self._dissolve([])

    def _dissolve(self, again: Sequence[Delivery]) -> None:
        """Put the messages of an ended batch and of the open one in front of the queue again, but
        for those that a retransmission has moved.
        """
        for delivery in again:
            delivery.returned()
        elements = [_Element(each, each.taken_up_s or 0.0) for each in again]
        elements += chain(self._open, self._queue)
        self._forget_open()
        self._queue = deque()
        for element in elements:
            element.data = b""
            if element.delivery.is_superseded:
                element.delivery.forgotten()
                self._drop(element.delivery)
            else:
                self._queue.append(element)

    def _end_current(self) -> None:
        self.current = None
        self.inflight = 0

    def _forget_open(self) -> None:
        self._open = []
        self._open_bytes = 0
        self._is_closed = False


def element_of(message: Message, form: BatchBody) -> bytes:
    """The message as an element of a batch. Raises UndecodableRecord if its body is not JSON."""
    body = b"null" if message.is_tombstone else message.body
    require_json(body)
    if form is BatchBody.MESSAGES:
        return body
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
