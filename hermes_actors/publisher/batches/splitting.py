"""Cuts a request's body into messages as it comes, however it was cut on its way. Pure.

Lines are cut as they come, and what is kept between two pieces is one incomplete line. A message
that is longer than `bytes_max` may be cut short, but stays longer than that.
"""

from abc import ABC, abstractmethod

import msgspec

_LINES_AT_ONCE = 1_000
_SIZES = (262_144, 65_536, 16_384, 4_096, 1_024)
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
    def feed(self, data: bytes) -> list[bytes]:
        """The messages that end in this piece."""

    @abstractmethod
    def finish(self) -> list[bytes]:
        """The body has ended: the messages that its end completes."""


class LineSplitter(Splitter):
    """A message for each line. Empty ones, and those of white space alone, are none.

    Lines end with LF or CR LF; the last one need not.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        # What has come of the line that is not complete; of one that is too long so much as shows
        # it.
        self._parts: list[bytes] = []
        self._room = self._room_max = bytes_max + len(b"\r") + 1

    def size_at_once(self, data: bytes) -> int:
        """As many bytes as have a thousand lines at most, or few."""
        fitting = (size for size in _SIZES if data.count(b"\n", 0, size) <= _LINES_AT_ONCE)
        return next(fitting, _SIZES[-1])

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in this piece."""
        first, *lines = data.split(b"\n")
        self._keep(first)
        if not lines:
            return []
        last = lines.pop()
        lines.insert(0, self._complete())
        self._keep(last)
        return [line.removesuffix(b"\r") for line in lines if line and not line.isspace()]

    def finish(self) -> list[bytes]:
        """The last line, when nothing ended it."""
        return self.feed(b"\n")

    def _keep(self, part: bytes) -> None:
        if part and self._room:
            self._parts.append(part[: self._room])
            self._room -= len(self._parts[-1])

    def _complete(self) -> bytes:
        line = b"".join(self._parts)
        self._parts.clear()
        self._room = self._room_max
        return line


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

    def feed(self, data: bytes) -> list[bytes]:
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

    def finish(self) -> list[bytes]:
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
