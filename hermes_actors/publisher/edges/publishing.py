"""Publishers' requests for a page, with one message or with a batch, over any HTTP.

Nothing here waits, and nothing has a task: what is called returns at once.
"""

from functools import partial

from hermes_actors.config import FrontendConfig
from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.log.base import Stored
from hermes_actors.publisher.answers import Abandoned, Answer, too_long_for_server
from hermes_actors.publisher.authentication import PublishSecurity
from hermes_actors.publisher.batches.forms import ANSWERS
from hermes_actors.publisher.batches.stream import BatchStream
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.edges.edge import UNREAD_S, Body, Edge, Exchange, Host, Line
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.gateway import Gateway
from hermes_actors.publisher.pending import Pending
from hermes_actors.publisher.status import Pages

TURN_BYTES = 4_096
"""After so much of a batch, in pieces of any size, others have their turn of the loop."""
_PIECE_BYTES = 512
"""A piece counts as no less: it is laid behind all that has come of its message, however little it
brings.
"""


class PagesEdge(Edge):
    """The edge before a node's pages."""

    def __init__(self, pages: Pages, config: FrontendConfig, host: Host, **times_s: float) -> None:
        """`times_s` are those of Edge."""
        super().__init__(config, host, **times_s)
        self.pages = pages

    def begin(self, line: Line, request: Request) -> None:
        """As `Edge.begin`."""
        page = self.pages.at_once(request.method, request.path)
        if page is not None:
            line.answer(page)
        else:
            line.later(self.pages.metrics)


class PublishEdge(PagesEdge):
    """The edge before a frontend."""

    def __init__(self, frontend: Frontend, host: Host, *, unread_s: float = UNREAD_S) -> None:
        """`unread_s` is that of Edge."""
        config = frontend.config
        silence_s = max(0.0, (config.read_timeout_ms - config.idle_timeout_ms) / 1_000)
        super().__init__(frontend.pages, config, host, unread_s=unread_s, silence_s=silence_s)
        self.gateway = frontend.gateway
        self.batches = frontend.batches

    @property
    def is_leaving(self) -> bool:
        """As `Edge.is_leaving`."""
        return self.gateway.drain.is_leaving

    def begin(self, line: Line, request: Request) -> None:
        """As `Edge.begin`."""
        security = self.gateway.security
        if request.is_page:
            super().begin(line, request)
        elif security is None:
            self._admit(line, request, request.head)
        else:
            self._identify(line, request, security)

    def _identify(self, line: Line, request: Request, security: PublishSecurity) -> None:
        head = Head(request.pairs, request.fields, line.certificate)
        admit = partial(self._admit, line, request, head)
        if security.asks(request.topic):
            line.later(partial(security.identify, request.topic, head), admit)
        else:
            admit()

    def _admit(self, line: Line, request: Request, head: Head) -> None:
        if request.is_batch:
            stream = self.batches.open(request.topic, request.key, head, self.host.soon)
            if isinstance(stream, Answer):
                line.answer(stream, is_of_publish=True)
            else:
                line.take_body(BatchExchange(line, stream, self))
            return
        gateway = self.gateway
        admitted = gateway.admit(
            request.topic, request.expected_bytes, request.key, head, line.settled
        )
        if isinstance(admitted, Answer):
            line.answer(admitted, is_of_publish=True)
            return
        body = line.owe(admitted)
        if body is not None:
            gateway.hand_over(admitted, body)
        else:
            line.take_body(MessageBody(gateway, admitted))

    def rendered(self, pending: Pending, *, closes: bool) -> bytes:
        """As `Edge.rendered`; nearly all of them are stored."""
        if type(pending.outcome) is not Stored:
            return super().rendered(pending, closes=closes)
        return self.renderer.stored(pending.id, closes=closes)


class MessageBody(Body):
    """The body of one message, which comes in pieces."""

    owes_answer = True
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


class BatchExchange(Exchange):
    """One batch: its body and its lines at the same time.

    Neither direction waits for the other but where the stream says so: a publisher that writes all
    before it reads gets as far as the stream's bounds. One turn of the loop takes what the stream
    takes at once.
    """

    def __init__(self, line: Line, stream: BatchStream, edge: Edge) -> None:
        """After the stream's `idle_s` without a piece of the body, or without the publisher reading
        an answer, the batch ends.
        """
        self._line = line
        self._stream = stream
        self._edge = edge
        self._idle_s = stream.streams.idle_s
        self._since_s = edge.now_s
        # What has come and not been taken, and how much was in this turn of the loop.
        self._rest = b""
        self._taken_bytes = self._unread_bytes = 0
        self._is_held = self._is_read = self._is_woken = False
        stream.wake = self._wake
        line.begin(200, [(b"content-type", ANSWERS.encode())])

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
        self._stream.leave()
        self._go_on()

    def sent(self) -> None:
        """Record that the client has read all that was written."""
        self._since_s = self._edge.now_s
        self._stream.sent()
        self._wake()

    def sweep(self, now_s: float) -> None:
        """End a batch whose publisher does nothing."""
        unread_bytes = self._line.unread_bytes
        if unread_bytes != self._unread_bytes or (self._is_held and not self._line.is_paused):
            # It reads, however slowly; or it is the log that is waited for.
            self._unread_bytes, self._since_s = unread_bytes, now_s
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
        stream = self._stream
        if stream.is_closed:
            return
        may_read = stream.go_on()
        if may_read and not stream.is_over:
            may_read = self._take()
        if stream.is_left:
            if may_read:
                stream.close()
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
            self._taken_bytes += max(size, _PIECE_BYTES)
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
            line.write(lines)
            if not line.is_paused:
                stream.sent()
        if stream.is_answered and not line.is_paused:
            stream.close()
            line.finish()
        return stream.is_closed
