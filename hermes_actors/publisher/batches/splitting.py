"""Cuts a request's body into messages as it comes, however it was cut on its way. Pure.

Lines are cut as they come: what is kept between two pieces is one incomplete line, of at most
`bytes_max`. Of a longer one nothing is kept, and it is told as Oversized when it ends.
"""

from abc import ABC, abstractmethod

import msgspec
from msgspec import Struct


class Oversized(Struct, frozen=True, gc=False):
    """A message above the bound stood here; it is gone."""

    size_bytes: int


Found = list[bytes | Oversized]

_LINES_AT_ONCE = 1_000
_SIZE_MIN = 256
ARRAY_MESSAGES_MAX = 10_000
"""Elements of one JSON array; more come as lines."""


class Splitter(ABC):
    """One body, of messages of at most `bytes_max`. `failure` says, when it is not "", why no more
    of it is read.
    """

    def __init__(self, bytes_max: int) -> None:
        self.failure = ""
        self.bytes_max = bytes_max

    @abstractmethod
    def size_at_once(self, data: bytes) -> int:
        """How many bytes of what has come may be fed before others have their turn."""

    @abstractmethod
    def feed(self, data: bytes) -> Found:
        """The messages that end in this piece."""

    @abstractmethod
    def finish(self) -> Found:
        """The body has ended: the messages that its end completes."""


class LineSplitter(Splitter):
    """A message for each line. Empty ones, and those of white space alone, are none.

    Lines end with LF or CR LF; the last one need not.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._parts: list[bytes] = []
        self._size = 0

    def size_at_once(self, data: bytes) -> int:
        """As many bytes as have a thousand lines at most, or hardly more."""
        size = _SIZE_MIN
        lines = data.count(b"\n", 0, size)
        while size < len(data):
            lines += data.count(b"\n", size, 2 * size)
            if lines > _LINES_AT_ONCE:
                return size
            size *= 2
        return len(data)

    def feed(self, data: bytes) -> Found:
        """The lines that end in this piece."""
        lines = data.split(b"\n")
        last = lines.pop()
        if self._size and lines:
            first = self._complete(lines[0])
            rest = self._clean(lines[1:], has_returns=b"\r" in data)
            found = ([] if first is None else [first]) + rest
        else:
            found = self._clean(lines, has_returns=b"\r" in data)
        self._add(last)
        return found

    def finish(self) -> Found:
        """The last line, when nothing ended it."""
        last = self._complete(b"")
        return [] if last is None else [last]

    def _clean(self, lines: list[bytes], *, has_returns: bool) -> Found:
        if has_returns:
            lines = [line.removesuffix(b"\r") for line in lines]
        bytes_max = self.bytes_max
        if max(map(len, lines), default=0) <= bytes_max:
            return [line for line in lines if line and not line.isspace()]
        return [
            line if len(line) <= bytes_max else Oversized(len(line))
            for line in lines
            if len(line) > bytes_max or (line and not line.isspace())
        ]

    def _add(self, part: bytes) -> None:
        if part:
            self._size += len(part)
            # One more for a CR, which need not be the message's.
            if self._size <= self.bytes_max + 1:
                self._parts.append(part)
            else:
                self._parts.clear()

    def _complete(self, part: bytes) -> bytes | Oversized | None:
        """The line that began in an earlier piece and ends with this part."""
        self._add(part)
        size, self._size = self._size, 0
        line = b"".join(self._parts).removesuffix(b"\r")
        self._parts.clear()
        if size > self.bytes_max + 1 or len(line) > self.bytes_max:
            return Oversized(size)
        return line if line and not line.isspace() else None


_elements = msgspec.json.Decoder(list[msgspec.Raw])


class ArraySplitter(Splitter):
    """A message for each element of a JSON array, byte for byte as it was sent.

    The array is read whole, so it is bounded like one message. All of it is taken, or nothing.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._parts: list[bytes] = []
        self._size = 0

    def size_at_once(self, data: bytes) -> int:
        """All: it is only kept."""
        return len(data)

    def feed(self, data: bytes) -> Found:
        """Keep this piece."""
        self._size += len(data)
        if self._size <= self.bytes_max:
            self._parts.append(data)
        elif not self.failure:
            self._parts.clear()
            self.failure = (
                f"the JSON array is longer than {self.bytes_max} bytes (frontend.body_bytes_max), "
                "nothing of it was stored; send application/x-ndjson, which has no such limit"
            )
        return []

    def finish(self) -> Found:
        """The elements."""
        body = b"".join(self._parts)
        self._parts.clear()
        if self.failure:
            return []
        try:
            elements = _elements.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self.failure = f"the body is not a JSON array, nothing of it was stored: {error}"
            return []
        if len(elements) > ARRAY_MESSAGES_MAX:
            self.failure = (
                f"the JSON array has {len(elements)} elements, above {ARRAY_MESSAGES_MAX}; nothing "
                "of it was stored; send application/x-ndjson, which has no such limit"
            )
            return []
        return list(map(bytes, elements))
