"""One batch: its messages are published as they arrive, and each is answered with a line, in order.

Nothing here waits, and everything under way is bounded: the unread answers of a client, the
messages of each topic, the bytes of the node. When a bound is reached, the body is not read
further, so the connection holds the publisher back (back-pressure).
"""

from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.model.message import Message, trace_of
from hermes_actors.model.messages import MessageRun
from hermes_actors.model.partitioner import partition_of
from hermes_actors.publisher.answers import too_long_for_topic
from hermes_actors.publisher.batches.forms import ANSWERS, Form, Parcel
from hermes_actors.publisher.batches.room import Need, Room
from hermes_actors.publisher.batches.slices import LINE_BYTES, Slice, end_line
from hermes_actors.publisher.edges.edge import Edge, Exchange, Line
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Pending, Route
from hermes_actors.schema.loop_limits import UNITS_MAX
from hermes_actors.schema.validation import BodyHead, Checked
from hermes_actors.security.account import Account

TURN_BYTES = 4_096
"""After this much of a batch, in pieces of any size, other tasks get their turn of the loop."""
_PIECE_BYTES = 512
"""Each piece counts at least this much: it is appended to the message received so far, however
small it is.
"""
_SLICE_MESSAGES_MAX = 1_000
"""Limited so that the first answers go out while the rest of a piece is still parsed."""
_TOO_COSTLY = Refused(
    "Message is too large, or its topic's schema too costly, to be checked within a batch; "
    "publish it by itself"
)


class BatchRequest(Struct, frozen=True):
    """The head of a batch. `key` is for messages that have none, `common` is the template for all
    messages, and `body_head` says how to read their bodies.
    """

    route: Route
    form: Form
    key: bytes | None
    account: Account | None
    common: Message
    body_head: BodyHead


class BatchExchange(Exchange):
    """One request. `closed` is called at its end.

    Reading and answering are independent except for the bounds: a publisher that writes everything
    before it reads gets as far as they allow.
    """

    def __init__(
        self,
        request: BatchRequest,
        line: Line,
        edge: Edge,
        gateway: Gateway,
        room: Room,
        closed: Callable[["BatchExchange"], None],
    ) -> None:
        self.route = request.route
        self._request = request
        self._form = request.form
        self._line = line
        self._edge = edge
        self._gateway = gateway
        self._room = room
        self._closed = closed
        self._config: FrontendConfig = edge.config
        self._idle_s = self._config.batch_idle_timeout_ms / 1_000
        self._trace = trace_of(request.common)
        self._since_s = edge.now_s
        # Received but not parsed yet, and the amount parsed in this turn of the loop.
        self._rest = b""
        self._taken_bytes = self._unread_bytes = 0
        # Parsed, next to be handed over, and handed over.
        self._parcels: deque[Parcel] = deque()
        self._next: tuple[Parcel, Need] | None = None
        self._slices: deque[Slice] = deque()
        self._owed_bytes = 0
        self._last_line = b""
        # The body is complete; no more of it is accepted; the publisher has gone; it is closed.
        self._is_read = self._is_over = self._is_left = self._is_closed = False
        self._is_held = self._is_woken = False
        line.begin(200, [(b"content-type", ANSWERS.encode())])

    # The line.

    def data(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._since_s = self._edge.now_s
        if not self._is_over:
            self._rest += piece
            self._go_on()

    def end(self) -> None:
        """Take the end of the body."""
        self._is_read = True
        self._go_on()

    def gone(self) -> None:
        """The client has gone: messages received so far are stored, but not answered."""
        self._is_over = self._is_left = True
        self._slices.clear()
        self._go_on()

    def sent(self) -> None:
        """The client has read everything that was written: continue."""
        self._since_s = self._edge.now_s
        self._wake()

    def sweep(self, now_s: float) -> None:
        """End the batch if its publisher has done nothing for `batch_idle_timeout_ms`."""
        unread_bytes = self._line.unread_bytes
        if unread_bytes != self._unread_bytes or (self._is_held and not self._line.is_paused):
            # The client reads, however slowly, or the batch waits for the log.
            self._unread_bytes, self._since_s = unread_bytes, now_s
        elif now_s > self._since_s + self._idle_s:
            if self._line.is_paused:
                self._line.abort()
            elif not self._is_read:
                self.stop(
                    Refused(
                        f"No more of the body arrived for {self._idle_s:g} s: lines after this "
                        "were not read",
                        ErrorCode.TIMEOUT,
                    )
                )

    def stop(self, error: HermesError) -> None:
        """Read no further. The messages read so far are answered, and the last line gives the
        reason.
        """
        if not self._is_over:
            self._is_over = True
            self._last_line = end_line(error)
            self._wake()

    # Progress.

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._edge.host.soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_woken = False
        self._taken_bytes = 0
        self._go_on()

    def _go_on(self) -> None:
        if self._is_closed:
            return
        may_read = self._take()
        if self._is_left:
            if may_read:
                self._close()
            return
        self._write()
        if self._is_held is may_read and not self._is_closed:
            self._is_held = not may_read
            if may_read:
                self._line.release()
            else:
                self._line.hold()

    def _take(self) -> bool:
        """Parse as much as this turn allows. True if more of the body may be read."""
        while self._hand_over_read():
            if self._is_over:
                return True
            if self._rest:
                if self._taken_bytes >= TURN_BYTES:
                    self._wake()
                    return False
                size = self._form.splitter.size_at_once(self._rest)
                piece, self._rest = self._rest[:size], self._rest[size:]
                self._taken_bytes += max(size, _PIECE_BYTES)
                self._add(self._form.feed(piece))
            elif self._is_read:
                self._add(self._form.finish())
                self._is_over = True
            else:
                return True
        return False

    def _add(self, parcel: Parcel) -> None:
        if parcel.bodies:
            self._parcels.append(parcel)
        if failure := self._form.splitter.failure:
            self.stop(Refused(failure[0].upper() + failure[1:]))

    def _hand_over_read(self) -> bool:
        """Hand over parsed messages while there is room. True if there is room for more."""
        while self._may_owe():
            if self._next is None and not self._parcels:
                return True
            parcel, need = self._next = self._next or self._cut()
            if not self._room.take(need):
                return False
            self._next = None
            self._send(parcel, need)
            if self.route.validate is not None:
                # The topic's schema has checked it, which takes time: others get their turn of the
                # loop.
                self._wake()
                return False
        return False

    def _may_owe(self) -> bool:
        owed_bytes = self._owed_bytes + self._line.unread_bytes
        return self._is_left or owed_bytes < self._config.batch_answer_bytes_max

    def _close(self) -> None:
        self._is_closed = self._is_over = True
        self._parcels.clear()
        if self._next is not None:
            self._room.leave(self._next[1])
        self._closed(self)

    def _write(self) -> None:
        """Write the lines that are due, and end the answer after the last."""
        line, lines, size_bytes = self._line, list[bytes](), 0
        if line.is_paused:
            return
        was_full = not self._may_owe()
        while (
            self._slices and not self._slices[0].left and size_bytes < self._config.batch_bytes_max
        ):
            due = self._slices.popleft()
            lines.append(due.lines(self.route.name))
            self._owed_bytes -= len(due.ids) * LINE_BYTES
            size_bytes += len(lines[-1])
        is_answered = self._is_over and not (self._slices or self._parcels or self._next)
        if is_answered and self._last_line:
            lines.append(self._last_line)
            self._last_line = b""
        if lines:
            line.write(b"".join(lines))
        if is_answered and not line.is_paused:
            self._close()
            line.finish()
        elif lines and (was_full or (self._slices and not self._slices[0].left)):
            # There is room for more answers again, or more are due.
            self._wake()

    # Slices.

    def _cut(self) -> tuple[Parcel, Need]:
        """Cut the next slice off the parsed messages."""
        parcel = self._parcels[0]
        count = min(len(parcel.bodies), self._config.batch_records_max, _SLICE_MESSAGES_MAX)
        while count > 1 and parcel.size_of_first(count) > self._config.batch_bytes_max:
            count //= 2
        count = self._affordable(parcel, count)
        if count == len(parcel.bodies):
            self._parcels.popleft()
        else:
            self._parcels[0] = parcel.at(range(count, len(parcel.bodies)))
            parcel = parcel.at(range(count))
        return parcel, Need(self.route, count, parcel.size_of_first(count), self._wake)

    def _affordable(self, parcel: Parcel, count: int) -> int:
        """How many of these messages their schema may check in one turn; at least one."""
        validate, left = self.route.validate, UNITS_MAX
        if validate is not None:
            for at, body in enumerate(parcel.bodies[:count]):
                units = validate.units(body)
                # A message that is too costly is refused unchecked.
                left -= units if units <= UNITS_MAX else 0
                if left < 0 and at:
                    return at
        return count

    def _send(self, parcel: Parcel, need: Need) -> None:
        """Hand a slice over; its room is released when it has been answered."""
        room = self._room
        count = len(parcel.bodies)
        gateway, measures = self._gateway, self.route.measures
        measures.requested(count)
        made = gateway.ids.message_ids(count)
        if parcel.ids:
            made = [own or new for own, new in zip(parcel.ids, made, strict=True)]
        parcel.ids = made
        if parcel.keys is not None:
            parcel.keys = [self._request.key if key is None else key for key in parcel.keys]
        at_ms = gateway.clock.now_ms()
        self._refuse_large(parcel)
        self._refuse_unfit(parcel, at_ms)
        for error in parcel.refused.values():
            measures.answered(error.status, 1)

        def done() -> None:
            room.leave(need)
            self._wake()

        part = Slice(parcel.ids, parcel.refused, done)
        if not self._is_left:
            self._slices.append(part)
            self._owed_bytes += count * LINE_BYTES
        ways: list[tuple[Sequence[int] | None, Parcel]] = [(None, parcel)]
        if parcel.keys is not None or parcel.refused:
            ways = [(places, parcel.at(places)) for places in self._places(parcel)]
        self._hand_over(part, ways, at_ms)
        if not ways:
            done()

    def _hand_over(
        self, part: Slice, ways: list[tuple[Sequence[int] | None, Parcel]], at_ms: int
    ) -> None:
        """Give the messages to their topic's producer, grouped by partition."""
        gateway, route = self._gateway, self.route
        started_s = gateway.clock.monotonic_s()
        each: list[tuple[Pending, Sequence[Message]]] = []
        for places, parcel in ways:
            messages = self._messages(parcel, at_ms)
            first = messages[0]
            size = sum(map(len, parcel.bodies))
            pending = Pending(
                first.id,
                route,
                started_s,
                first.key,
                size,
                route.batch_limits,
                part.ended,
                count=len(messages),
                trace=self._trace,
            )
            part.parts.append((pending, places))
            each.append((pending, messages))
        part.left = len(each)
        gateway.begin(route, [pending for pending, _ in each])
        for pending, messages in each:
            end = gateway.hand_over_batch(self._request.account, pending, messages)
            if end is not None:
                self.stop(end)

    def _refuse_large(self, parcel: Parcel) -> None:
        """Refuse messages above the topic's size limit, if that limit is enforced."""
        if self._config.force_topic_max_message_size:
            topic = self.route.topic
            for at, body in enumerate(parcel.bodies):
                if len(body) > topic.max_message_size:
                    parcel.refused[at] = too_long_for_topic(len(body), topic)

    def _refuse_unfit(self, parcel: Parcel, at_ms: int) -> None:
        """Refuse messages that do not fit the topic's schema, and those too costly to check,
        because the rest of the batch must not wait for one message.

        A message that fits is replaced by the form in which it is stored.
        """
        validate = self.route.validate
        if validate is None:
            return
        grown_bytes = 0
        for at, message in enumerate(self._messages(parcel, at_ms)):
            if at in parcel.refused:
                continue
            outcome: Checked = _TOO_COSTLY
            if validate.units(message.body) <= UNITS_MAX:
                outcome = validate.check(message, self._request.body_head)
            if isinstance(outcome, HermesError):
                parcel.refused[at] = outcome
            elif outcome is not message:
                grown_bytes += max(0, len(outcome.body) - len(message.body))
                if grown_bytes > self._config.batch_bytes_max:
                    # The defaults that a schema fills in may be many times what was sent.
                    parcel.refused[at] = _TOO_COSTLY
                    continue
                if parcel.models is None:
                    parcel.models = [self._request.common] * len(parcel.bodies)
                parcel.bodies[at], parcel.models[at] = outcome.body, outcome

    def _messages(self, parcel: Parcel, at_ms: int) -> Sequence[Message]:
        ids, bodies, models = parcel.ids, parcel.bodies, parcel.models
        if models is None:
            model = replace(self._request.common, published_at_ms=at_ms)
            keys = self._request.key if parcel.keys is None else parcel.keys
            return MessageRun(ids, bodies, keys, model)
        of_each = parcel.keys or [self._request.key] * len(ids)
        return [
            replace(model, id=own.decode(), body=body, key=key, published_at_ms=at_ms)
            for model, own, body, key in zip(models, ids, bodies, of_each, strict=True)
        ]

    def _places(self, parcel: Parcel) -> list[list[int]]:
        """The positions of the messages that are not refused, grouped by partition."""
        refused, keys, partitions = parcel.refused, parcel.keys, self.route.partitions
        if self.route.topic.fallback_to_remote_datacenter_enabled:
            # Another datacentre may have a different number of partitions, so group by key.
            partitions = 0
        places: dict[int | bytes | None, list[int]] = {}
        for at in range(len(parcel.bodies)):
            if at not in refused:
                key = keys[at] if keys else self._request.key
                where = partition_of(key, partitions) if partitions and key is not None else key
                places.setdefault(where, []).append(at)
        return list(places.values())
