"""Cuts a request's body into messages as it arrives, in pieces of any size. Pure.

Lines are cut at once, so that only one incomplete line is kept between two pieces. A message longer
than `bytes_max` may be truncated, but stays longer than that.
"""

from abc import ABC, abstractmethod

import msgspec

_LINES_AT_ONCE = 1_000
ARRAY_MESSAGES_MAX = 10_000
"""Maximum number of elements of one JSON array; larger batches are sent as lines."""


class Splitter(ABC):
    """One body, with messages of at most `bytes_max`. `failure` is the reason why the rest is not
    read, else an empty string.
    """

    def __init__(self, bytes_max: int) -> None:
        self.failure = ""
        self.bytes_max = bytes_max

    @abstractmethod
    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Return the messages that end in this piece, and the rest of it if other tasks should get
        their turn before that.
        """

    @abstractmethod
    def finish(self) -> list[bytes]:
        """The body has ended: return the messages that its end completes."""


class LineSplitter(Splitter):
    """Each line is a message, except empty lines and lines of white space.

    Lines end with LF or CR LF; the last one need not.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        # The incomplete line so far; of a line that is too long only as much as shows that.
        self._parts: list[bytes] = []
        self._room = self._room_max = bytes_max + len(b"\r") + 1

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Return the lines that end in this piece, at most a thousand, and the rest."""
        first, *lines = data.split(b"\n", _LINES_AT_ONCE)
        self._keep(first)
        if not lines:
            return [], b""
        last, rest = lines.pop(), b""
        lines.insert(0, self._complete())
        if len(lines) == _LINES_AT_ONCE:
            last, rest = rest, last
        self._keep(last)
        return [line.removesuffix(b"\r") for line in lines if line and not line.isspace()], rest

    def finish(self) -> list[bytes]:
        """Return the last line, if it has no line end."""
        return self.feed(b"\n")[0]

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
    """Each element of a JSON array is a message, byte for byte as it was sent.

    The array is read whole, so it has the same limit as one message. Either all of it is accepted,
    or nothing.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
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
        return [], b""

    def finish(self) -> list[bytes]:
        """Return the elements."""
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
