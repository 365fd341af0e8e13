"""A body that comes in chunks, taken apart by llhttp. Pure."""

import httptools

from hermes_actors.publisher.edges.http1.request import BAD_REQUEST, END_OF_HEAD, Malformed

_PARTS_MAX = 32
"""A body of nothing but empty lines has a part for each four bytes."""
_PART_BYTES, _PART_BYTES_MAX = 2_048, 65_536
"""Large chunks are parsed in longer parts; of chunks of one byte each the shortest part has 341."""
_PIECES_MAX = 32
"""After these the caller has its say."""
_CHUNKED_REQUEST = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Chunks:
    """One chunked body, decoded; what follows it is not touched."""

    __slots__ = ("_overhead_bytes", "_overhead_bytes_max", "_parser", "_part_bytes", "_pieces",
                 "_tail", "is_complete")  # fmt: skip

    def __init__(self, overhead_bytes_max: int) -> None:
        """So many bytes of sizes, extensions and trailers may come without a byte of the body."""
        self._overhead_bytes_max = overhead_bytes_max
        self._overhead_bytes = 0
        self._part_bytes = _PART_BYTES
        self._pieces: list[bytes] = []
        self._tail = b""
        self.is_complete = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_CHUNKED_REQUEST)

    def take(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The decoded bytes of `data` from `at` on, and where it went on to. Raises Malformed.

        Ends at the body's end, which `is_complete` tells, or with a piece of it.
        """
        parts = 0
        while at < len(data) and not self.is_complete:
            if self._pieces and (parts >= _PARTS_MAX or len(self._pieces) >= _PIECES_MAX):
                break
            parts += 1
            end = self._end_of_part(data, at)
            part = data[at:end] if at or end < len(data) else data
            before = len(self._pieces)
            try:
                self._parser.feed_data(part)
            except httptools.HttpParserError as error:
                raise Malformed(BAD_REQUEST) from error
            self._tail = (self._tail + part[-3:])[-3:]
            self._count(len(part))
            self._part_bytes = (
                min(2 * self._part_bytes, _PART_BYTES_MAX)
                if len(self._pieces) - before <= 2
                else _PART_BYTES
            )
            at = end
        pieces, self._pieces = self._pieces, []
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), at

    def _end_of_part(self, data: bytes, at: int) -> int:
        """A body ends with an empty line. The parser is given no byte beyond the next one, since it
        would not tell where it has found the end.
        """
        seam = self._tail + data[at : at + 3]
        found = seam.find(END_OF_HEAD)
        if found >= 0:
            return at + found + 4 - len(self._tail)
        end = min(at + self._part_bytes, len(data))
        found = data.find(END_OF_HEAD, at, end)
        return end if found < 0 else found + 4

    def _count(self, size_bytes: int) -> None:
        if self._pieces:
            self._overhead_bytes = 0
            return
        self._overhead_bytes += size_bytes
        if self._overhead_bytes > self._overhead_bytes_max:
            raise Malformed(BAD_REQUEST)

    # The parser's callbacks.

    def on_body(self, piece: bytes) -> None:
        """A piece of a chunk."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The last chunk, and the trailers after it."""
        self.is_complete = True
