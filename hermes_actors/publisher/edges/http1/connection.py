"""One HTTP/1.1 connection, without I/O: bytes in, answers out, one request after another.

A publish needs no task, future or timer: its pending goes to the topic's producer while its bytes
are read, the producer's outcome calls back, and one sweep checks the time limits of all
connections. A pipelined request begins when the one before it has been answered.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial

from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.edge import LEAVE_S, Body, Edge, Exchange, Fields, Wire
from hermes_actors.publisher.edges.http1.heads import Malformed
from hermes_actors.publisher.edges.http1.reader import RequestReader
from hermes_actors.publisher.edges.http1.renderer import CONTINUE, chunk
from hermes_actors.publisher.edges.publishing import MessageBody
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import Pending
from hermes_actors.security.account import ClientCertificate

TURN_STEPS = 32
"""Requests, or pieces of a body, processed in one turn of the loop; one read may contain many."""
_LINGER_S = 1.0
"""How long to keep reading, and dropping, what a client still sends after the last answer. A
connection that is closed with unread bytes is reset, and the client may lose that answer.
"""


class ConnectionState(Enum):
    """What a connection waits for: a request, the rest of a head, the rest of a body that is not
    needed, or the node.
    """

    IDLE = 0
    HEAD = 1
    UNWANTED = 2
    BUSY = 3


_FREE = 0
# Reasons to process nothing for now, one bit each.
_LATER = 1  # a page is being rendered, or a publisher identified
_TURN = 2  # the request has been read but not answered
_UNREAD = 4  # the client does not read its answers
_ROOM = 8  # the exchange takes no more for now
_OTHERS = 16  # other tasks have their turn of the loop


class Http1Connection:
    """The network calls `received`, `ended`, `lost`, `paused` and `resumed`; the server's sweep
    calls `sweep`.
    """

    __slots__ = (
        "_body", "_cancel", "_close_at_s", "_edge", "_exchange", "_expects", "_has_ended", "_head",
        "_holds", "_is_bare", "_is_chunked", "_is_last", "_is_lost", "_is_refused", "_is_silent",
        "_is_taking", "_leaves_at_s", "_owed", "_reader", "_request", "_seen", "_served",
        "_since_s", "_steps_left", "_stopped_reading", "_unsent_bytes", "_unsent_since_s", "_wire",
        "address", "certificate", "due_s",
    )  # fmt: skip

    def __init__(
        self,
        edge: Edge,
        wire: Wire,
        certificate: ClientCertificate | None = None,
        address: str = "",
    ) -> None:
        self._edge = edge
        self._wire = wire
        self.certificate = certificate
        self.address = address
        self._reader = RequestReader(edge.heads)
        # The publish to be answered.
        self._owed: Pending | None = None
        # The receiver of the body; None if the body is dropped.
        self._body: Body | None = None
        # The current exchange; its body may have been read.
        self._exchange: Exchange | None = None
        # Its request; the head of its answer until the first piece is written; and whether the body
        # is chunked, or left out.
        self._request: Request | None = None
        self._head = b""
        self._is_chunked = self._is_bare = False
        self._cancel: Callable[[], None] | None = None
        self._holds = _FREE
        # No further request begins; the input was not HTTP; the connection ends without an answer.
        self._is_last = self._is_refused = self._is_silent = False
        self._is_lost = self._has_ended = self._stopped_reading = False
        self._is_taking = False
        # The client may be waiting for 100 Continue.
        self._expects = False
        self._close_at_s = self._leaves_at_s = 0.0
        self.due_s = 0.0
        """The sweep can skip it until then; 0.0 after any event."""
        # Number of requests begun, and steps left in this turn.
        self._served = self._steps_left = 0
        # What the last sweep saw, and since when. So a request need not record times.
        self._seen = (ConnectionState.IDLE, 0)
        self._since_s = self._unsent_since_s = edge.now_s
        self._unsent_bytes = 0

    # The network.

    def received(self, data: bytes) -> None:
        """Take bytes from the client."""
        self.due_s = 0.0
        if not self._may_take():
            return
        self._reader.receive(data)
        if self._holds and not self._stopped_reading:
            self._stopped_reading = True
            self._wire.pause_reading()
        self._take()

    def ended(self) -> None:
        """The client sends no more; the requests received are still answered."""
        self._has_ended = True
        self._take()

    def lost(self) -> None:
        """The connection is gone: drop everything under way."""
        self._is_lost = self._is_last = True
        if self._cancel is not None:
            self._cancel()
        self._leave_body()
        self._owed = None

    def paused(self) -> None:
        """The client does not read its answers: begin no more requests until it does."""
        self._holds |= _UNREAD

    def resumed(self) -> None:
        """Everything written has been sent: continue."""
        # Restart the timing for later writes, even if they have the same size.
        self._unsent_bytes = 0
        if self._exchange is not None:
            self._exchange.sent()
        self._release(_UNREAD)

    # The listener.

    def sweep(self, now_s: float) -> None:
        """Close the connection if it idles, if a head or an unneeded body does not end, or if
        answers are not read.
        """
        if self._holds & _UNREAD and self._is_stuck(now_s):
            self._wire.abort()
        elif self._close_at_s:
            if now_s > self._close_at_s:
                self._end()
        elif self._exchange is not None:
            self._exchange.sweep(now_s)
        else:
            ends_s = self._ends_s(now_s)
            if ends_s and now_s > ends_s:
                self._end()
            else:
                self.due_s = ends_s

    def _is_stuck(self, now_s: float) -> bool:
        """True if written bytes have waited for `unread_s` without any of them being sent."""
        unsent_bytes = self._wire.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
            return False
        return now_s > self._unsent_since_s + self._edge.unread_s

    def _ends_s(self, now_s: float) -> float:
        """The end of the time that the client has: the idle time to begin a request, the head
        timeout for its head or for a body that is dropped. 0.0 while the node has to act.
        """
        state = self._state()
        if self._seen != (state, self._served):
            self._seen, self._since_s = (state, self._served), now_s
        if state is ConnectionState.BUSY:
            return 0.0
        if state is ConnectionState.IDLE:
            return self._leaves_at_s or self._since_s + self._edge.idle_s
        return self._since_s + self._edge.head_timeout_s

    def leave(self, now_s: float) -> None:
        """Prepare for the listener's end: one more request is served if it arrives soon. It may
        already be on its way, and its client could not know what became of it.
        """
        self._leaves_at_s = now_s + LEAVE_S
        self.due_s = 0.0

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._wire.abort()

    # The current exchange.

    @property
    def is_paused(self) -> bool:
        """As `Line.is_paused`."""
        return bool(self._holds & _UNREAD)

    @property
    def unread_bytes(self) -> int:
        """As `Line.unread_bytes`."""
        return self._wire.get_write_buffer_size()

    def begin(self, status: int, fields: Fields) -> None:
        """As `Line.begin`; the head is sent with the first piece, or at the end."""
        request = self._request
        assert request is not None, "an exchange has one"
        if (b"connection", b"close") in fields:
            fields = [pair for pair in fields if pair[0] != b"connection"]
            self._is_last = True
        if self._leaves_at_s or self._edge.is_leaving:
            self._is_last = True
        self._is_bare = request.is_bare(status)
        self._is_chunked = not (
            b"content-length" in dict(fields) or self._is_bare or request.version != "1.1"
        )
        self._head = self._edge.renderer.head(
            status, fields, is_chunked=self._is_chunked, closes=self._is_last
        )

    def write(self, data: bytes) -> None:
        """As `Line.write`."""
        head, self._head = self._head, b""
        if self._is_bare:
            data = b""
        self._wire.write(head + (chunk(data) if self._is_chunked else data))

    def finish(self) -> None:
        """As `Line.finish`."""
        if self._is_chunked or self._head:
            self.write(b"")
        self._exchange = self._body = None
        if self._reader.is_in_body:
            # The answer ended early; the client may still be sending.
            self._is_last = True
        self._release(_ROOM | _TURN)

    def hold(self) -> None:
        """As `Line.hold`."""
        self._holds |= _ROOM

    def release(self) -> None:
        """As `Line.release`."""
        self._release(_ROOM)

    # Requests.

    def _take(self) -> None:
        """Process the bytes received as far as possible, and write what is due."""
        if self._is_taking or self._is_lost:
            return
        self._is_taking = True
        self._steps_left = TURN_STEPS
        try:
            self._take_until_held()
        finally:
            self._is_taking = False
        if self._is_lost:
            return
        if self._has_ended and not self._holds:
            self._is_last = True
            if self._reader.is_in_body:
                self._leave_body()
        if self._expects and self._body is not None and self._holds in (_FREE, _UNREAD):
            self._expects = False
            self._wire.write(CONTINUE)
        if self._is_last and not (self._owed or self._exchange or self._holds & _LATER):
            self._close()
        # Only now: otherwise input would pile up while some is unprocessed.
        if self._stopped_reading and not (self._holds or self._is_lost):
            self._stopped_reading = False
            self._wire.resume_reading()

    def _take_until_held(self) -> None:
        reader = self._reader
        try:
            while not self._holds and self._may_take():
                if not self._steps_left:
                    if reader.has_bytes:
                        self._holds |= _OTHERS
                        self._edge.host.soon(partial(self._release, _OTHERS))
                    return
                self._steps_left -= 1
                event = reader.next()
                if event is None:
                    return
                if isinstance(event, Request):
                    self._served += 1
                    self._begin(event)
                elif not isinstance(event, bytes):
                    self._end_body()
                else:
                    self._expects = False
                    if self._body is not None:
                        self._body.data(event)
        except Malformed as error:
            # If nobody waits for the body, or its answer may have begun, closing is enough.
            body = self._body
            is_owed = body.owes_answer if body is not None else not reader.is_in_body
            self._leave_body()
            self._is_last = self._is_refused = True
            if is_owed:
                self.answer(Answer(error.status, closes=True))

    def _may_take(self) -> bool:
        return (self._reader.is_in_body or not self._is_last) and not self._is_refused

    def _begin(self, request: Request) -> None:
        self._expects = request.expects_continue
        if self._leaves_at_s or not request.keeps_alive:
            self._is_last = True
        self._request = request
        if request.refusal is not None:
            self.answer(self._edge.refuse(request.refusal))
        else:
            self._edge.begin(self, request)

    def later(
        self, ask: Callable[[], Awaitable[Answer | None]], then: Callable[[], None] | None = None
    ) -> None:
        """As `Line.later`."""

        async def wait() -> None:
            answer = await ask()
            self._cancel = None
            if self._is_lost:
                return
            if answer is not None:
                self.answer(answer, is_of_publish=then is not None)
            elif then is not None:
                then()
            self._release(_LATER)

        self._holds |= _LATER
        self._cancel = self._edge.host.spawn(wait(), self.abort)

    def take_body(self, body: Body) -> None:
        """As `Line.take_body`."""
        self._body = body
        if isinstance(body, Exchange):
            self._exchange = body

    def _end_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            self._holds |= _TURN
            body.end()

    # Answers.

    def owe(self, pending: Pending) -> bytes | None:
        """As `Line.owe`."""
        self._is_last |= self._edge.is_leaving
        self._owed = pending
        body = self._reader.whole_body()
        if body is not None:
            self._holds |= _TURN
        return body

    def settled(self, pending: Pending) -> None:
        """As `Line.settled`."""
        if pending is not self._owed:
            return
        self._owed = None
        body, self._body = self._body, None
        if isinstance(body, MessageBody):
            # The answer comes before the end of the body.
            self._is_last = True
            self._is_silent = not body.has_begun
        if self._is_silent:
            # No byte of the body arrived: the connection ends without an answer, as in Hermes.
            self._close_at_s = self._edge.now_s + self._edge.silence_s
        else:
            self._is_last |= self._edge.is_leaving
            self._wire.write(self._edge.rendered(pending, closes=self._is_last))
        self._release(_TURN)

    def answer(self, answer: Answer, *, is_of_publish: bool = False) -> None:
        """As `Line.answer`."""
        reader = self._reader
        is_unread = reader.is_in_body and reader.whole_body() is None
        # A client that waits for 100 Continue may or may not send its body; that cannot be known.
        is_leaving = is_of_publish and self._edge.is_leaving
        if answer.closes or is_leaving or (is_unread and self._expects):
            self._is_last = True
        is_bare = self._request is not None and self._request.is_bare(answer.status)
        render = self._edge.renderer.answer
        self._wire.write(
            render(answer, is_of_publish=is_of_publish, closes=self._is_last, is_bare=is_bare)
        )
        # An exchange has not begun its own answer.
        self._exchange = self._body = None
        self._release(_ROOM | _TURN)

    def _close(self) -> None:
        if self._has_ended:
            self._wire.close()
        elif self._is_silent:
            return
        elif not (self._is_refused or self._reader.is_in_body or self._reader.has_bytes):
            self._wire.close()
        elif not self._close_at_s:
            self._close_at_s = self._edge.now_s + _LINGER_S
            if self._wire.can_write_eof():
                self._wire.write_eof()

    # Internals.

    def _release(self, hold: int) -> None:
        self._holds &= ~hold
        if not (self._holds or self._is_lost):
            self._take()

    def _leave_body(self) -> None:
        """Abandon the body that is being read: the rest of it will not come."""
        body, self._body = self._body or self._exchange, None
        self._exchange = self._owed = None
        if body is not None:
            body.gone()

    def _end(self) -> None:
        """Close now. Unread answers are dropped, since the client may never read them."""
        if self._wire.get_write_buffer_size():
            self._wire.abort()
        else:
            self._wire.close()

    def _state(self) -> ConnectionState:
        if self._owed or self._holds or self._exchange is not None:
            return ConnectionState.BUSY
        if self._reader.is_in_body:
            return ConnectionState.UNWANTED
        return ConnectionState.HEAD if self._reader.has_bytes else ConnectionState.IDLE
