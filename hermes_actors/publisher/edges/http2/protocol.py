"""HTTP/2 by hypercorn, with what a node needs beside it: fewer frames, and further bounds.

Each name of hypercorn that is used here or in `connection.py` has its test in
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
"""What is due is written once in a turn, and before it is more than this."""
_TABLE_BYTES_MAX = 4_096
"""HPACK's default. The table is searched for each header of each answer, whatever size a client
asks for.
"""


class Frames(H2Connection):
    """h2's connection of a server, as hypercorn's protocol uses it."""

    MAX_CLOSED_STREAMS = STREAMS_MAX

    def __init__(self, head_bytes_max: int, events: FilterEvents) -> None:
        """`events` chooses those that hypercorn is given."""
        config = H2Configuration(client_side=False, header_encoding=None)
        config.validate_outbound_headers = config.normalize_outbound_headers = False
        super().__init__(config)
        limits = {SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX}
        limits[SettingCodes.MAX_HEADER_LIST_SIZE] = head_bytes_max
        self.local_settings = Settings(client=False, initial_values=limits)
        # h2 does not tell it of initial values.
        self.decoder.max_header_list_size = head_bytes_max
        self._events = events
        # Streams whose clients get no more room for now, and how much they get later.
        self._held: dict[int, int] = {}
        self._due_bytes = 0
        self.sent_bytes = 0
        """Of bodies, in all."""

    def receive_data(self, data: bytes) -> Iterator[FrameEvent]:  # type: ignore[override]
        """As h2's; an event is looked at when hypercorn has done with the one before."""
        events = super().receive_data(data)
        if self.encoder.header_table_size > _TABLE_BYTES_MAX:
            self.encoder.header_table_size = _TABLE_BYTES_MAX
        return self._events(events)

    def acknowledge_received_data(self, size: int, stream_id: int) -> None:
        """As h2's; the room of a stream that is held is given with its release."""
        if stream_id in self._held:
            self._held[stream_id] += size
        elif size:
            super().acknowledge_received_data(size, stream_id)

    def hold(self, stream_id: int) -> None:
        """Give a stream's client no more room."""
        self._held.setdefault(stream_id, 0)

    def release(self, stream_id: int) -> bool:
        """Give it room again; True when there was any to give."""
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
        """What is due, if it is much: hypercorn asks after each frame."""
        return self.due() if self._due_bytes >= _WRITE_BYTES else b""

    def due(self) -> bytes:
        """All that is due."""
        self._due_bytes = 0
        return super().data_to_send()


class StreamQueue:
    """Streams that have data to send, in turn. In place of `priority.PriorityTree`: RFC 9113 has no
    priorities any more.
    """

    def __init__(self, is_paused: Callable[[], bool]) -> None:
        """Nothing has its turn while `is_paused`."""
        self._is_paused = is_paused
        self._streams: set[int] = set()
        self._due: dict[int, None] = {}

    def insert_stream(self, stream_id: int) -> None:
        """Know it from now on."""
        self._streams.add(stream_id)

    def remove_stream(self, stream_id: int) -> None:
        """Know it no more."""
        self._streams.discard(stream_id)
        self._due.pop(stream_id, None)

    def block(self, stream_id: int) -> None:
        """It has nothing to send, or may not."""
        self._due.pop(stream_id, None)

    def unblock(self, stream_id: int) -> None:
        """It has something to send. Raises MissingStreamError."""
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
    """hypercorn's configuration: no logs, no end after so many requests, the edge's date."""

    accesslog = None
    errorlog = None
    keep_alive_max_requests = sys.maxsize

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        """As hypercorn's."""
        return [(b"date", self._edge.renderer.date.encode())]


class Context:
    """As `hypercorn.typing.WorkerContext`, of which HTTP/2 asks this much."""

    def __init__(self, event_class: Callable[[], Event]) -> None:
        self.event_class = event_class
        self.terminated = event_class()

    async def mark_request(self) -> None:
        """A request has begun; a node counts its own."""


class Protocol(H2Protocol):
    """hypercorn's protocol; an answer without a body is one frame."""

    _head: Response | None = None
    """A head whose next event says whether a body follows; nothing comes between the two."""

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
        # Its client may have taken the request back.
        with suppress(ProtocolError):
            self.connection.send_headers(stream_id, fields, end_stream=True)
        self.stream_buffers.pop(stream_id, None)
        self.priority.remove_stream(stream_id)

    async def reset(self, stream_id: int) -> None:
        """End one request whose answer cannot go on."""
        with suppress(ProtocolError):
            self.connection.reset_stream(stream_id, ErrorCodes.INTERNAL_ERROR)
        await self.stream_send(StreamClosed(stream_id))
        await self.forget(stream_id)

    async def forget(self, stream_id: int) -> None:
        """Drop what is left of a stream that was reset. hypercorn keeps it while there is nothing
        to send, or no room.
        """
        buffer = self.stream_buffers.pop(stream_id, None)
        self.priority.remove_stream(stream_id)
        if buffer is not None:
            await buffer.close()
