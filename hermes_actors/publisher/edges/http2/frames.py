"""The frames of one HTTP/2 connection, by h2, with the bounds that the library leaves out."""

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    TrailersReceived,
)
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

LAST_STREAM = 2**31 - 1
STREAMS_MAX = 1_000
_SETTINGS_MAX = 1_000
"""Settings that one client may send in all; each costs as much as all its streams."""
_TABLE_BYTES_MAX = 4_096
"""HPACK's default. What is in the table is searched for each header of each answer."""
_FRAME_BYTES_MAX = 16_384 + 9
"""With its header; this server announces no more (RFC 9113, 4.2)."""


_FIELD_BYTES = 32
"""Counted of each field beside its name and value (RFC 7541, 4.1); a byte may stand for it all."""
_HEAD_BYTES_A_FRAME = 256
"""So much of a head takes the library as long as a frame."""
_HEADS = (RequestReceived, TrailersReceived)


class Http2Frames(H2Connection):
    """h2's connection of a server, which counts the frames that it is given, large heads for as
    many as they take the time of, and remembers of fewer closed streams how they closed than
    h2's 10 MB for each connection.

    Its upper bound in pyproject.toml guards the private names that it uses.
    """

    MAX_CLOSED_STREAMS = STREAMS_MAX
    frames_received = 0

    def __init__(self, head_bytes_max: int) -> None:
        """`head_bytes_max` bounds the head of a request."""
        super().__init__(H2Configuration(client_side=False, header_encoding=None))
        self.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: head_bytes_max,
            },
        )
        # Of initial values the library does not tell it.
        self.decoder.max_header_list_size = head_bytes_max
        self._gathered_bytes_max = _FRAME_BYTES_MAX + head_bytes_max
        self._settings_left = _SETTINGS_MAX
        self.initiate_connection()

    @property
    def gathers_too_much(self) -> bool:
        """True when more of a frame or a head is here, without its end, than either may have.

        The library would gather up to 16 MiB of a frame before it says that it is too long, and
        1 MiB of a head in frames that are not.
        """
        buffer = self.incoming_buffer
        heads_bytes = sum([len(each.data) for each in buffer._headers_buffer])
        return len(buffer._data) + heads_bytes > self._gathered_bytes_max

    def bound_settings(self, event: RemoteSettingsChanged) -> bool:
        """Keep what a client sets from growing; False when it has set too much.

        The library would keep settings that nobody knows, go through all of them for each further
        one, and let its table of headers have any size.
        """
        self._settings_left -= max(1, len(event.changed_settings))
        for code in event.changed_settings:
            if not isinstance(code, SettingCodes):
                self.remote_settings.pop(code, None)
        if self.encoder.header_table_size > _TABLE_BYTES_MAX:
            self.encoder.header_table_size = _TABLE_BYTES_MAX
        return self._settings_left >= 0

    def _receive_frame(self, frame: Frame) -> list[Event]:
        events = super()._receive_frame(frame)
        self.frames_received += 1
        for event in events:
            if isinstance(event, _HEADS):
                sizes = [len(name) + len(value) + _FIELD_BYTES for name, value in event.headers]
                self.frames_received += sum(sizes) // _HEAD_BYTES_A_FRAME
        return events

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.error_code:
            return super()._receive_goaway_frame(frame)
        # A client that asks for no more wants its answers still (RFC 9113, 6.8); the library would
        # send none.
        event = ConnectionTerminated()
        event.error_code, event.last_stream_id = ErrorCodes.NO_ERROR, frame.last_stream_id
        return [], [event]


def go_away(last_stream_id: int) -> bytes:
    """The frame that no further request may be sent; those above the stream that it names were not
    looked at, and LAST_STREAM is above all (RFC 9113, 6.8).
    """
    return b"\x00\x00\x08\x07\x00\x00\x00\x00\x00%b\x00\x00\x00\x00" % last_stream_id.to_bytes(4)
