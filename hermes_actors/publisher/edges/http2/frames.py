"""What a client's frames may cost: how many, how large, and how much in one turn of the loop.

Only the nine bytes before each frame are read here; h2 reads the frames.
"""

from h2.errors import ErrorCodes

LAST_STREAM = 2**31 - 1
TURN_FRAMES = 64
"""What one turn of the loop takes. Two frames are a publish; a read may bring thousands."""
TURN_BYTES = 65_536
_HEAD_BYTES_A_FRAME = 16
"""So many bytes of a head count as a frame: a byte may stand for a whole field."""
_FRAME_BYTES_MAX = 16_384
"""The server announces no more (RFC 9113, 4.2)."""
_SETTINGS_MAX = 1_000
"""Settings that one client may send in all; each costs as much as all its streams."""

_PREFACE_BYTES = 24
_HEADERS, _SETTINGS, _GOAWAY, _CONTINUATION = 1, 4, 7, 9
_ACK = 1


class TooMuch(Exception):
    """The client's connection must end, with this error."""

    def __init__(self, error: ErrorCodes) -> None:
        super().__init__(error)
        self.error = error


class FrameGuard:
    """The bytes that a client has sent and that nobody has taken yet."""

    def __init__(self, head_bytes_max: int) -> None:
        """`head_bytes_max` bounds the head of a request."""
        self._head_bytes_max = _FRAME_BYTES_MAX + head_bytes_max
        self._data = b""
        # What is still to come of the frame that was taken last.
        self._left_bytes = _PREFACE_BYTES
        self._head_bytes = 0
        self._settings_left = _SETTINGS_MAX
        self.is_full = False
        """More has come than one turn may take."""
        self.is_leaving = False
        """The client has said, without an error, that it asks for no more."""

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._data = self._data + data if self._data else data

    def take(self) -> bytes:
        """Give what may be taken in this turn. Raises TooMuch.

        A goodbye without an error is left out: the client still wants its answers (RFC 9113, 6.8),
        and h2 would send none.
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
            # h2 would gather up to 16 MiB of it before it says so.
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
    """The frame that no further request may be sent; those above the stream that it names were not
    looked at, and LAST_STREAM is above all (RFC 9113, 6.8).
    """
    return b"\x00\x00\x08\x07\x00\x00\x00\x00\x00%b\x00\x00\x00\x00" % last_stream_id.to_bytes(4)
