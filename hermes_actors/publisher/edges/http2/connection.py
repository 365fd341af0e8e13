"""One HTTP/2 connection, without I/O: h2 reads and writes its frames; streams are the lines of
requests, which need no task here either.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError

from hermes_actors.errors import Unavailable
from hermes_actors.publisher.answers import Abandoned, Answer, error_answer
from hermes_actors.publisher.edges.edge import LEAVE_S, Body, Edge, Exchange, Fields, Wire
from hermes_actors.publisher.edges.http1.wire import METHODS, TARGET
from hermes_actors.publisher.edges.http2.frames import LAST_STREAM, Http2Frames, go_away
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import ABSENT, Pending
from hermes_actors.security.account import ClientCertificate

TURN_FRAMES = 64
"""Frames after which others have their turn of the loop: two are a publish, and a read may bring
thousands.
"""
TURN_BYTES = 65_536
_PIECE_BYTES = 512
"""So many more frames than that may be in a turn as this has, 56 of the shortest."""
_CONTINUE = [(b":status", b"100")]
_ONE_PAGE = error_answer(
    Unavailable("The page before it on this connection has not been read yet; ask again then"), ""
)


class Http2Connection:
    """The network calls `received`, `ended`, `lost`, `paused` and `resumed`; the sweep `sweep`."""

    def __init__(
        self, edge: Edge, wire: Wire, certificate: ClientCertificate | None = None
    ) -> None:
        self.edge = edge
        self.certificate = certificate
        self.is_paused = False
        self.due_s = 0.0
        """The sweep need not look at it before."""
        self.wire = wire
        self.frames = Http2Frames(edge.heads.bytes_max)
        # Those whose answers have not gone to their end, in the order of their turns.
        self._streams: dict[int, Stream] = {}
        # The stream of the page that took its time last.
        self._page_id = 0
        # What has come and was not taken in this turn of the loop.
        self._rest = b""
        self.is_lost = self._is_taking = self._writes_soon = False
        self._since_s = self._unsent_since_s = edge.now_s
        self.unsent_bytes = 0
        """What waited at the last look; 0 when some has gone since: the rest is timed anew."""
        self._leaves_at_s = 0.0
        self.write_due()

    # The network.

    def received(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._rest += data
        self._take()

    def ended(self) -> None:
        """The client sends no more: it is gone."""
        self.wire.close()

    def lost(self) -> None:
        """Drop everything under way: the connection is gone."""
        self.is_lost = True
        for stream in list(self._streams.values()):
            stream.gone()
        self._streams.clear()

    def paused(self) -> None:
        """Read nothing more of a client that does not read its answers, until it does."""
        self.is_paused = True
        self.wire.pause_reading()

    def resumed(self) -> None:
        """Go on: what was written has gone."""
        self.is_paused = False
        self.unsent_bytes = 0
        self.write_due()
        for stream in list(self._streams.values()):
            stream.resumed()
        # What was written may have filled the wire again.
        if not (self._rest or self.is_paused):
            self.wire.resume_reading()

    # The listener.

    def sweep(self, now_s: float) -> None:
        """Close what idles or is not read, and look after the exchanges."""
        unsent_bytes = self.wire.get_write_buffer_size()
        for stream in list(self._streams.values()):
            unsent_bytes += stream.unsent_bytes
            stream.sweep(now_s)
        if not unsent_bytes or unsent_bytes != self.unsent_bytes:
            self.unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
        elif now_s > self._unsent_since_s + self.edge.unread_s:
            self.abort()
            return
        self.due_s = 0.0
        if not (self._streams or unsent_bytes or self.is_lost):
            self.due_s = self._leaves_at_s or self._since_s + self.edge.idle_s
            if now_s > self.due_s:
                # What comes after the stream that is named was not looked at: it may be sent again.
                self.wire.write(go_away(self.frames.highest_inbound_stream_id))
                self._leave()

    def leave(self, now_s: float) -> None:
        """Prepare for the listener's end: one more request is begun, if it comes soon. It may be on
        its way, and a client could not tell what became of it.
        """
        self._leaves_at_s = now_s + LEAVE_S
        self.due_s = 0.0
        self.wire.write(go_away(LAST_STREAM))

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self.wire.abort()

    # Requests.

    def _take(self) -> None:
        """Take what has come, as much as may be in one turn of the loop."""
        self._is_taking = True
        at, frames_max = 0, self.frames.frames_received + TURN_FRAMES
        data, self._rest = self._rest, b""
        while at < len(data) and not self.is_lost:
            if self.frames.frames_received >= frames_max or at >= TURN_BYTES:
                self._rest = data[at:]
                self.wire.pause_reading()
                self.edge.host.soon(self._go_on)
                break
            piece = data[at : at + _PIECE_BYTES]
            at += len(piece)
            try:
                events = self.frames.receive_data(piece)
            except ProtocolError:
                self._leave()
                break
            for event in events:
                if not self.is_lost:
                    self._follow(event)
            if self.frames.gathers_too_much:
                self._refuse()
        self._is_taking = False
        self.write_due()

    def _go_on(self) -> None:
        if self.is_lost:
            return
        self._take()
        if not (self._rest or self.is_paused or self.is_lost):
            self.wire.resume_reading()

    def _leave(self) -> None:
        """End a connection whose frames nobody can follow, or whose client has said goodbye."""
        if data := self.frames.data_to_send():
            self.wire.write(data)
        self.lost()
        self.wire.close()

    def _refuse(self) -> None:
        """End the connection of a client that wants too much."""
        if not self.is_lost:
            self.frames.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._leave()

    def _follow(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, DataReceived):
            size = event.flow_controlled_length
            stream = self._streams.get(event.stream_id)
            if stream is None or not stream.take(event.data, size):
                self.acknowledge(event.stream_id, size)
        elif isinstance(event, StreamEnded):
            if (stream := self._streams.get(event.stream_id)) is not None:
                stream.end()
        elif isinstance(event, StreamReset):
            if (stream := self._streams.pop(event.stream_id, None)) is not None:
                stream.gone()
                self._since_s = self.edge.now_s
        elif isinstance(event, ConnectionTerminated):
            if event.error_code or not self._streams:
                self._leave()
            else:
                self._leaves_at_s = self.edge.now_s + LEAVE_S
        elif isinstance(event, RemoteSettingsChanged) and not self.frames.bound_settings(event):
            self._refuse()

    def acknowledge(self, stream_id: int, size: int) -> None:
        """Let the client send so many bytes more."""
        if size:
            self.frames.acknowledge_received_data(size, stream_id)

    def _begin(self, event: RequestReceived) -> None:
        self.due_s = 0.0
        stream_id = event.stream_id
        fields = dict(event.headers)
        host = fields.get(b":authority", fields.get(b"host", b""))
        pairs = [(b"host", host)]
        pairs += [pair for pair in event.headers if pair[0][:1] != b":" and pair[0] != b"host"]
        method, path = fields[b":method"].decode("latin-1"), fields.get(b":path", b"")
        # The library has seen that it is a number, and the same where it comes twice.
        length = fields.get(b"content-length")
        target, expected = path.decode("latin-1"), ABSENT if length is None else int(length)
        request = Request(self.edge.config, "2", method, target, pairs, dict(pairs), expected)
        self._streams[stream_id] = stream = Stream(self, stream_id, request)
        if method not in METHODS:
            stream.answer(Answer(501))
        elif TARGET.fullmatch(path) is None:
            stream.answer(Answer(400))
        elif request.refusal is not None:
            stream.answer(self.edge.refuse(request.refusal))
        else:
            self.edge.begin(stream, request)

    # Answers.

    def takes_page(self, stream_id: int) -> bool:
        """Whether a page that takes its time may be begun: one of them has been read before the
        next, or a client that reads none would have the node render and keep as many as streams.
        """
        if self._page_id in self._streams:
            return False
        self._page_id = stream_id
        return True

    def forget(self, stream_id: int) -> None:
        """A stream's answer has gone to its end."""
        if self._streams.pop(stream_id, None) is not None and not self._streams:
            self._since_s = self.edge.now_s

    def write_soon(self) -> None:
        """Write what is due: now if there is one stream, else with what others add in this turn."""
        if self._is_taking:
            return
        if len(self._streams) <= 1:
            self.write_due()
        elif not self._writes_soon:
            self._writes_soon = True
            self.edge.host.soon(self.write_due)

    def write_due(self) -> None:
        """Write the frames that are due, as far as the client gives room for them."""
        self._writes_soon = False
        if self.is_lost:
            return
        streams = [each for each in self._streams.values() if each.unsent_bytes]
        while streams and not self.is_paused:
            streams = [each for each in streams if each.write_frame()]
        if data := self.frames.data_to_send():
            self.wire.write(data)


class Stream:
    """One request, and its answer."""

    __slots__ = ("_body", "_cancel", "_connection", "_early", "_exchange", "_has_ended", "_head",
                 "_held_bytes", "_id", "_is_bare", "_is_finished", "_is_held", "_is_over",
                 "_request", "_unsent")  # fmt: skip

    def __init__(self, connection: Http2Connection, stream_id: int, request: Request) -> None:
        self._connection = connection
        self._id = stream_id
        self._request = request
        self._body: Body | None = None
        self._exchange: Exchange | None = None
        # What of the body has come while who sends it is being found out.
        self._cancel: Callable[[], None] | None = None
        self._early = b""
        # The head of the answer while that waits for the first piece.
        self._head: Fields = []
        self._unsent = bytearray()
        self._held_bytes = 0
        self._is_held = self._has_ended = self._is_finished = self._is_over = False
        self._is_bare = False

    # The connection.

    @property
    def unsent_bytes(self) -> int:
        """How much of its answer waits for the client."""
        return len(self._unsent)

    def take(self, piece: bytes, size: int) -> bool:
        """Take a piece of the body; True when the `size` of its frame is acknowledged later."""
        if not piece:
            # The client needs no room for such frames: as many of them may come as it likes.
            return False
        if self._cancel is not None:
            self._early += piece
        elif self._body is not None:
            self._body.data(piece)
        else:
            return False
        if self._is_held:
            self._held_bytes += size
        return self._is_held

    def end(self) -> None:
        """Take the end of the body."""
        self._has_ended = True
        body, self._body = self._body, None
        if body is not None:
            body.end()

    def gone(self) -> None:
        """Leave a client that is gone, or has taken its request back."""
        self._is_over = True
        if self._cancel is not None:
            self._cancel()
        body = self._body or self._exchange
        self._body = self._exchange = None
        if body is not None:
            body.gone()
        self.release()

    def sweep(self, now_s: float) -> None:
        """End an exchange whose client does nothing for too long."""
        if self._exchange is not None:
            self._exchange.sweep(now_s)

    def resumed(self) -> None:
        """Tell the exchange if all that it wrote has gone."""
        if self._exchange is not None and not self._unsent:
            self._exchange.sent()

    def write_frame(self) -> bool:
        """Write a frame of what waits, if the client has room; True when more may be written."""
        frames = self._connection.frames
        try:
            room = min(frames.local_flow_control_window(self._id), frames.max_outbound_frame_size)
            if room <= 0:
                return False
            data = bytes(self._unsent[:room])
            del self._unsent[:room]
            is_last = self._is_finished and not self._unsent
            frames.send_data(self._id, data, end_stream=is_last)
            self._connection.unsent_bytes = 0
        except ProtocolError:
            # Taken back by its client in the read that is being followed: it will be `gone`.
            self._unsent.clear()
            return False
        if is_last:
            self._connection.forget(self._id)
        else:
            self.resumed()
        return bool(self._unsent)

    # The line of its request.

    @property
    def certificate(self) -> ClientCertificate | None:
        """As `Line.certificate`."""
        return self._connection.certificate

    @property
    def is_paused(self) -> bool:
        """As `Line.is_paused`."""
        return bool(self._unsent) or self._connection.is_paused

    @property
    def unread_bytes(self) -> int:
        """As `Line.unread_bytes`."""
        connection = self._connection
        wire_bytes = connection.wire.get_write_buffer_size() if connection.is_paused else 0
        return len(self._unsent) + wire_bytes

    def answer(self, answer: Answer, *, is_of_publish: bool = False) -> None:
        """As `Line.answer`."""
        self._body = None
        self.begin(answer.status, answer.fields())
        if answer.body:
            self.write(answer.body)
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
            self.answer(self._connection.edge.answer_to(pending))

    def take_body(self, body: Body) -> None:
        """As `Line.take_body`."""
        self._body = body
        if isinstance(body, Exchange):
            self._exchange = body
        early, self._early = self._early, b""
        if early:
            body.data(early)
        if self._has_ended:
            self.end()
        elif self._request.expects_continue and not (early or self._is_over):
            with suppress(ProtocolError):
                self._connection.frames.send_headers(self._id, _CONTINUE)
            self._connection.write_soon()

    def begin(self, status: int, fields: Fields) -> None:
        """As `Line.begin`."""
        date = self._connection.edge.renderer.date.encode()
        self._head = [(b":status", b"%d" % status), *fields, (b"date", date)]
        self._is_bare = self._request.is_bare(status)

    def write(self, data: bytes) -> None:
        """As `Line.write`."""
        if self._is_bare:
            return
        if self._head:
            self._send_head(is_last=False)
        self._unsent += data
        self._connection.write_soon()

    def finish(self) -> None:
        """As `Line.finish`."""
        connection = self._connection
        self._is_finished = self._is_over = True
        self._body = self._exchange = None
        self.release()
        if self._head:
            self._send_head(is_last=True)
        elif not self._unsent:
            with suppress(ProtocolError):
                connection.frames.end_stream(self._id)
        if not self._unsent:
            connection.forget(self._id)
        connection.write_soon()

    def _send_head(self, *, is_last: bool) -> None:
        head, self._head = self._head, []
        # Its client may have taken the request back in the read that is being followed.
        with suppress(ProtocolError):
            self._connection.frames.send_headers(self._id, head, end_stream=is_last)

    def hold(self) -> None:
        """As `Line.hold`: the client is given no more room."""
        self._is_held = True

    def release(self) -> None:
        """As `Line.release`."""
        self._is_held = False
        size, self._held_bytes = self._held_bytes, 0
        if size and not self._connection.is_lost:
            self._connection.acknowledge(self._id, size)
            self._connection.write_soon()

    def abort(self) -> None:
        """As `Line.abort`, of this request alone."""
        if not self._is_over:
            with suppress(ProtocolError):
                self._connection.frames.reset_stream(self._id, ErrorCodes.INTERNAL_ERROR)
            self._connection.forget(self._id)
            self.gone()
            self._connection.write_soon()
