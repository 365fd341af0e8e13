"""The bytes of one HTTP/1.1 connection, taken apart into requests. Pure: no socket, no clock.

The parser is never given more than one message: no two readers of a connection can then see the
end of a request at different places.
"""

from hermes_actors.publisher.edges.http1.chunks import Chunks
from hermes_actors.publisher.edges.http1.request import END_OF_HEAD, Heads, Request
from hermes_actors.publisher.pending import CHUNKED


class End:
    """The end of a body whose pieces came one by one."""


END = End()


class Reader:
    """One connection's requests: `receive` what comes, then ask `next` until it gives None."""

    __slots__ = ("_at", "_chunks", "_data", "_heads", "_left_bytes", "_scanned", "is_in_body")

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._data = b""
        self._at = self._scanned = 0
        self._left_bytes = 0
        self._chunks: Chunks | None = None
        self.is_in_body = False
        """A request has been given, and not all of its body."""

    @property
    def has_bytes(self) -> bool:
        """Something has come that has not been taken."""
        return self._at < len(self._data)

    def receive(self, data: bytes) -> None:
        """Bytes from the client."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def next(self) -> Request | bytes | End | None:
        """What comes next: a request, a piece of its body, the body's END; None: not here yet.

        After a request whose body `whole_body` gave, the next request follows. Raises Malformed;
        nothing may be asked after that.
        """
        if self.is_in_body:
            return self._next_piece()
        return self._next_request() if self._at < len(self._data) else None

    def whole_body(self) -> bytes | None:
        """The body of the request that `next` has just given; None when not all of it is here, or
        it comes in chunks.
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
            # The empty line may have begun.
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
