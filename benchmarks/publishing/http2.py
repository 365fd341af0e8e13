"""Publishing over HTTP/2 by prior knowledge: many streams on a connection, with hand-made frames.

A general HTTP/2 library costs a Python client more than the whole node's work on a message. This
client knows its own requests, respects the server's windows, and asks for header blocks without a
dynamic table (RFC 7541 4.2), of which it reads only the first field, the status.
"""

from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from hpack.huffman_table import decode_huffman

from publishing.messages import TOPIC
from publishing.wire import Connection, Sink, bad_status

STREAMS = 16
"""Requests under way on one connection."""

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_TABLE_BYTES, _PUSH = 1, 2
_WINDOW_BYTES = 65_535
_STATIC = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
_NOTHING: Counter[str] = Counter()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame with its head (RFC 9113 4.1)."""
    head = len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4)
    return head + payload


def header_block(length: int) -> bytes:
    """The fields of a publish, which use only the static table."""

    def text(value: bytes) -> bytes:
        return bytes((len(value),)) + value

    return (
        b"\x83\x86"  # :method POST, :scheme http
        + (b"\x04" + text(b"/topics/" + TOPIC.encode()))
        + (b"\x01" + text(b"localhost"))
        + (b"\x0f\x10" + text(b"application/json"))
        + (b"\x0f\x0d" + text(str(length).encode()))
    )


def status_of(block: bytes) -> int:
    """The status of a response, the first field of its header block."""
    start = 0
    while block[start] & 0xE0 == 0x20:  # the table's size, announced
        start += 1
    return _status_at(block[start : start + 5])


@lru_cache(maxsize=256)
def _status_at(field: bytes) -> int:
    if field[0] & 0x80:
        return _STATIC[field[0] & 0x7F]
    name = field[0] & (0x3F if field[0] & 0x40 else 0x0F)
    if name not in _STATIC:
        raise ValueError(f"a response that does not begin with its status: {field.hex()}")
    value = field[2 : 2 + (field[1] & 0x7F)]
    return int(decode_huffman(value) if field[1] & 0x80 else value)


class Http2Connection(Connection):
    """Up to 16 messages under way at a time."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._buffer = b""
        self._stream = -1
        self._due_s: dict[int, float] = {}
        self._status: dict[int, int] = {}
        self._window_bytes = _WINDOW_BYTES
        self._held: deque[tuple[bytes, float]] = deque()

    @staticmethod
    def requests(bodies: Sequence[bytes], _chunk: int, /) -> list[bytes]:
        """Length of the header block, block and body, to be framed when the stream is known."""
        blocks = [header_block(len(body)) for body in bodies]
        return [
            bytes((len(block),)) + block + body for block, body in zip(blocks, bodies, strict=True)
        ]

    def connection_made(self, transport: Any) -> None:
        """Send this client's settings and the first messages."""
        super().connection_made(transport)
        settings = b"".join(
            name.to_bytes(2) + value.to_bytes(4) for name, value in ((_TABLE_BYTES, 0), (_PUSH, 0))
        )
        transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + frame(_SETTINGS, 0, 0, settings)
            + frame(_WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4))
        )
        for _ in range(STREAMS):
            self.sink.ready(self)

    def send(self, request: bytes, due_s: float) -> None:
        """Send one message, once the server's window has room for it."""
        if len(request) > self._window_bytes or self._held:
            self._held.append((request, due_s))
        else:
            self._write(request, due_s)

    def _write(self, request: bytes, due_s: float) -> None:
        start = request[0] + 1
        block, body = request[1:start], request[start:]
        self._window_bytes -= len(body)
        self._stream += 2
        self._due_s[self._stream] = due_s
        self.transport.write(
            frame(_HEADERS, _END_HEADERS, self._stream, block)
            + frame(_DATA, _END_STREAM, self._stream, body)
        )

    def under_way(self) -> list[tuple[float, int]]:
        """Open streams, and messages waiting for the window."""
        left = [(due_s, 1) for due_s in (*self._due_s.values(), *(due for _, due in self._held))]
        self._due_s.clear()
        self._held.clear()
        return left

    def data_received(self, data: bytes) -> None:
        """Handle each complete frame."""
        data = self._buffer + data if self._buffer else data
        start, end = 0, len(data)
        while end - start >= 9:
            payload = start + 9
            after = payload + (data[start] << 16 | data[start + 1] << 8 | data[start + 2])
            if after > end:
                break
            stream = int.from_bytes(data[start + 5 : payload])
            self._take(data[start + 3], data[start + 4], stream, data[payload:after])
            start = after
        self._buffer = data[start:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in (_HEADERS, _DATA):
            if kind == _HEADERS:
                self._status.setdefault(stream, status_of(payload))
            if flags & _END_STREAM:
                self._ended(stream, self._status.pop(stream))
        elif kind == _WINDOW_UPDATE and stream == 0:
            self._window_bytes += int.from_bytes(payload)
            while self._held and len(self._held[0][0]) <= self._window_bytes:
                self._write(*self._held.popleft())
        elif kind == _RST_STREAM:
            self._status.pop(stream, None)
            self._ended(stream, None)
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self.transport.write(frame(kind, _ACK, 0, payload if kind == _PING else b""))
        elif kind == _GOAWAY:
            self.transport.close()

    def _ended(self, stream: int, status: int | None) -> None:
        due_s = self._due_s.pop(stream, None)
        if due_s is None:
            return  # reset after its answer
        if status == 201:
            self.sink.answered(due_s, 1, _NOTHING)
        elif status is None:
            self.sink.answered(due_s, 0, Counter({"stream reset": 1}))
        else:
            self.sink.answered(due_s, 0, bad_status(status))
        self.sink.ready(self)
