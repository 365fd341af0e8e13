"""The body of a request, over HTTP/1.1 and HTTP/2 alike: `data`, its `end`, or `gone`.

Nothing here waits, and nothing has a task: what is called returns at once.
"""

from collections.abc import Callable
from typing import Protocol

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.publisher.answers import Abandoned, too_long_for_server
from hermes_actors.publisher.batches.stream import BatchStream
from hermes_actors.publisher.edges.edge import Edge
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Pending

TURN_BYTES = 4_096
"""After so much of a batch, in pieces of any size, others have their turn of the loop."""


class MessageBody:
    """The body of one message, which comes in pieces."""

    __slots__ = ("_gateway", "_parts", "_size_bytes", "pending")

    def __init__(self, gateway: Gateway, pending: Pending) -> None:
        self._gateway = gateway
        self.pending = pending
        self._parts: list[bytes] = []
        self._size_bytes = 0

    @property
    def has_begun(self) -> bool:
        """True when a byte of it has come."""
        return bool(self._parts)

    def data(self, piece: bytes) -> None:
        """Take a piece of it; the publish is refused when it is too long."""
        if piece:
            self._parts.append(piece)
            self._size_bytes += len(piece)
            bytes_max = self._gateway.body_bytes_max
            if self._size_bytes > bytes_max:
                size = f"{self._size_bytes} bytes or more"
                self.pending.settle(too_long_for_server(size, bytes_max))

    def end(self) -> None:
        """Hand the complete message over to its topic's producer."""
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self._gateway.hand_over(self.pending, body)

    def gone(self) -> None:
        """Settle the publish as abandoned: the rest of the body will not come."""
        self.pending.settle(Abandoned())


class Line(Protocol):
    """Where a batch comes from and is answered."""

    @property
    def is_paused(self) -> bool:
        """The client does not read its answers; `BatchExchange.sent` is called when it has."""

    def write(self, data: bytes) -> None:
        """Send a piece of the answer."""

    def hold(self) -> None:
        """Call `data` and `end` no more for now."""

    def release(self) -> None:
        """Call them again."""

    def batch_ended(self) -> None:
        """Take note that the answer has been written to its end."""

    def abort(self) -> None:
        """Close at once."""


class BatchExchange:
    """One batch: its body and its lines at the same time.

    Neither direction waits for the other but where the stream says so: a publisher that writes all
    before it reads gets as far as the stream's bounds. One turn of the loop takes what the stream
    takes at once.
    """

    def __init__(
        self,
        line: Line,
        stream: BatchStream,
        edge: Edge,
        start: bytes = b"",
        frame: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """`start` is the head of the answer, `frame` makes bytes of it what is written, and of none
        its end. After the edge's `batch_idle_s` without a piece of the body, or without the
        publisher reading an answer, the batch ends.
        """
        self._line = line
        self._stream = stream
        self._edge = edge
        self._start = start
        self._frame = frame
        self._idle_s = edge.batches.idle_s
        self._since_s = edge.now_s
        # What has come and not been taken, and how much was in this turn of the loop.
        self._rest = b""
        self._taken_bytes = 0
        self._is_held = self._is_read = self._has_left = self._is_over = self._is_woken = False
        stream.wake = self._wake

    def data(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._since_s = self._edge.now_s
        self._rest += piece
        self._go_on()

    def end(self) -> None:
        """Take the end of the body."""
        self._is_read = True
        self._go_on()

    def gone(self) -> None:
        """Leave a client that is gone: what was taken is stored, and nobody is answered."""
        self._has_left = True
        self._stream.leave()
        self._go_on()

    def sent(self) -> None:
        """Record that the client has read all that was written."""
        self._since_s = self._edge.now_s
        self._stream.sent()
        self._wake()

    def sweep(self, now_s: float) -> None:
        """End a batch whose publisher does nothing."""
        if self._is_held and not self._line.is_paused:
            # It is the log that it waits for.
            self._since_s = now_s
        elif now_s > self._since_s + self._idle_s:
            if self._line.is_paused:
                self._line.abort()
            elif not self._is_read:
                self._stream.stop(
                    Refused(
                        f"For {self._idle_s:g} s no more of the body came: lines after this were "
                        "not read",
                        ErrorCode.TIMEOUT,
                    )
                )

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._edge.host.soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_woken = False
        self._taken_bytes = 0
        self._go_on()

    def _go_on(self) -> None:
        if self._is_over:
            return
        stream = self._stream
        may_read = stream.go_on()
        if may_read and not stream.is_over:
            may_read = self._take()
        if self._has_left:
            if may_read:
                self._close()
            return
        if self._write_all() or self._is_held is not may_read:
            return
        self._is_held = not may_read
        if may_read:
            self._line.release()
        else:
            self._line.hold()

    def _take(self) -> bool:
        """Take what may be in this turn; True when more may come."""
        stream, rest = self._stream, self._rest
        if rest:
            if self._taken_bytes >= TURN_BYTES:
                self._wake()
                return False
            size = stream.form.splitter.size_at_once(rest)
            self._rest = rest[size:]
            self._taken_bytes += size
            stream.feed(rest[:size])
            if self._rest and not stream.is_over:
                if stream.go_on():
                    self._wake()
                return False
        if self._is_read and not stream.is_over:
            stream.finish()
        return stream.go_on()

    def _write_all(self) -> bool:
        """Write the lines that are due; True when those were the last."""
        line, stream = self._line, self._stream
        while not line.is_paused and (lines := stream.take_lines()):
            line.write(self._start + self._frame(lines))
            self._start = b""
            if not line.is_paused:
                stream.sent()
        if stream.is_answered and not line.is_paused:
            end = self._start + self._frame(b"")
            if end:
                line.write(end)
            self._close()
            line.batch_ended()
        return self._is_over

    def _close(self) -> None:
        self._is_over = True
        self._stream.close()
