"""One batch: its messages are taken as they come, each is answered with a line, in order.

Nothing here waits. What is under way is bounded: a client is owed a bounded number of answers, and
each topic and the node have room for so many messages. Where a bound is reached the body is read no
further, and the publisher's own connection holds it back.
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
from hermes_actors.schema.validation import BodyHead, Outcome
from hermes_actors.security.account import Account

TURN_BYTES = 4_096
"""After so much of a batch, in pieces of any size, others have their turn of the loop."""
_PIECE_BYTES = 512
"""A piece counts as no less: it is laid behind all that has come of its message, however little it
brings.
"""
_SLICE_MESSAGES_MAX = 1_000
"""So that the first are answered while the last of a piece are taken apart."""
_TOO_COSTLY = Refused(
    "Message is too large, or its topic's schema too costly, to be checked within a batch; "
    "publish it by itself"
)


class BatchRequest(Struct, frozen=True):
    """What the head of a batch says. `key` is that of messages without one, `common` has what holds
    for each message, `body_head` says how their bodies are to be read.
    """

    route: Route
    form: Form
    key: bytes | None
    account: Account | None
    common: Message
    body_head: BodyHead


class BatchExchange(Exchange):
    """One request. `closed` is called at its end.

    Neither direction waits for the other but where a bound says so: a publisher that writes all
    before it reads gets as far as the bounds.
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
        # What has come and was not taken apart, and how much was in this turn of the loop.
        self._rest = b""
        self._taken_bytes = self._unread_bytes = 0
        # What was taken apart, what goes next, and what was handed over.
        self._parcels: deque[Parcel] = deque()
        self._next: tuple[Parcel, Need] | None = None
        self._slices: deque[Slice] = deque()
        self._owed_bytes = 0
        self._last_line = b""
        # All of the body has come; no more of it is taken; the publisher has gone; it is closed.
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
        """Leave a client that is gone: what was taken is stored, and nobody is answered."""
        self._is_over = self._is_left = True
        self._slices.clear()
        self._go_on()

    def sent(self) -> None:
        """Go on: the client has read all that was written."""
        self._since_s = self._edge.now_s
        self._wake()

    def sweep(self, now_s: float) -> None:
        """End a batch whose publisher does nothing for `batch_idle_timeout_ms`."""
        unread_bytes = self._line.unread_bytes
        if unread_bytes != self._unread_bytes or (self._is_held and not self._line.is_paused):
            # It reads, however slowly; or it is the log that is waited for.
            self._unread_bytes, self._since_s = unread_bytes, now_s
        elif now_s > self._since_s + self._idle_s:
            if self._line.is_paused:
                self._line.abort()
            elif not self._is_read:
                self.stop(
                    Refused(
                        f"For {self._idle_s:g} s no more of the body came: lines after this were "
                        "not read",
                        ErrorCode.TIMEOUT,
                    )
                )

    def stop(self, error: HermesError) -> None:
        """Read no further; what was read is answered, and the last line says why."""
        if not self._is_over:
            self._is_over = True
            self._last_line = end_line(error)
            self._wake()

    # Going on.

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
        """Take what may be in this turn; True when more may come."""
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
        """Hand over what was taken apart, as far as there is room; True when more may be."""
        while self._may_owe():
            if self._next is None and not self._parcels:
                return True
            parcel, need = self._next = self._next or self._cut()
            if not self._room.take(need):
                return False
            self._next = None
            self._send(parcel, need)
            if self.route.validate is not None:
                # It was checked by the topic's schema: others have their turn of the loop.
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
            # There is room for further answers, or they are due.
            self._wake()

    # Slices.

    def _cut(self) -> tuple[Parcel, Need]:
        """Take the next slice's messages out of what was taken apart."""
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
        """How many of these may be checked by their schema in one turn, at least one."""
        validate, left = self.route.validate, UNITS_MAX
        if validate is not None:
            for at, body in enumerate(parcel.bodies[:count]):
                units = validate.units(body)
                # What is too costly is refused without a look.
                left -= units if units <= UNITS_MAX else 0
                if left < 0 and at:
                    return at
        return count

    def _send(self, parcel: Parcel, need: Need) -> None:
        """Hand a slice over; its room is left when it has been answered."""
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
        """Give the messages to their topic's producer, those that go one way together."""
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
        """Refuse the messages that the topic does not take, where that is checked at all."""
        if self._config.force_topic_max_message_size:
            topic = self.route.topic
            for at, body in enumerate(parcel.bodies):
                if len(body) > topic.max_message_size:
                    parcel.refused[at] = too_long_for_topic(len(body), topic)

    def _refuse_unfit(self, parcel: Parcel, at_ms: int) -> None:
        """Refuse the messages that do not fit the topic's schema, or would take long to be checked:
        the others of a batch do not wait for one. What is stored of those that fit takes their
        place.
        """
        validate = self.route.validate
        if validate is None:
            return
        grown_bytes = 0
        for at, message in enumerate(self._messages(parcel, at_ms)):
            if at in parcel.refused:
                continue
            outcome: Outcome = _TOO_COSTLY
            if validate.units(message.body) <= UNITS_MAX:
                outcome = validate.check(message, self._request.body_head)
            if isinstance(outcome, HermesError):
                parcel.refused[at] = outcome
            elif outcome is not message:
                grown_bytes += max(0, len(outcome.body) - len(message.body))
                if grown_bytes > self._config.batch_bytes_max:
                    # What a schema fills in may be a multiple of what has come.
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
        """The places of the messages that are not refused, by where they go."""
        refused, keys, partitions = parcel.refused, parcel.keys, self.route.partitions
        if self.route.topic.fallback_to_remote_datacenter_enabled:
            # Another datacentre may have another number of partitions: each key goes alone.
            partitions = 0
        places: dict[int | bytes | None, list[int]] = {}
        for at in range(len(parcel.bodies)):
            if at not in refused:
                key = keys[at] if keys else self._request.key
                where = partition_of(key, partitions) if partitions and key is not None else key
                places.setdefault(where, []).append(at)
        return list(places.values())
