"""Filters HTTP/2 frames between a connection and httpcore: a graceful GOAWAY ends no open stream,
an endpoint that announces no limit gets parallel streams, and a peer cannot make us read endless
frames. Pure.
"""

from collections.abc import Callable

from hyperframe.exceptions import HyperframeError
from hyperframe.frame import GoAwayFrame, RstStreamFrame, SettingsFrame

REFUSED_STREAM = 7
"""The error code of a stream that the peer has certainly not processed (RFC 9113, 7)."""

FRAMES_MAX = 10_000
FRAMES_AT_FIRST = 1_000
FRAMES_OF_A_REQUEST = 100
"""How many frames a peer may send: some at first, and more for each frame of a request, up to a
maximum.
"""

STREAMS_MAX = 100
"""The number of parallel streams to a peer that announces no limit."""

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0, 1, 3, 4, 7
_END_STREAM = 1
_STREAM_ID_MAX = 0x7FFF_FFFF
_HEAD_BYTES = 9
_CHANGED_BYTES_MAX = 16_384
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class TooManyFrames(Exception):
    """The peer sends more frames than its answers need."""


class FrameFilter:
    """The frames of one client connection.

    httpcore fails all streams of a connection at its first GOAWAY, and h2 reads nothing after it.
    So a GOAWAY without an error is hidden from them. Streams up to its last one go on; each later
    stream gets a RST_STREAM with "refused" instead, and is not written if it was still waiting for
    that. `on_goaway` is called.

    httpcore opens one stream at a time until the peer announces its limit, which it need not do. So
    a limit is added to the peer's first settings.
    """

    def __init__(self, on_goaway: Callable[[], None]) -> None:
        self._on_goaway = on_goaway
        self._open: set[int] = set()
        self._last_stream = _STREAM_ID_MAX
        self._refusals = b""
        self._pending = b""
        self._skip_bytes = 0
        self._has_settings = False
        self._frames_left = FRAMES_AT_FIRST

    def sent(self, data: bytes) -> bytes:
        """Note the requests in these whole outgoing frames; return what to write of them."""
        at = len(_PREFACE) if data.startswith(_PREFACE) else 0
        while at + _HEAD_BYTES <= len(data):
            kind, stream_id = data[at + 3], _stream_id(data, at)
            end = at + _HEAD_BYTES + int.from_bytes(data[at : at + 3], "big")
            if kind in (_DATA, _HEADERS):
                self._frames_left = min(FRAMES_MAX, self._frames_left + FRAMES_OF_A_REQUEST)
            if kind == _HEADERS:
                self._open.add(stream_id)
            if stream_id <= self._last_stream:
                at = end
                continue
            data = data[:at] + data[end:]
            self._refuse(stream_id)
        return data

    def take_refusals(self) -> bytes:
        """Return what httpcore is to read before anything else, once."""
        refusals, self._refusals = self._refusals, b""
        return refusals

    def _refuse(self, stream_id: int) -> None:
        if stream_id in self._open:
            self._open.discard(stream_id)
            self._refusals += RstStreamFrame(stream_id, REFUSED_STREAM).serialize()

    def received(self, data: bytes) -> bytes:
        """The bytes that httpcore should read instead, possibly none. Raises TooManyFrames."""
        data, self._pending = self._pending + data, b""
        kept: list[bytes] = []
        at = 0
        while at < len(data):
            if self._skip_bytes:
                step = min(self._skip_bytes, len(data) - at)
                self._skip_bytes -= step
            else:
                head = data[at : at + _HEAD_BYTES]
                size_bytes = int.from_bytes(head[:3], "big")
                is_changed = self._is_changed(head, size_bytes)
                whole_bytes = _HEAD_BYTES + size_bytes * is_changed
                if len(head) < _HEAD_BYTES or at + whole_bytes > len(data):
                    self._pending = data[at:]
                    break
                self._count(head)
                if is_changed:
                    kept.append(self._change(data[at : at + whole_bytes]))
                    at += whole_bytes
                    continue
                step, self._skip_bytes = whole_bytes, size_bytes
            kept.append(data[at : at + step])
            at += step
        return b"".join(kept)

    def _count(self, head: bytes) -> None:
        self._frames_left -= 1
        if self._frames_left < 0:
            raise TooManyFrames("too many frames that answer no request")
        kind, flags = head[3], head[4]
        if kind == _RST_STREAM or (kind in (_DATA, _HEADERS) and flags & _END_STREAM):
            self._open.discard(_stream_id(head, 0))

    def _is_changed(self, head: bytes, size_bytes: int) -> bool:
        """True for a frame that `_change` needs whole."""
        kind = head[3:4]
        is_first_settings = kind == bytes([_SETTINGS]) and not self._has_settings
        is_of_them = is_first_settings or kind == bytes([_GOAWAY])
        return is_of_them and size_bytes <= _CHANGED_BYTES_MAX

    def _change(self, frame: bytes) -> bytes:
        body = memoryview(frame)[_HEAD_BYTES:]
        try:
            if frame[3] == _GOAWAY:
                goaway = GoAwayFrame(0)
                goaway.parse_body(body)
                if goaway.error_code:
                    return frame
                self._on_goaway()
                self._last_stream = min(self._last_stream, goaway.last_stream_id)
                for each in sorted(self._open):
                    if each > self._last_stream:
                        self._refuse(each)
                return self.take_refusals()
            self._has_settings = True
            settings = SettingsFrame(0)
            settings.parse_body(body)
        except HyperframeError:
            # h2 reports what is wrong with it.
            return frame
        settings.settings.setdefault(SettingsFrame.MAX_CONCURRENT_STREAMS, STREAMS_MAX)
        return settings.serialize()


def _stream_id(data: bytes, at: int) -> int:
    return int.from_bytes(data[at + 5 : at + _HEAD_BYTES], "big") & _STREAM_ID_MAX
