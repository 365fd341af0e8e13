"""One batch: its messages are published as they arrive, and each is answered with a line, in order.

Nothing here waits, and everything under way is bounded: the unread answers of a client, the
messages of each topic, the bytes of the node. When a bound is reached, the body is not read
further, so the connection holds the publisher back (back-pressure).
"""

from collections import deque
from collections.abc import Callable

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, HermesError, Refused
from hermes_actors.publisher.answers import IN_MEMORY, encoded
from hermes_actors.publisher.batches.forms import ANSWERS, Form, Parcel
from hermes_actors.publisher.batches.room import Need, Room
from hermes_actors.publisher.batches.slices import LINE_BYTES, Slice, end_line
from hermes_actors.publisher.batches.slicing import BatchRequest, Slicing
from hermes_actors.publisher.edges.edge import Edge, Exchange, Line
from hermes_actors.publisher.gateway import Gateway

TURN_BYTES = 4_096
"""After this much of a batch, in pieces of any size, other tasks get their turn of the loop."""
_PIECE_BYTES = 512
"""Each piece counts at least this much: it is appended to the message received so far, however
small it is.
"""


class BatchExchange(Exchange):
    """One request. `closed` is called at its end.

    Reading and answering are independent except for the bounds: a publisher that writes everything
    before it reads gets as far as they allow.
    """

    def __init__(
        self,
        request: BatchRequest,
        form: Form,
        line: Line,
        edge: Edge,
        gateway: Gateway,
        room: Room,
        closed: Callable[["BatchExchange"], None],
    ) -> None:
        self.route = request.route
        self._form = form
        self._line = line
        self._edge = edge
        self._room = room
        self._closed = closed
        self._config: FrontendConfig = edge.config
        self._slicing = Slicing(request, edge.config, gateway, self.stop)
        self._idle_s = self._config.batch_idle_timeout_ms / 1_000
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
        headers = [("content-type", ANSWERS)]
        if self.route.topic.is_in_memory:
            headers.append(IN_MEMORY)
        line.begin(200, encoded(headers))

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
                size = len(self._rest)
                parcel, self._rest = self._form.feed(self._rest)
                self._taken_bytes += max(size - len(self._rest), _PIECE_BYTES)
                self._add(parcel)
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
        count = self._slicing.count_of_slice(parcel)
        if count == len(parcel.bodies):
            self._parcels.popleft()
        else:
            self._parcels[0] = parcel.at(range(count, len(parcel.bodies)))
            parcel = parcel.at(range(count))
        return parcel, Need(self.route, count, parcel.size_of_first(count), self._wake)

    def _send(self, parcel: Parcel, need: Need) -> None:
        """Hand a slice over; its room is released when it has been answered."""
        room = self._room

        def done() -> None:
            room.leave(need)
            self._wake()

        part = self._slicing.send(parcel, done)
        if not self._is_left:
            self._slices.append(part)
            self._owed_bytes += len(part.ids) * LINE_BYTES
