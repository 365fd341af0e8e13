"""Assembles batches: a full one is ready at once, others after their time. Pure.

Messages keep the order in which they were read: queue → open batch → current batch, the only one
that is sent or retried. A batch holds messages of all partitions. No message overtakes another, so
the order of a partition holds over any number of retries.

A batch's body is a JSON array. Its elements are Hermes' envelopes, which carry each message's id,
or the bare messages. Bodies go in byte for byte, so each is validated first: one that is not JSON
would break the array for all others.
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
    """A message, when it was read, and its bytes in the open batch."""

    delivery: Delivery
    read_s: float
    data: bytes = b""


class BatchAssembly(Buffer):
    """All unsettled messages of one consumer.

    `render` makes a message an element; it raises UndecodableRecord if it cannot. `size_max`, set
    by the user, is how many messages a batch may hold.
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
        """A batch is also complete when `bytes_max` are buffered, because then reading stops. While
        `buried_max` messages are buried, nothing more is dispatched.
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
        # True if the next message does not fit.
        self._is_closed = False
        self.current: Batch | None = None

    def add(self, delivery: Delivery) -> None:
        """Queue a message that was read."""
        self._queue.append(_Element(delivery, self._now_s()))
        self.buffered_bytes += delivery.size_bytes

    @property
    def fresh(self) -> int:
        """The number of messages read and not in a batch yet."""
        return len(self._queue)

    @property
    def waiting(self) -> int:
        """The number of messages waiting for their batch's next attempt."""
        current = self.current
        return 0 if current is None or self.inflight else len(current.deliveries)

    # Assembly.

    @property
    def is_full(self) -> bool:
        """True if the open batch takes no more messages."""
        # A further element needs at least a comma and a digit.
        is_out_of_bytes = ARRAY_BYTES + self._open_bytes + 2 > self._policy.batch_volume
        is_complete = self._is_closed or len(self._open) >= self.size_max or is_out_of_bytes
        return bool(self._open) and is_complete

    @property
    def can_fill(self) -> bool:
        """True if `fill` has something to do."""
        return bool(self._queue) and not self.is_full and self.buried < self.waiting_max

    def fill(self, count_max: int, give_up: Callable[[Delivery, DiscardReason, str], None]) -> None:
        """Take up to `count_max` messages into the open batch. A message that fits into no batch
        counts as buried, and `give_up` is called with the reason.
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
        """When the open batch may be sent; infinity if there is none."""
        if not self._open:
            return float("inf")
        if self.is_full or (not self._queue and self.buffered_bytes >= self._bytes_max):
            return float("-inf")
        return self._open[0].read_s + self._policy.batch_time / 1_000

    @property
    def due(self) -> tuple[float, int]:
        """When the current or open batch may be attempted, and its number of messages. Infinity if
        an attempt is under way or there is no batch.
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

    # The end of the current batch.

    def wait(self, what: Batch, due_s: float) -> None:
        """Keep it for its next attempt at `due_s`."""
        self.inflight = 0
        what.due_s = due_s
        for each in what.deliveries:
            each.wait()

    def remove(self, what: Batch) -> None:
        """Drop it: its messages are settled."""
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
        """Dissolve it; its messages go into new batches."""
        self._end_current()
        self._dissolve(what.deliveries)

    def change(self, policy: BatchPolicy) -> None:
        """Use another policy from now on. Changed limits dissolve the waiting batches."""
        before, self._policy = self._policy, policy
        self.size_max = policy.batch_size
        if (before.batch_size, before.batch_volume, before.body) != (
            policy.batch_size,
            policy.batch_volume,
            policy.body,
        ):
            self._make_anew()

    def drop_superseded(self) -> None:
        """Drop the waiting messages of partitions that a retransmission has moved."""
        current = [] if self.current is None else self.current.deliveries
        read = (element.delivery for element in chain(self._open, self._queue))
        if any(each.is_superseded for each in chain(current, read)):
            self._make_anew()

    def clear(self) -> None:
        """Drop all messages, because the consumer has ended; its gauges then show zero."""
        self._queue.clear()
        self._forget_open()
        self._end_current()
        self.buffered_bytes = self.buried = 0

    def _make_anew(self) -> None:
        current = self.current
        if current is not None and self.inflight:
            # What is in flight cannot be changed; the batch is dissolved when the attempt has
            # failed.
            current.is_superseded = True
            self._dissolve([])
        elif current is not None:
            self.let_go(current)
        else:
            self._dissolve([])

    def _dissolve(self, again: Sequence[Delivery]) -> None:
        """Put the messages of the ended and the open batch back at the front of the queue, except
        those that a retransmission has moved.
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
        # As in Hermes, the id is added only if there are publisher's headers.
        message = replace(message, propagated=(*message.propagated, (_MESSAGE_ID, message.id)))
    return enveloped(message)


def array_of(elements: list[bytes]) -> bytes:
    """The body of a batch with these elements."""
    return b"[" + b",".join(elements) + b"]"


def require_json(body: bytes) -> None:
    """Raise UndecodableRecord unless the body is one JSON value in UTF-8.

    Usually this is one pass over the bytes that creates no objects.
    """
    try:
        text = None if body.isascii() else body.decode()
        try:
            _skim(body)
        except msgspec.DecodeError:
            # msgspec is stricter than JSON: it rejects half a surrogate pair, which subscribers may
            # accept.
            json.loads(text or body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"the message is not JSON: {error}") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")
