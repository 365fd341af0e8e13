"""One request over HTTP/2, and its answer."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from hypercorn.protocol.events import Body as BodyEvent
from hypercorn.protocol.events import EndBody, Event
from hypercorn.protocol.h2 import StreamBuffer

from hermes_actors.errors import Unavailable
from hermes_actors.publisher.answers import Abandoned, Answer, error_answer
from hermes_actors.publisher.edges.edge import Body, Exchange, Fields
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import Pending

if TYPE_CHECKING:
    from hermes_actors.publisher.edges.http2.connection import Http2Connection

_ONE_PAGE = error_answer(
    Unavailable("The previous page on this connection has not been read yet; read it first"), ""
)


class Stream:
    """The Line of one request; hypercorn calls `handle`."""

    def __init__(self, connection: "Http2Connection", stream_id: int, request: Request) -> None:
        self._connection = connection
        self.certificate, self.address = connection.certificate, connection.address
        self._id = stream_id
        self._request = request
        self._buffer: StreamBuffer | None = None
        self._body: Body | None = None
        self._exchange: Exchange | None = None
        # The part of the body that arrives while its sender is being identified.
        self._cancel: Callable[[], None] | None = None
        self._early = b""
        # The head of the answer, until the first piece is written.
        self._head: tuple[int, Fields] | None = None
        self._unsent = b""
        self._has_ended = self._is_over = self._is_finished = self._is_writing = False

    # The connection.

    async def handle(self, event: Event) -> None:
        """Take the next event of the request; as the streams of hypercorn."""
        if isinstance(event, BodyEvent):
            if self._cancel is not None:
                self._early += event.data
            elif self._body is not None:
                self._body.data(event.data)
        elif isinstance(event, EndBody):
            self._has_ended = True
            body, self._body = self._body, None
            if body is not None:
                body.end()
        else:
            self._gone()

    def _gone(self) -> None:
        """The stream has ended; the client may have reset it."""
        if self._cancel is not None:
            self._cancel()
        body = self._body or self._exchange
        self._is_over = self._is_finished = True
        self._body = self._exchange = None
        if body is not None:
            body.gone()
        self.release()

    def sweep(self, now_s: float) -> None:
        """End an exchange whose client does nothing for too long."""
        if self._exchange is not None:
            self._exchange.sweep(now_s)

    def resumed(self) -> None:
        """Notify the exchange if everything that it wrote has been sent."""
        if self._exchange is not None and not self.is_paused:
            self._exchange.sent()

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of its answer wait for the client's flow-control window."""
        return len(self._unsent) + (0 if self._buffer is None else len(self._buffer.buffer))

    async def _write_all(self, buffer: StreamBuffer) -> None:
        """Send pending output until none is left; the last piece ends the stream."""
        connection = self._connection
        send = connection.protocol.stream_send
        while (self._unsent or self._is_finished) and not connection.is_lost:
            if self._head is not None:
                connection.send_head(self._id, *self._head, ends=False)
                self._head = None
            is_last = self._is_finished
            data, self._unsent = self._unsent, b""
            if data:
                await send(BodyEvent(self._id, data))
            if is_last:
                await send(EndBody(self._id))
                connection.streams.pop(self._id, None)
                return
            if buffer.buffer:
                await buffer.drain()
            self.resumed()
        self._is_writing = False

    # The Line.

    @property
    def is_paused(self) -> bool:
        """As `Line.is_paused`."""
        return self._connection.is_paused or self.waiting_bytes > 0

    @property
    def unread_bytes(self) -> int:
        """As `Line.unread_bytes`."""
        connection = self._connection
        wire_bytes = connection.wire.get_write_buffer_size() if connection.is_paused else 0
        return self.waiting_bytes + wire_bytes

    def answer(self, answer: Answer, *, is_of_publish: bool = False) -> None:
        """As `Line.answer`."""
        self.begin(answer.status, answer.fields())
        self._unsent = b"" if self._request.is_bare(answer.status) else answer.body
        self.finish()

    def later(
        self, ask: Callable[[], Awaitable[Answer | None]], then: Callable[[], None] | None = None
    ) -> None:
        """As `Line.later`."""

        async def wait() -> None:
            answer = await ask()
            self._cancel = None
            if self._is_over:
                return
            self.release()
            if answer is not None:
                self.answer(answer)
            elif then is not None:
                then()

        if then is None and not self._connection.takes_page(self._id):
            self.answer(_ONE_PAGE)
            return
        self.hold()
        self._cancel = self._connection.edge.host.spawn(wait(), self.abort)

    def owe(self, pending: Pending) -> bytes | None:
        """As `Line.owe`."""
        if not self._has_ended and self._request.expected_bytes:
            return None
        body, self._early = self._early, b""
        return body

    def settled(self, pending: Pending) -> None:
        """As `Line.settled`."""
        if not self._is_over and type(pending.outcome) is not Abandoned:
            self.answer(pending.answer)

    def take_body(self, body: Body) -> None:
        """As `Line.take_body`."""
        self._body = body
        if isinstance(body, Exchange):
            self._exchange = body
        early, self._early = self._early, b""
        if early:
            body.data(early)
        if self._has_ended:
            self._body = None
            body.end()
        elif self._request.expects_continue and not (early or self._is_over):
            self._connection.send_head(self._id, 100, [], ends=False)

    def begin(self, status: int, fields: Fields) -> None:
        """As `Line.begin`."""
        self._head = (status, fields)

    def write(self, data: bytes) -> None:
        """As `Line.write`."""
        head = self._head
        if head is None or not self._request.is_bare(head[0]):
            self._unsent += data
            self._start_writing()

    def finish(self) -> None:
        """As `Line.finish`."""
        self._is_finished = self._is_over = True
        self._body = self._exchange = None
        self.release()
        if self._head is None or self._unsent or self._is_writing:
            self._start_writing()
        else:
            self._connection.send_head(self._id, *self._head, ends=True)
            self._connection.streams.pop(self._id, None)

    def _start_writing(self) -> None:
        connection = self._connection
        if not self._is_writing and self._id in connection.streams:
            self._is_writing = True
            if self._buffer is None:
                self._buffer = StreamBuffer(connection.protocol.context.event_class)
                connection.protocol.stream_buffers[self._id] = self._buffer
            connection.start(self._write_all(self._buffer))

    def hold(self) -> None:
        """As `Line.hold`: the client's window is not enlarged."""
        self._connection.frames.hold(self._id)

    def release(self) -> None:
        """As `Line.release`."""
        if self._connection.frames.release(self._id):
            self._connection.write_soon()

    def abort(self) -> None:
        """As `Line.abort`, for this request alone."""
        if not self._is_over:
            self._connection.start(self._reset())

    async def _reset(self) -> None:
        connection = self._connection
        connection.streams.pop(self._id, None)
        self._gone()
        with suppress(ProtocolError):
            connection.frames.reset_stream(self._id, ErrorCodes.INTERNAL_ERROR)
        await connection.forget(self._id)
