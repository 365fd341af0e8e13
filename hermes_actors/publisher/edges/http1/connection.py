"""One HTTP/1.1 connection, without I/O: bytes in, answers out, one request after the other.

A publish needs no task, no future and no timer: its pending goes to the topic's producer while its
bytes are being read, the producer's outcome calls back, and one sweep looks after the times of all
connections. A request that is sent ahead begins when the one before it is answered.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial

from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.edge import LEAVE_S, Body, Edge, Exchange, Fields, Wire
from hermes_actors.publisher.edges.http1.wire import CONTINUE, Malformed, RequestReader, chunk
from hermes_actors.publisher.edges.publishing import MessageBody
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import Pending
from hermes_actors.security.account import ClientCertificate

TURN_STEPS = 32
"""Requests, or pieces of a body, that are taken in one turn of the loop: a read may bring many."""
_LINGER_S = 1.0
"""How long is read, and dropped, what a client still sends after the last answer: a connection
that is closed with unread bytes is reset, and the client may lose that answer."""


class ConnectionState(Enum):
    """The states of a connection, which waits for a request, for the rest of a head, for the rest
    of a body that nobody wants, or for the node itself.
    """

    IDLE = 0
    HEAD = 1
    UNWANTED = 2
    BUSY = 3


_FREE = 0
# Why nothing is taken from what has come, each a bit.
_LATER = 1  # a page or the account of a publisher is waited for
_TURN = 2  # the request has been read, and is not answered
_UNREAD = 4  # the client does not read its answers
_ROOM = 8  # the exchange takes no more for now
_OTHERS = 16  # others have their turn of the loop


class Http1Connection:
    """The network calls `received`, `ended`, `lost`, `paused` and `resumed`; the sweep `sweep`."""

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
        # The publish that is to be answered.
        self._owed: Pending | None = None
        # Whose body is being read; None when nobody wants it.
        self._body: Body | None = None
        # The exchange whose turn it is; its body may have been read.
        self._exchange: Exchange | None = None
        # Its request, the head of its answer while that waits for the first piece, and whether that
        # comes in chunks, or must not come.
        self._request: Request | None = None
        self._head = b""
        self._is_chunked = self._is_bare = False
        self._cancel: Callable[[], None] | None = None
        self._holds = _FREE
        # No further request is begun; what came was no HTTP; the connection ends without a word.
        self._is_last = self._is_refused = self._is_silent = False
        self._is_lost = self._has_ended = self._stopped_reading = False
        self._is_taking = False
        # The client may wait to be asked for its body.
        self._expects = False
        self._close_at_s = self._leaves_at_s = 0.0
        self.due_s = 0.0
        """The sweep need not look at it before; 0.0 whenever something has happened."""
        # How many requests have begun, and how much may still be taken in this turn.
        self._served = self._steps_left = 0
        # What a sweep has seen, and since when: a request costs nothing for its times.
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
        """The client sends no more; what it has sent is still answered."""
        self._has_ended = True
        self._take()

    def lost(self) -> None:
        """Drop everything under way: the connection is gone."""
        self._is_lost = self._is_last = True
        if self._cancel is not None:
            self._cancel()
        self._leave_body()
        self._owed = None

    def paused(self) -> None:
        """Begin no more requests of a client that does not read its answers, until it does."""
        self._holds |= _UNREAD

    def resumed(self) -> None:
        """Go on: all that was written has gone."""
        # What will wait for the client next is timed anew, however many bytes it is.
        self._unsent_bytes = 0
        if self._exchange is not None:
            self._exchange.sent()
        self._release(_UNREAD)

    # The listener.

    def sweep(self, now_s: float) -> None:
        """Close what idles, whose head or unwanted body does not end, or which is not read."""
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
        """Whether bytes have waited for the client for `unread_s`, and not one of them went."""
        unsent_bytes = self._wire.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
            return False
        return now_s > self._unsent_since_s + self._edge.unread_s

    def _ends_s(self, now_s: float) -> float:
        """The end of the client's time: its idle time for a request to begin, the head's time
        limit for its head, and for a body that is only dropped; 0.0 while it is the node's turn.
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
        """Prepare for the listener's end: one more request is begun, if it comes soon. It may be on
        its way, and a client could not tell what became of it.
        """
        self._leaves_at_s = now_s + LEAVE_S
        self.due_s = 0.0

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._wire.abort()

    # The exchange whose turn it is.

    @property
    def is_paused(self) -> bool:
        """As `Line.is_paused`."""
        return bool(self._holds & _UNREAD)

    @property
    def unread_bytes(self) -> int:
        """As `Line.unread_bytes`."""
        return self._wire.get_write_buffer_size()

    def begin(self, status: int, fields: Fields) -> None:
        """As `Line.begin`; the head goes out with the first piece, or the end."""
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
            # It was ended early; the client may still be sending.
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
        """Begin and go on with what has come, as far as may be, and write what is due."""
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
        # Not before: what is read while something is left would pile up.
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
            # In a body that nobody waits for, or whose answer may have begun, it is enough to
            # close.
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
        if request.refusal is not None:
            self.answer(self._edge.refuse(request.refusal))
        else:
            self._request = request
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
            # It is answered before its body has come.
            self._is_last = True
            self._is_silent = not body.has_begun
        if self._is_silent:
            # Not a byte of it came: the connection ends without a word, as Hermes has it.
            self._close_at_s = self._edge.now_s + self._edge.silence_s
        else:
            self._is_last |= self._edge.is_leaving
            self._wire.write(self._edge.rendered(pending, closes=self._is_last))
        self._release(_TURN)

    def answer(self, answer: Answer, *, is_of_publish: bool = False) -> None:
        """As `Line.answer`."""
        reader = self._reader
        is_unread = reader.is_in_body and reader.whole_body() is None
        # A client that waits to be asked for its body may send it or not: nobody can know.
        is_leaving = is_of_publish and self._edge.is_leaving
        if answer.closes or is_leaving or (is_unread and self._expects):
            self._is_last = True
        render = self._edge.renderer.answer
        self._wire.write(render(answer, is_of_publish=is_of_publish, closes=self._is_last))
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

    # Inside.

    def _release(self, hold: int) -> None:
        self._holds &= ~hold
        if not (self._holds or self._is_lost):
            self._take()

    def _leave_body(self) -> None:
        """Leave the body that is being read: the rest of it will not come."""
        body, self._body = self._body or self._exchange, None
        self._exchange = self._owed = None
        if body is not None:
            body.gone()

    def _end(self) -> None:
        """Close now; what the client has not read is dropped, since it may never read it."""
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
