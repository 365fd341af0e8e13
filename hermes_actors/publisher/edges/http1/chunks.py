"""Decodes chunked bodies. Pure: no socket, no clock.

llhttp parses all bytes. It never gets more than one message at a time, so that two parsers of a
connection cannot disagree about the end of a request.
"""

import re

import httptools

from hermes_actors.publisher.edges.http1.heads import BAD_REQUEST, END_OF_HEAD, Malformed

_PARTS_MAX = 32
"""Maximum parts per call; a body of empty lines has a part for each four bytes."""
_PART_BYTES = 1_024
"""Only a chunk's data is longer; this many bytes hold 170 chunks of one byte."""
_PIECES_MAX = 32
"""After this many pieces the caller gets control back."""
_CHUNK_SIZE = re.compile(rb"0{0,7}([1-9A-Fa-f][0-9A-Fa-f]{0,6})\r\n")
_PART_OF_SIZE = re.compile(rb"0{0,7}[1-9A-Fa-f][0-9A-Fa-f]{0,6}\r?")
_CHUNKED_REQUEST = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class Chunks:
    """Decodes one chunked body; bytes after it are not touched."""

    __slots__ = ("_is_plain", "_left_bytes", "_overhead_bytes", "_overhead_bytes_max", "_parser",
                 "_pieces", "_tail", "is_complete")  # fmt: skip

    def __init__(self, overhead_bytes_max: int) -> None:
        """Allow at most `overhead_bytes_max` consecutive bytes of chunk sizes, extensions and
        trailers without a byte of the body.
        """
        self._overhead_bytes_max = overhead_bytes_max
        self._overhead_bytes = 0
        # Until something else than chunks without extensions comes: the bytes missing of the last.
        self._is_plain, self._left_bytes = True, 0
        self._pieces: list[bytes] = []
        self._tail = b""
        self.is_complete = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_CHUNKED_REQUEST)

    def take(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Decode `data` from `at` on. Returns decoded bytes and the position reached. Raises
        Malformed.

        Returns early with a piece of the body, or at its end, when `is_complete` is True.
        """
        parts = 0
        while at < len(data) and not self.is_complete:
            if self._pieces and (parts >= _PARTS_MAX or len(self._pieces) >= _PIECES_MAX):
                break
            parts += 1
            end = self._end_of_part(data, at)
            if end == at:
                break
            part = data[at:end] if at or end < len(data) else data
            try:
                self._parser.feed_data(part)
            except httptools.HttpParserError as error:
                raise Malformed(BAD_REQUEST) from error
            self._tail = (self._tail + part[-3:])[-3:]
            self._count(len(part))
            at = end
        pieces, self._pieces = self._pieces, []
        return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), at

    def _end_of_part(self, data: bytes, at: int) -> int:
        """The end of the next part to parse; `at` if more bytes are needed. A body ends with an
        empty line, which no plain chunk contains outside its data; the parser gets no byte beyond
        the next one, since it does not report where it found the end.
        """
        end, stop = at + self._left_bytes, min(at + _PART_BYTES, len(data))
        while self._is_plain and end < stop:
            size = _CHUNK_SIZE.match(data, end)
            if size is None:
                self._is_plain = _PART_OF_SIZE.fullmatch(data, end) is not None
                break
            end = size.end() + int(size[1], 16) + 2
        if self._is_plain or end > at:
            self._left_bytes = max(0, end - len(data))
            return min(end, len(data))
        seam = self._tail + data[at : at + 3]
        found = seam.find(END_OF_HEAD)
        if found >= 0:
            return at + found + 4 - len(self._tail)
        end = min(at + _PART_BYTES, len(data))
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
        """Collect a piece of a chunk."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """The last chunk and its trailers are complete."""
        self.is_complete = True
