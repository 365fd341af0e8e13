"""Cuts a request's body into messages as it comes, however it was cut on its way. Pure.

What is kept between two pieces is one incomplete message, of at most `bytes_max`: of a longer one
nothing is kept, and it is told as Oversized when it ends.
"""

import re
import sys
from abc import ABC, abstractmethod

import msgspec
from msgspec import Struct


class Oversized(Struct, frozen=True, gc=False):
    """A message above the bound stood here; it is gone."""

    size_bytes: int


Found = list[bytes | Oversized]

_MESSAGES_AT_ONCE = 1_000
_SIZE_MIN = 256


class Splitter(ABC):
    """One body, of messages of at most `bytes_max`. `failure` says, when it is not "", why it
    cannot be cut any further: what is fed from then on is left alone.
    """

    _separator: bytes
    _bytes_at_once_max = sys.maxsize

    def __init__(self, bytes_max: int) -> None:
        self.failure = ""
        self.bytes_max = bytes_max

    def size_at_once(self, data: bytes) -> int:
        """How many bytes of what has come may be fed before others have their turn: as many as have
        a thousand separators at most, or hardly more.
        """
        size = _SIZE_MIN
        messages = data.count(self._separator, 0, size)
        while size < min(self._bytes_at_once_max, len(data)):
            messages += data.count(self._separator, size, 2 * size)
            if messages > _MESSAGES_AT_ONCE:
                return size
            size *= 2
        return min(len(data), size)

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

    _separator = b"\n"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._parts: list[bytes] = []
        self._size = 0

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


_SPACE = b" \t\n\r"
_STRUCTURE = re.compile(rb'["\[\]{},]')
_IN_STRING = re.compile(rb'["\\]')
_elements = msgspec.json.Decoder(list[msgspec.Raw])
# How an element that begins like this ends, with the comma after it, as most are written.
_ENDS = {ord("{"): b"},", ord("["): b"],", ord('"'): b'",'}
_GUESSES = 2
_GUESSED_BYTES_MAX = 256 * 1024
_GUESSED_PIECES_MAX = 4
"""A guess reads all of an element that has come, so a piece that is a smaller part of it is worth
none: each of many small ones would have the whole element read again.
"""


class ArraySplitter(Splitter):
    """A message for each element of a JSON array, byte for byte as it was sent.

    Each element is checked to be JSON; the first one that is not ends it, after those before.

    An element's end is guessed from the right: if what stands before a comma, put between brackets,
    is an array, then the comma separates elements. Only when the guesses are wrong are the brackets
    counted, which takes ten times as long.
    """

    _separator = b","
    # Each bracket and quote may have to be looked at.
    _bytes_at_once_max = 16_384

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._has_begun = self._has_ended = False
        self._has_elements = False
        self._taken_count = 0
        # What has come of the element that is not complete; the brackets up to `_at` are counted.
        self._rest = b""
        self._at = 0
        self._depth = 0
        self._is_in_string = False
        # What was dropped of it, since it is too large anyway.
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> Found:
        """The elements that end in this piece, with the comma or bracket after them."""
        if self.failure:
            return []
        if self._has_ended:
            if data.strip(_SPACE):
                self.failure = "there is more after the end of the JSON array"
            return []
        piece_bytes = len(data)
        data = self._rest + data
        if not self._has_begun:
            data = data.lstrip(_SPACE)
            if not data:
                return []
            if data[:1] != b"[":
                self.failure = "the body is not a JSON array: it does not begin with ["
                return []
            self._has_begun = True
            data = data[1:]
        self._rest = data
        may_guess = len(data) <= min(_GUESSED_BYTES_MAX, _GUESSED_PIECES_MAX * piece_bytes)
        found = self._guess() if may_guess else []
        return found + self._count()

    def finish(self) -> Found:
        """The body has ended: nothing is left, or the array has no end."""
        if not self.failure and not self._has_ended:
            self.failure = self._torn()
        return []

    def _torn(self) -> str:
        """Why there is no end: what stands last is either cut off or wrong."""
        rest = self._rest.strip(_SPACE)
        try:
            msgspec.json.decode(rest)
        except msgspec.DecodeError as error:
            # Brackets that do not match swallow the array's end. Only a truncated text is cut off.
            if rest and not self._dropped_bytes and "truncated" not in str(error):
                number = self._taken_count + 1
                return _malformed(f"element {number} is not JSON: {error} of it")
        except RecursionError:
            pass
        return "the body ends before the JSON array does"

    def _guess(self) -> Found:
        """The elements up to a comma, or up to the end, if a guess is right; else none."""
        if self._dropped_bytes:
            return []
        rest = self._rest
        trimmed = rest.strip(_SPACE)
        if not trimmed or (trimmed == b"]" and self._has_elements):
            return []
        if trimmed.endswith(b"]"):
            elements = _decode(b"[" + rest)
            if elements is not None:
                self._has_ended = True
                self._begin_element(b"")
                return self._taken(elements)
        mark = _ENDS.get(trimmed[0], b",")
        end = len(rest)
        for _ in range(_GUESSES):
            end = rest.rfind(mark, 0, end)
            if end < 0:
                break
            comma = end + len(mark) - 1
            elements = _decode(b"[" + rest[:comma] + b"]")
            if elements:
                self._begin_element(rest[comma + 1 :])
                return self._taken(elements)
        return []

    def _count(self) -> Found:
        """The elements that counting brackets finds."""
        if self._has_ended:
            return []
        found: Found = []
        start = 0
        while (mark := self._next_mark()) is not None and not self.failure:
            symbol = self._rest[mark]
            element = self._rest[start:mark].strip(_SPACE)
            if symbol == ord("}"):
                self.failure = _malformed("a } without its {")
            elif element or self._dropped_bytes:
                self._take(element, found)
            elif symbol == ord(",") or self._has_elements:
                self.failure = _malformed("an element is missing")
            start = mark + 1
            if symbol == ord("]") and not self.failure:
                self._has_ended = True
                if self._rest[start:].strip(_SPACE):
                    self.failure = "there is more after the end of the JSON array"
                self._rest = b""
                return found
        self._rest = self._rest[start:]
        self._at -= start
        if len(self._rest) > self.bytes_max + len(_SPACE) and self._rest.strip(_SPACE):
            self._dropped_bytes += len(self._rest)
            self._at -= len(self._rest)
            self._rest = b""
        return found

    def _next_mark(self) -> int | None:
        """Where the next comma or closing bracket is that belongs to no element."""
        rest = self._rest
        while True:
            pattern = _IN_STRING if self._is_in_string else _STRUCTURE
            match = pattern.search(rest, self._at)
            if match is None:
                self._at = max(self._at, len(rest))
                return None
            self._at = match.end()
            symbol = match[0]
            if symbol == b"\\":
                self._at += 1
            elif symbol == b'"':
                self._is_in_string = not self._is_in_string
            elif symbol in b"[{":
                self._depth += 1
            elif self._depth == 0:
                return match.start()
            elif symbol in b"]}":
                self._depth -= 1

    def _take(self, element: bytes, found: Found) -> None:
        size = self._dropped_bytes + len(element)
        self._dropped_bytes = 0
        self._has_elements = True
        self._taken_count += 1
        if size > self.bytes_max:
            found.append(Oversized(size))
        elif _decode(b"[" + element + b"]") is None:
            self.failure = _malformed(f"element {self._taken_count} is not JSON")
        else:
            found.append(element)

    def _taken(self, elements: list[msgspec.Raw]) -> Found:
        self._has_elements = self._has_elements or bool(elements)
        self._taken_count += len(elements)
        bytes_max = self.bytes_max
        found: Found = list(map(bytes, elements))
        if max(map(len, elements), default=0) > bytes_max:
            return [
                Oversized(len(each)) if len(each) > bytes_max else each  # type: ignore[arg-type]
                for each in found
            ]
        return found

    def _begin_element(self, rest: bytes) -> None:
        self._rest = rest
        self._at = self._depth = 0
        self._is_in_string = False


def _decode(array: bytes) -> list[msgspec.Raw] | None:
    try:
        return _elements.decode(array)
    except (msgspec.DecodeError, RecursionError):
        return None


def _malformed(reason: str) -> str:
    return f"the body is not a JSON array from here on: {reason}"
