"""One batch on one HTTP/1.1 connection: its body and its lines at the same time, without a task.

Neither direction waits for the other but where the stream says so: a publisher that writes all
before it reads gets as far as the stream's bounds.
"""

from collections.abc import Callable
from typing import Protocol

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.publisher.batch import BatchStream
from hermes_actors.publisher.edges.http1.rendering import LAST_CHUNK, chunk


class Line(Protocol):
    """The connection, while it is the batch's turn: `Connection`."""

    @property
    def is_paused(self) -> bool:
        """The client does not read its answers; `BatchExchange.sent` is called when it has."""

    def write(self, data: bytes) -> None:
        """Send a piece of the answer."""

    def hold(self) -> None:
        """Call `feed` and `finish` no more for now."""

    def release(self) -> None:
        """Call them again."""

    def batch_ended(self) -> None:
        """The answer has been written to its end."""

    def abort(self) -> None:
        """Close the connection at once."""


class BatchExchange:
    """`start` is the head of the answer. After `idle_s` without a piece of the body, or without the
    publisher reading an answer, the batch ends.
    """

    __slots__ = (
        "_has_left",
        "_idle_s",
        "_is_chunked",
        "_is_held",
        "_is_over",
        "_is_read",
        "_is_woken",
        "_line",
        "_since_s",
        "_soon",
        "_start",
        "_stream",
    )

    def __init__(
        self,
        line: Line,
        stream: BatchStream,
        soon: Callable[[Callable[[], None]], None],
        start: bytes,
        idle_s: float,
        now_s: float,
        *,
        is_chunked: bool,
    ) -> None:
        self._line = line
        self._stream = stream
        self._soon = soon
        self._start = start
        self._idle_s = idle_s
        self._since_s = now_s
        self._is_chunked = is_chunked
        self._is_held = self._is_read = self._has_left = self._is_over = self._is_woken = False
        stream.wake_reader = stream.wake_writer = self._wake

    def feed(self, data: bytes, now_s: float) -> None:
        """A piece of the body has come."""
        self._since_s = now_s
        if not self._stream.is_over:
            self._stream.feed(data)
            self._go_on()

    def finish(self) -> None:
        """The body has come to its end."""
        self._is_read = True
        if not self._stream.is_over:
            self._stream.finish()
            self._go_on()

    def sent(self, now_s: float) -> None:
        """The client has read all that was written."""
        self._since_s = now_s
        self._stream.sent()
        self._wake()

    def leave(self) -> None:
        """The connection is gone: what was read is stored, and nobody is answered."""
        self._has_left = True
        self._stream.leave()
        self._go_on()

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
            self._soon(self._go_on)

    def _go_on(self) -> None:
        self._is_woken = False
        if self._is_over:
            return
        stream = self._stream
        may_read = stream.go_on()
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

    def _write_all(self) -> bool:
        """Write the lines that are due; True when those were the last."""
        line, stream = self._line, self._stream
        while not line.is_paused and (lines := stream.take_lines()):
            line.write(self._start + (chunk(lines) if self._is_chunked else lines))
            self._start = b""
            if not line.is_paused:
                stream.sent()
        if stream.is_answered and not line.is_paused:
            end = self._start + (LAST_CHUNK if self._is_chunked else b"")
            if end:
                line.write(end)
            self._close()
            line.batch_ended()
        return self._is_over

    def _close(self) -> None:
        self._is_over = True
        self._stream.close()
