"""hypercorn's HTTP/2 protocol with the changes that a node needs: fewer frames, and further limits.

Each name of hypercorn used here or in `connection.py` is tested in
`tests/publisher/test_hypercorn_contract.py`.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event as FrameEvent
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hypercorn.config import Config
from hypercorn.protocol.events import EndBody, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h2 import H2Protocol
from priority.priority import DeadlockError, MissingStreamError

from hermes_actors.publisher.edges.edge import Edge
from hermes_actors.publisher.edges.http2.coroutines import Event

STREAMS_MAX = 1_000
FilterEvents = Callable[[Iterable[FrameEvent]], Iterator[FrameEvent]]
_WRITE_BYTES = 65_536
"""Output is written once per turn, or as soon as it exceeds this."""
_TABLE_BYTES_MAX = 4_096
"""HPACK's default, kept even if a client asks for more: the table is searched for each header of
each answer.
"""


class Frames(H2Connection):
    """h2's server connection, as hypercorn's protocol uses it."""

    MAX_CLOSED_STREAMS = STREAMS_MAX

    def __init__(self, head_bytes_max: int, events: FilterEvents) -> None:
        """`events` filters the events that hypercorn gets."""
        config = H2Configuration(client_side=False, header_encoding=None)
        config.validate_outbound_headers = config.normalize_outbound_headers = False
        super().__init__(config)
        limits = {SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX}
        limits[SettingCodes.MAX_HEADER_LIST_SIZE] = head_bytes_max
        self.local_settings = Settings(client=False, initial_values=limits)
        # h2 does not pass initial values on to the decoder.
        self.decoder.max_header_list_size = head_bytes_max
        self._events = events
        # Streams whose flow-control window is held, each with the bytes to acknowledge later.
        self._held: dict[int, int] = {}
        self._due_bytes = 0
        self.sent_bytes = 0
        """Bytes of bodies sent so far."""

    def receive_data(self, data: bytes) -> Iterator[FrameEvent]:  # type: ignore[override]
        """As h2's, but lazy: an event is processed after hypercorn has finished the one before."""
        events = super().receive_data(data)
        if self.encoder.header_table_size > _TABLE_BYTES_MAX:
            self.encoder.header_table_size = _TABLE_BYTES_MAX
        return self._events(events)

    def acknowledge_received_data(self, size: int, stream_id: int) -> None:
        """As h2's; bytes of a held stream are acknowledged when it is released."""
        if stream_id in self._held:
            self._held[stream_id] += size
        elif size:
            super().acknowledge_received_data(size, stream_id)

    def hold(self, stream_id: int) -> None:
        """Stop enlarging a stream's flow-control window."""
        self._held.setdefault(stream_id, 0)

    def release(self, stream_id: int) -> bool:
        """Enlarge the window again. True if there was anything to acknowledge."""
        size = self._held.pop(stream_id, 0)
        with suppress(ProtocolError):
            self.acknowledge_received_data(size, stream_id)
        return size > 0

    def send_data(self, stream_id: int, data: bytes) -> None:  # type: ignore[override]
        """As h2's."""
        super().send_data(stream_id, data)
        self._due_bytes += len(data)
        self.sent_bytes += len(data)

    def data_to_send(self, amount: int | None = None) -> bytes:
        """The output if it is large, else nothing: hypercorn asks after each frame."""
        return self.due() if self._due_bytes >= _WRITE_BYTES else b""

    def due(self) -> bytes:
        """All pending output."""
        self._due_bytes = 0
        return super().data_to_send()


class StreamQueue:
    """Streams with data to send, round-robin. It replaces `priority.PriorityTree`, because RFC 9113
    has dropped priorities.
    """

    def __init__(self, is_paused: Callable[[], bool]) -> None:
        """No stream gets a turn while `is_paused`."""
        self._is_paused = is_paused
        self._streams: set[int] = set()
        self._due: dict[int, None] = {}

    def insert_stream(self, stream_id: int) -> None:
        """Register the stream."""
        self._streams.add(stream_id)

    def remove_stream(self, stream_id: int) -> None:
        """Unregister the stream."""
        self._streams.discard(stream_id)
        self._due.pop(stream_id, None)

    def block(self, stream_id: int) -> None:
        """Take the stream out of the rotation: it has nothing to send, or no window."""
        self._due.pop(stream_id, None)

    def unblock(self, stream_id: int) -> None:
        """Put the stream into the rotation. Raises MissingStreamError."""
        if stream_id not in self._streams:
            raise MissingStreamError
        self._due[stream_id] = None

    def __next__(self) -> int:
        if self._due and not self._is_paused():
            stream_id = next(iter(self._due))
            del self._due[stream_id]
            self._due[stream_id] = None
            return stream_id
        raise DeadlockError


class EdgeConfig(Config):
    """hypercorn's configuration: no logs, no limit on requests per connection, the edge's date."""

    accesslog = None
    errorlog = None
    keep_alive_max_requests = sys.maxsize

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """As hypercorn's."""
        return [(b"date", self._edge.renderer.date.encode())]


class Context:
    """As much of `hypercorn.typing.WorkerContext` as HTTP/2 needs."""

    def __init__(self, event_class: Callable[[], Event]) -> None:
        self.event_class = event_class
        self.terminated = event_class()

    async def mark_request(self) -> None:
        """Do nothing: a node counts its requests itself."""


class Protocol(H2Protocol):
    """hypercorn's protocol, except that an answer without a body is sent as one frame."""

    _head: Response | None = None
    """An answer's head, kept until the next event shows whether a body follows."""

    async def stream_send(self, event: StreamEvent) -> None:
        """As hypercorn's."""
        if isinstance(event, Response):
            self._head = event
            return
        head, self._head = self._head, None
        if head is not None:
            if isinstance(event, EndBody):
                self._answer_without_body(head)
                return
            await super().stream_send(head)
        await super().stream_send(event)

    def _answer_without_body(self, head: Response) -> None:
        stream_id = head.stream_id
        fields = [(b":status", b"%d" % head.status_code), *head.headers]
        fields += self.config.response_headers("h2")
        # The client may have reset the stream.
        with suppress(ProtocolError):
            self.connection.send_headers(stream_id, fields, end_stream=True)
        self.stream_buffers.pop(stream_id, None)
        self.priority.remove_stream(stream_id)

    async def reset(self, stream_id: int) -> None:
        """Reset a stream whose answer cannot continue."""
        with suppress(ProtocolError):
            self.connection.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
        await self.stream_send(StreamClosed(stream_id))
        await self.forget(stream_id)

    async def forget(self, stream_id: int) -> None:
        """Drop the rest of a stream that was reset; hypercorn would keep it while there is nothing
        to send or no window.
        """
        buffer = self.stream_buffers.pop(stream_id, None)
        self.priority.remove_stream(stream_id)
        if buffer is not None:
            await buffer.close()
