"""Parses the bytes of one HTTP/1.1 connection into requests and pieces of their bodies. Pure: no
socket, no clock.
"""

from hermes_actors.publisher.edges.http1.chunks import Chunks
from hermes_actors.publisher.edges.http1.heads import END_OF_HEAD, Heads
from hermes_actors.publisher.edges.request import Request
from hermes_actors.publisher.pending import CHUNKED


class End:
    """The end of a body that was read in pieces."""


END = End()


class RequestReader:
    """Reads one connection's requests: pass bytes to `receive`, then call `next` until it returns
    None.
    """

    __slots__ = ("_at", "_chunks", "_data", "_heads", "_left_bytes", "_scanned", "is_in_body")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._data = b""
        self._at = self._scanned = 0
        self._left_bytes = 0
        self._chunks: Chunks | None = None
        self.is_in_body = False
        """True while a request has been returned without all of its body."""

    @property
    def has_bytes(self) -> bool:
        """True if received bytes have not been processed."""
        return self._at < len(self._data)

    def receive(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def next(self) -> Request | bytes | End | None:
        """Return the next request, a piece of its body, or END; None if more bytes are needed.

        If `whole_body` returned the body, the next request follows. Raises Malformed; the reader
        cannot be used after that.
        """
        if self.is_in_body:
            return self._next_piece()
        return self._next_request() if self._at < len(self._data) else None

    def whole_body(self) -> bytes | None:
        """The body of the request that `next` has just returned. None if it is incomplete or
        chunked.
        """
        if self._chunks is not None:
            return None
        at, data = self._at, self._data
        end = at + self._left_bytes
        if end > len(data):
            return None
        self._at = end
        self._left_bytes = 0
        self.is_in_body = False
        return data[at:end]

    def _next_request(self) -> Request | None:
        data, at = self._data, self._at
        end = data.find(END_OF_HEAD, at + self._scanned)
        if end < 0:
            self._heads.check_part(data[at:] if at else data)
            # The last bytes may be the beginning of the empty line.
            self._scanned = max(0, len(data) - at - 3)
            return None
        self._scanned = 0
        self._at = end + 4
        request = self._heads.request(data[at : end + 4])
        if request.expected_bytes == CHUNKED:
            self._chunks = Chunks(self._heads.bytes_max)
        else:
            self._left_bytes = max(0, request.expected_bytes)
        self.is_in_body = True
        return request

    def _next_piece(self) -> bytes | End | None:
        if self._chunks is not None:
            piece, self._at = self._chunks.take(self._data, self._at)
            if piece:
                return piece
            if not self._chunks.is_complete:
                return None
            self._chunks = None
        elif self._left_bytes:
            at = self._at
            piece = self._data[at : at + self._left_bytes]
            self._at = at + len(piece)
            self._left_bytes -= len(piece)
            return piece or None
        self.is_in_body = False
        return END
