"""How much of HTTP/2 a peer may make us read: frames that no request of ours brings about are
bounded in each second, and so are all others, beside what requests earn. Pure: time is an argument.

Each frame costs tens of microseconds here, however short it is, and some are answered. Also, the
transport grants each stream 16 MiB of an answer, of which no more is read than an answer may have.
So streams are granted less. A bound of the bytes that are read would not do instead: one long
answer would end the connection, and the pushes of all its other streams with it.
"""

UNASKED_PER_S = 100.0
UNASKED_BURST = 300.0
"""Frames that no request brings about: settings, pings, priorities, and kinds that nobody knows."""

FRAMES_PER_S = 500.0
FRAMES_BURST = 2_000.0
FRAMES_OF_A_REQUEST = 32.0
"""All others. Each frame of ours that carries a request earns that many, so whoever pushes much may
be answered much.
"""

_HEAD_BYTES = 9
_CONNECTION = bytes(4)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


# The types of frames that are told apart (RFC 9113, section 6).
_DATA, _HEADERS, _RST_STREAM, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 7, 8, 9
_ASKED = frozenset((_DATA, _HEADERS, _RST_STREAM, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION))
_REQUESTS = frozenset((_DATA, _HEADERS))


class FrameWalk:
    """Finds the frames in a stream of bytes, however it is cut."""

    def __init__(self) -> None:
        self._skip_bytes = 0
        self._head = b""

    def kinds(self, data: bytes) -> list[int]:
        """The types of the frames whose heads are complete with this piece."""
        kinds: list[int] = []
        at = 0
        while at < len(data):
            if self._skip_bytes:
                step = min(self._skip_bytes, len(data) - at)
                self._skip_bytes -= step
                at += step
                continue
            step = min(_HEAD_BYTES - len(self._head), len(data) - at)
            self._head += data[at : at + step]
            at += step
            if len(self._head) == _HEAD_BYTES:
                kinds.append(self._head[3])
                self._skip_bytes = int.from_bytes(self._head[:3], "big")
                self._head = b""
        return kinds


class _Bucket:
    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._filled_s = now_s

    def earn(self, count: float) -> None:
        self._left = min(self._burst, self._left + count)

    def take(self, count: int, now_s: float) -> bool:
        """Take so much; False when there was less."""
        self.earn((now_s - self._filled_s) * self._per_s)
        self._filled_s = now_s
        self._left -= count
        return self._left >= 0


class FrameBudget:
    """The budget of one connection for the frames that it makes us read. `stream_window_bytes`: how
    much a peer may send of an answer's body before we have read any of it, beside the 65,535 bytes
    that are everybody's.
    """

    def __init__(self, now_s: float, stream_window_bytes: int) -> None:
        self._stream_window_bytes = stream_window_bytes
        self._received = FrameWalk()
        self._unasked = _Bucket(UNASKED_PER_S, UNASKED_BURST, now_s)
        self._asked = _Bucket(FRAMES_PER_S, FRAMES_BURST, now_s)

    def to_send(self, data: bytes) -> bytes:
        """Return whole frames of ours as they are to be written: with smaller windows for streams.

        Requests earn what they may be answered by; what answers a peer's frames earns nothing.
        """
        at = len(_PREFACE) if data.startswith(_PREFACE) else 0
        requests = 0
        while at + _HEAD_BYTES <= len(data):
            end = at + _HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
            kind = data[at + 3]
            requests += kind in _REQUESTS
            if kind == _WINDOW_UPDATE and data[at + 5 : at + _HEAD_BYTES] != _CONNECTION:
                asked = int.from_bytes(data[end - 4 : end], "big")
                granted = min(asked, self._stream_window_bytes).to_bytes(4, "big")
                data = data[: end - 4] + granted + data[end:]
            at = end
        if requests:
            self._asked.earn(FRAMES_OF_A_REQUEST * requests)
        return data

    def on_received(self, data: bytes, now_s: float) -> bool:
        """Count what was read; False when it is too much, and the connection is to be closed."""
        kinds = self._received.kinds(data)
        asked = sum(kind in _ASKED for kind in kinds)
        is_within = self._asked.take(asked, now_s)
        return self._unasked.take(len(kinds) - asked, now_s) and is_within
