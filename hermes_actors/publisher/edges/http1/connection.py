"""One HTTP/1.1 connection, without I/O: bytes in, answers out, in their order.

A publish needs no task, no future and no timer: its pending is told to the topic's producer
while its bytes are being read, the producer's outcome calls back, and one sweep looks after the
times of all connections. Requests that a client sends ahead are under way together.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial

from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.edge import LEAVE_S, Body, Edge, Exchange, Fields, Wire
from hermes_actors.publisher.edges.http1.wire import CONTINUE, Malformed, RequestReader, chunk
from hermes_actors.publisher.edges.publishing import MessageBody
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import SETTLED, Pending
from hermes_actors.security.account import ClientCertificate

AHEAD_MAX = 32
"""How many requests of one connection may be under way; further ones are left with the client."""
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
_LATER = 1  # who publishes, a page or a request's turn is waited for
_AHEAD = 2  # as many requests as there may be are under way
_UNREAD = 4  # the client does not read its answers
_ROOM = 8  # the exchange takes no more for now
_TURN = 16  # the exchange has been read, and not answered to its end
_OTHERS = 32  # others have their turn of the loop


class Http1Connection:
    """The network calls `received`, `ended`, `lost`, `paused` and `resumed`; the sweep `sweep`."""

    __slots__ = (
        "_answers", "_body", "_cancel", "_close_at_s", "_edge", "_exchange", "_expects",
        "_has_ended", "_head", "_holds", "_is_bare", "_is_chunked", "_is_last", "_is_lost",
        "_is_refused", "_is_silent", "_is_taking", "_leaves_at_s", "_reader", "_request", "_seen",
        "_served", "_since_s", "_steps_left", "_stopped_reading", "_unsent_bytes",
        "_unsent_since_s", "_waiting", "_wire", "_writes_soon",
        "certificate", "due_s",
    )  # fmt: skip

    def __init__(
        self, edge: Edge, wire: Wire, certificate: ClientCertificate | None = None
    ) -> None:
        self._edge = edge
        self._wire = wire
        self.certificate = certificate
        self._reader = RequestReader(edge.heads)
        # What is owed to the client, in order: a publish until it is answered, else bytes.
        self._answers: deque[Pending | bytes] = deque()
        # Whose body is being read; None when nobody wants it.
        self._body: Body | None = None
        # The exchange whose turn it is; its body may have been read.
        self._exchange: Exchange | None = None
        # Its request, the head of its answer while that waits for the first piece, and whether that
        # comes in chunks, or must not come.
        self._request: Request | None = None
        self._head = b""
        self._is_chunked = self._is_bare = False
        # A request that cannot begin before those ahead of it are answered.
        self._waiting: Request | None = None
        self._cancel: Callable[[], None] | None = None
        self._holds = _FREE
        # No further request is begun; what came was no HTTP; the connection ends without a word.
        self._is_last = self._is_refused = self._is_silent = False
        self._is_lost = self._has_ended = self._stopped_reading = False
        self._is_taking = self._writes_soon = False
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
        self._waiting = None
        self._answers.clear()

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
            if now_s > self._close_at_s and not self._answers:
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
            goes_on = True
            while goes_on:
                self._take_until_held()
                was_held = bool(self._holds)
                if self._has_ended and not was_held:
                    self._is_last = True
                    if self._reader.is_in_body:
                        self._leave_body()
                self._write_due()
                # What was written may have made room.
                goes_on = was_held and not self._holds
        finally:
            self._is_taking = False
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
        elif self._answers and self._edge.needs_turn(request):
            self._holds |= _LATER
            self._waiting = request
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
            body.end()
        if self._exchange is not None:
            self._holds |= _TURN

    # Answers.

    def owe(self, pending: Pending) -> bytes | None:
        """As `Line.owe`."""
        self._is_last |= self._edge.is_leaving
        self._owe(pending)
        return self._reader.whole_body()

    def settled(self, pending: Pending) -> None:
        """As `Line.settled`."""
        if self._is_lost:
            return
        body = self._body
        if isinstance(body, MessageBody) and body.pending is pending:
            self._cut_short(body)
        if self._is_taking or not self._answers or pending is not self._answers[0]:
            return
        if len(self._answers) == 1:
            self._write_due()
        elif not self._writes_soon:
            # Others of this connection may be settled in this turn too.
            self._writes_soon = True
            self._edge.host.soon(self._write_due)

    def _cut_short(self, body: MessageBody) -> None:
        """End the connection: the request is answered before its body; silently, if none came."""
        self._body = None
        self._is_last = True
        if body.has_begun:
            return
        # Not a byte of it came: the connection ends without a word, as Hermes has it.
        self._answers.pop()
        self._is_silent = True
        self._close_at_s = self._edge.now_s + self._edge.silence_s

    def answer(self, answer: Answer, *, is_of_publish: bool = False) -> None:
        """As `Line.answer`."""
        reader = self._reader
        is_unread = reader.is_in_body and reader.whole_body() is None
        # A client that waits to be asked for its body may send it or not: nobody can know.
        is_leaving = is_of_publish and self._edge.is_leaving
        if answer.closes or is_leaving or (is_unread and self._expects):
            self._is_last = True
        render = self._edge.renderer.answer
        self._owe(render(answer, is_of_publish=is_of_publish, closes=self._is_last))
        if self._exchange is not None:
            # It has not begun its own answer.
            self._exchange = self._body = None
            self._release(_ROOM | _TURN)

    def _owe(self, answer: Pending | bytes) -> None:
        self._answers.append(answer)
        if len(self._answers) >= AHEAD_MAX:
            self._holds |= _AHEAD

    def _write_due(self) -> None:
        """Write the answers that are due, in one piece; then what becomes of the connection."""
        self._writes_soon = False
        if self._is_lost:
            return
        answers = self._answers
        due: list[bytes] = []
        while answers:
            first = answers[0]
            if not isinstance(first, bytes):
                if first.state is not SETTLED:
                    break
                # A request that waits for its turn, or for who sends it, is answered after it.
                is_last = len(answers) == 1 and not self._holds & _LATER
                if is_last and self._edge.is_leaving:
                    self._is_last = True
                first = self._edge.rendered(first, closes=is_last and self._is_last)
            answers.popleft()
            due.append(first)
        if due:
            self._wire.write(due[0] if len(due) == 1 else b"".join(due))
        if self._expects and self._holds & ~_UNREAD == _FREE:
            self._ask_for_body()
        if not answers:
            self._go_on()
        elif self._holds & _AHEAD and len(answers) <= AHEAD_MAX // 2:
            self._release(_AHEAD)

    def _ask_for_body(self) -> None:
        """Write 100 Continue if all before is answered: it is for one request."""
        ahead = len(self._answers) - isinstance(self._body, MessageBody)
        if self._body is not None and not ahead:
            self._expects = False
            self._wire.write(CONTINUE)

    def _go_on(self) -> None:
        """Go on when every answer has been written: with the next request, or to the end."""
        if self._waiting is not None:
            request, self._waiting = self._waiting, None
            self._begin(request)
            if self._cancel is None:
                self._release(_LATER)
        elif self._holds & _AHEAD:
            self._release(_AHEAD)
        elif self._is_last and self._exchange is None and not self._holds & _LATER:
            self._close()

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
        if isinstance(body, MessageBody):
            self._answers.pop()
        self._exchange = None
        if body is not None:
            body.gone()

    def _end(self) -> None:
        """Close now; what the client has not read is dropped, since it may never read it."""
        if self._wire.get_write_buffer_size():
            self._wire.abort()
        else:
            self._wire.close()

    def _state(self) -> ConnectionState:
        if self._answers or self._holds or self._exchange is not None:
            return ConnectionState.BUSY
        if self._reader.is_in_body:
            return ConnectionState.UNWANTED
        return ConnectionState.HEAD if self._reader.has_bytes else ConnectionState.IDLE
