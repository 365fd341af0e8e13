"""Limits the frames of a client: how many, how large, and how much in one turn of the loop.

Only the nine bytes before each frame are parsed here; h2 parses the frames.
"""

from h2.errors import ErrorCodes

LAST_STREAM = 2**31 - 1
TURN_FRAMES = 64
"""Frames processed in one turn of the loop. A publish has two frames; one read may contain
thousands.
"""
TURN_BYTES = 65_536
_HEAD_BYTES_A_FRAME = 16
"""This many bytes of a head count as one frame, because a single byte may encode a whole field."""
_FRAME_BYTES_MAX = 16_384
"""Maximum frame size that the server allows (RFC 9113, 4.2)."""
_SETTINGS_MAX = 1_000
"""Settings that one client may send in total; each costs time for all of its streams."""

_PREFACE_BYTES = 24
_HEADERS, _SETTINGS, _GOAWAY, _CONTINUATION = 1, 4, 7, 9
_ACK = 1


class TooMuch(Exception):
    """The connection must be closed with this error."""

    def __init__(self, error: ErrorCodes) -> None:
        super().__init__(error)
        self.error = error


class FrameGuard:
    """Buffers the bytes of a client until they may be processed."""

    def __init__(self, head_bytes_max: int) -> None:
        """`head_bytes_max` limits the head of a request."""
        self._head_bytes_max = _FRAME_BYTES_MAX + head_bytes_max
        self._data = b""
        # The bytes still missing of the last frame taken.
        self._left_bytes = _PREFACE_BYTES
        self._head_bytes = 0
        self._settings_left = _SETTINGS_MAX
        self.is_full = False
        """True if more has been received than one turn may process."""
        self.is_leaving = False
        """True if the client has announced, without an error, that it sends no more requests."""

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._data = self._data + data if self._data else data

    def take(self) -> bytes:
        """Return the bytes to process in this turn. Raises TooMuch.

        A GOAWAY without an error is left out: the client still wants its answers (RFC 9113, 6.8),
        but h2 would stop sending.
        """
        data, at, cost = self._data, self._left_bytes, 0
        end = len(data)
        while at + 9 <= end and cost < TURN_FRAMES and at < TURN_BYTES:
            length, kind = int.from_bytes(data[at : at + 3]), data[at + 3]
            if kind == _GOAWAY and length <= _FRAME_BYTES_MAX:
                if at + 9 + length > end:
                    break
                is_connections = not any(data[at + 5 : at + 9])
                if is_connections and length >= 8 and not any(data[at + 13 : at + 17]):
                    self.is_leaving = True
                    data = data[:at] + data[at + 9 + length :]
                    end = len(data)
                    cost += 1
                    continue
            cost += self._cost_of(kind, data[at + 4], length)
            at += 9 + length
        self.is_full = cost >= TURN_FRAMES or (at >= TURN_BYTES and at < end)
        self._left_bytes = max(0, at - end)
        self._data = data[at:]
        return data[:at]

    def _cost_of(self, kind: int, flags: int, length: int) -> int:
        if length > _FRAME_BYTES_MAX:
            # h2 would buffer up to 16 MiB of it before raising an error.
            raise TooMuch(ErrorCodes.FRAME_SIZE_ERROR)
        if kind in (_HEADERS, _CONTINUATION):
            self._head_bytes = length + (self._head_bytes if kind == _CONTINUATION else 0)
            if self._head_bytes > self._head_bytes_max:
                raise TooMuch(ErrorCodes.ENHANCE_YOUR_CALM)
            return 1 + length // _HEAD_BYTES_A_FRAME
        if kind == _SETTINGS and not flags & _ACK:
            self._settings_left -= max(1, length // 6)
            if self._settings_left < 0:
                raise TooMuch(ErrorCodes.ENHANCE_YOUR_CALM)
        return 1


def go_away(last_stream_id: int) -> bytes:
    """A GOAWAY frame: no further request may be sent. Streams above `last_stream_id` were not
    processed; LAST_STREAM is above all (RFC 9113, 6.8).
    """
    return b"\x00\x00\x08\x07\x00\x00\x00\x00\x00%b\x00\x00\x00\x00" % last_stream_id.to_bytes(4)
