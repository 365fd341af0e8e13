"""One HTTP/2 connection, without I/O: hypercorn's protocol between a transport and the edge,
without a task for each request.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from h2.errors import ErrorCodes
from h2.events import DataReceived, PriorityUpdated, RequestReceived, StreamReset, TrailersReceived
from h2.events import Event as FrameEvent
from h2.exceptions import ProtocolError
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.events import Event as WireEvent
from hypercorn.protocol.h2 import H2Protocol

from hermes_actors.publisher.edges.edge import LEAVE_S, Edge, Fields, Wire
from hermes_actors.publisher.edges.http1.heads import Malformed
from hermes_actors.publisher.edges.http2.coroutines import Coroutines
from hermes_actors.publisher.edges.http2.frames import LAST_STREAM, FrameGuard, TooMuch, go_away
from hermes_actors.publisher.edges.http2.heads import check
from hermes_actors.publisher.edges.http2.protocol import Frames, StreamQueue
from hermes_actors.publisher.edges.http2.stream import Stream
from hermes_actors.security.account import ClientCertificate


class Http2Connection:
    """The network calls `received`, `ended`, `lost`, `paused` and `resumed`; the server's sweep
    calls `sweep`; hypercorn calls `spawn`.
    """

    def __init__(
        self,
        edge: Edge,
        wire: Wire,
        certificate: ClientCertificate | None = None,
        address: str = "",
    ) -> None:
        self.edge = edge
        self.wire = wire
        self.certificate = certificate
        self.address = address
        self.streams: dict[int, Stream] = {}
        """The streams whose answers are not completely sent."""
        self.is_paused = self.is_lost = False
        self.due_s = 0.0
        """The sweep can skip it until then."""
        self._since_s = self._unsent_since_s = edge.now_s
        self._unsent = (0, 0)
        self._leaves_at_s = 0.0
        # The stream of the last page that took time to render.
        self._page_id = 0
        self._coroutines = Coroutines()
        self._is_running = self._runs_soon = False
        self._guard = FrameGuard(edge.heads.bytes_max)
        self.frames = Frames(edge.heads.bytes_max, self._events)
        make: Any = H2Protocol
        context = SimpleNamespace(event_class=self._coroutines.event)
        self.protocol: H2Protocol = make(
            None, Config(), context, self, {}, False, None, None, self._send
        )
        self.protocol.connection = self.frames
        self.protocol.streams = cast("Any", self.streams)
        turns = StreamQueue(self.protocol.stream_buffers, lambda: self.is_paused)
        self.protocol.priority = cast("Any", turns)
        self._coroutines.add(self.protocol.initiate())
        self._run()

    # The network.

    def received(self, data: bytes) -> None:
        """Take bytes from the client."""
        if not self.is_lost:
            self._guard.receive(data)
            self._take()

    def ended(self) -> None:
        """The client has closed its side, so it is gone."""
        self.wire.close()

    def lost(self) -> None:
        """The connection is gone: drop everything under way."""
        if not self.is_lost:
            self.is_lost = True
            self._coroutines.add(self.protocol.handle(Closed()))
            self._run()

    def paused(self) -> None:
        """The client does not read its answers: read nothing from it until it does."""
        self.is_paused = True
        self.wire.pause_reading()

    def resumed(self) -> None:
        """Everything written has been sent: continue."""
        self.is_paused = False
        self._coroutines.add(self.protocol.has_data.set())
        self._run()
        for stream in list(self.streams.values()):
            stream.resumed()
        # Writing may have filled the transport again.
        if not (self._guard.is_full or self.is_paused):
            self.wire.resume_reading()

    def _take(self) -> None:
        """Process received bytes, as many as one turn of the loop allows."""
        try:
            data = self._guard.take()
        except TooMuch as much:
            self._end(much.error)
            return
        if data:
            self._coroutines.add(self.protocol.handle(RawData(data)))
            self._run()
        if self._guard.is_leaving and not self._leaves_at_s:
            self._leaves_at_s = self.edge.now_s + LEAVE_S
            if not self.streams:
                self._leave()
        if self._guard.is_full and not self.is_lost:
            self.wire.pause_reading()
            self.edge.host.soon(self._next_turn)

    def _next_turn(self) -> None:
        if not self.is_lost:
            self._take()
        if not (self._guard.is_full or self.is_paused or self.is_lost):
            self.wire.resume_reading()

    def _end(self, error: ErrorCodes) -> None:
        self.frames.close_connection(error)
        self._leave()

    def _leave(self) -> None:
        """Close the connection, because its frames are unusable or its client has said goodbye."""
        self._write()
        self.lost()
        self.wire.close()

    # The listener.

    def sweep(self, now_s: float) -> None:
        """Close the connection if it idles or its answers are not read, and check the exchanges."""
        unsent_bytes = self.wire.get_write_buffer_size()
        for stream in list(self.streams.values()):
            unsent_bytes += stream.waiting_bytes
            stream.sweep(now_s)
        unsent = (unsent_bytes, self.frames.sent_bytes)
        if not unsent_bytes or unsent != self._unsent:
            self._unsent, self._unsent_since_s = unsent, now_s
        elif now_s > self._unsent_since_s + self.edge.unread_s:
            self.abort()
            return
        self.due_s = 0.0
        if self.streams:
            self._since_s = now_s
        elif not (unsent_bytes or self.is_lost):
            self.due_s = self._leaves_at_s or self._since_s + self.edge.idle_s
            if now_s > self.due_s:
                # Requests after the stream that is named were not processed and may be sent again.
                self.wire.write(go_away(self.frames.highest_inbound_stream_id))
                self._leave()

    def leave(self, now_s: float) -> None:
        """Prepare for the listener's end: one more request is served if it arrives soon. It may
        already be on its way, and its client could not know what became of it.
        """
        self._leaves_at_s = now_s + LEAVE_S
        self.due_s = 0.0
        self.wire.write(go_away(LAST_STREAM))

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self.wire.abort()

    # hypercorn.

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine, together with others that start in this turn of the loop."""
        self._coroutines.add(coroutine)
        self.write_soon()

    def write_soon(self) -> None:
        """Write the output of this turn of the loop at its end."""
        if not (self._is_running or self._runs_soon):
            self._runs_soon = True
            self.edge.host.soon(self._run)

    def _run(self) -> None:
        self._runs_soon = False
        if self._is_running:
            return
        self._is_running = True
        try:
            self._coroutines.run()
        except BaseException:
            self.abort()
            raise
        finally:
            self._is_running = False
        self._write()

    def _write(self) -> None:
        if not self.is_lost and (data := self.frames.due()):
            self.wire.write(data)

    async def _send(self, event: WireEvent) -> None:
        if isinstance(event, RawData):
            if not self.is_lost:
                self.wire.write(event.data)
        elif isinstance(event, Closed):
            self._leave()

    def _events(self, events: Iterable[FrameEvent]) -> Iterator[FrameEvent]:
        """Pass on the events that hypercorn handles, and deal with those that it does not handle
        well.
        """
        try:
            for event in events:
                if self.is_lost:
                    return
                if isinstance(event, RequestReceived):
                    self._begin(event)
                elif isinstance(event, TrailersReceived):
                    check(event.headers, is_trailer=True)
                elif isinstance(event, DataReceived) and not (
                    event.data and event.stream_id in self.streams
                ):
                    # The rest of a body that has been answered, or an empty piece; neither needs
                    # room.
                    self.frames.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
                elif not isinstance(event, PriorityUpdated):
                    yield event
                    if isinstance(event, StreamReset):
                        self._coroutines.add(self.forget(event.stream_id))
        except ProtocolError as error:
            self._end(error.error_code)

    def spawn(self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """As `hypercorn.typing.TaskGroup.spawn`."""
        self._coroutines.add(function(*arguments))

    # Streams.

    def _begin(self, event: RequestReceived) -> None:
        """Begin a request. Raises ProtocolError."""
        self.due_s, self._since_s = 0.0, self.edge.now_s
        try:
            request = self.edge.heads.request_of(event)
        except Malformed as malformed:
            no_body = [(b"content-length", b"0")]
            self.send_head(event.stream_id, malformed.status, no_body, ends=True)
            return
        stream = self.streams[event.stream_id] = Stream(self, event.stream_id, request)
        if request.refusal is not None:
            stream.answer(self.edge.refuse(request.refusal))
        else:
            self.edge.begin(stream, request)

    def send_head(self, stream_id: int, status: int, fields: Fields, *, ends: bool) -> None:
        """Send the head of an answer; `ends`: it has no body."""
        date = (b"date", self.edge.renderer.date.encode())
        # The client may have reset the stream.
        with suppress(ProtocolError):
            self.frames.send_headers(
                stream_id, [(b":status", b"%d" % status), *fields, date], end_stream=ends
            )
        self.write_soon()

    async def forget(self, stream_id: int) -> None:
        """Drop the rest of an answer that was reset; hypercorn would keep it while there is nothing
        to send or no window.
        """
        buffer = self.protocol.stream_buffers.pop(stream_id, None)
        self.protocol.priority.remove_stream(stream_id)
        if buffer is not None:
            await buffer.close()

    def takes_page(self, stream_id: int) -> bool:
        """True if a page that takes time to render may begin: the client must have read the one
        before. Otherwise a client that reads nothing could make the node render and keep one page
        per stream.
        """
        if self._page_id in self.streams:
            return False
        self._page_id = stream_id
        return True
