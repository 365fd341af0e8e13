"""What replaces h2's connection and the priorities in hypercorn's HTTP/2 protocol: fewer steps for
each request, and further limits.

Each name of hypercorn used here, in `connection.py` or in `stream.py` is tested in
`tests/publisher/test_hypercorn_contract.py`.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event as FrameEvent
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from priority.priority import DeadlockError, MissingStreamError

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
        # `heads.py` does.
        config.validate_inbound_headers = config.normalize_inbound_headers = False
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

    def __init__(self, buffers: Container[int], is_paused: Callable[[], bool]) -> None:
        """`buffers` has the streams that send bodies. None gets a turn while `is_paused`."""
        self._buffers = buffers
        self._is_paused = is_paused
        self._due: dict[int, None] = {}

    def block(self, stream_id: int) -> None:
        """Take the stream out of the rotation: it has nothing to send, or no window."""
        self._due.pop(stream_id, None)

    remove_stream = block

    def unblock(self, stream_id: int) -> None:
        """Put the stream into the rotation. Raises MissingStreamError."""
        if stream_id not in self._buffers:
            raise MissingStreamError
        self._due[stream_id] = None

    def __next__(self) -> int:
        if self._due and not self._is_paused():
            stream_id = next(iter(self._due))
            del self._due[stream_id]
            self._due[stream_id] = None
            return stream_id
        raise DeadlockError
