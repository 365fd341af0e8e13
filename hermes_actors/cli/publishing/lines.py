"""Reads messages line by line from a file or a pipe, as they arrive, with a maximum length."""

import gzip
import json
import sys
import zlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import BinaryIO

import trio

from hermes_actors.cli.command_line.failures import CommandFailed, UsageWrong
from hermes_actors.cli.publishing.publisher import OutgoingMessage

_READ_BYTES = 65_536
LINE_BYTES_MAX = 16 * 1_048_576


class LineReader:
    """Splits bytes into lines, without their ends. Raises CommandFailed for a line that is too
    long.
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes, and return the lines that they complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._line_bytes_max:
            raise CommandFailed(
                f"a line is longer than {self._line_bytes_max} bytes: "
                "the input does not look like one message a line; use --file for one message"
            )
        return [line.removesuffix(b"\r") for line in lines]

    def end(self) -> list[bytes]:
        """Return the last line, if the input does not end with a line end."""
        last, self._rest = self._rest.removesuffix(b"\r"), b""
        return [last] if last else []


async def messages_of_lines(
    source: BinaryIO, keys: "KeyOf"
) -> AsyncGenerator[OutgoingMessage, None]:
    """Yield one message for each line that is not empty; `number` is the line's, from 1."""
    reader = LineReader()
    number = 0
    is_open = True
    while is_open:
        # Abandoned on Ctrl-C, because a thread that reads a silent pipe would never return.
        data = await trio.to_thread.run_sync(_read_some, source, abandon_on_cancel=True)
        is_open = bool(data)
        for line in reader.feed(data) if data else reader.end():
            number += 1
            if line.strip():
                yield OutgoingMessage(number, line, keys.key(line, number))


def _read_some(source: BinaryIO) -> bytes:
    read1 = getattr(source, "read1", source.read)
    try:
        return bytes(read1(_READ_BYTES))
    # An invalid or truncated gzip file is noticed only during reading.
    except (OSError, EOFError, zlib.error) as error:
        raise CommandFailed(f"the lines cannot be read: {error}") from error


class KeyOf:
    """The partition key of each message: the same for all, or a field's value in its JSON."""

    def __init__(self, key: str | None = None, field: str | None = None) -> None:
        if key is not None and field is not None:
            raise UsageWrong("--key and --key-field exclude each other; give one")
        self._key = None if key is None else header_value(key, "--key")
        self._field = field

    def key(self, body: bytes, number: int) -> str | None:
        """Return the key; None if no key was requested, or if the field is null.

        Raises CommandFailed if the field is missing or is not a plain value.
        """
        if self._field is None:
            return self._key
        value = self._look_up(body, number)
        if value is None:
            return None
        if isinstance(value, (dict, list)):
            raise CommandFailed(
                f"message {number}: --key-field {self._field}: expected text, a number or a "
                f"boolean, found {'an object' if isinstance(value, dict) else 'an array'}"
            )
        text = value if isinstance(value, str) else json.dumps(value)
        return header_value(text, f"message {number}: --key-field {self._field}")

    def _look_up(self, body: bytes, number: int) -> object:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise CommandFailed(
                f"message {number}: --key-field needs JSON messages: {error}"
            ) from error
        for part in (self._field or "").split("."):
            if not isinstance(value, dict) or part not in value:
                raise CommandFailed(
                    f"message {number}: has no field '{self._field}' (--key-field); "
                    "name a field that each message has, null for no key"
                )
            value = value[part]
        return value


def header_value(text: str, option: str) -> str:
    """Return the text if it is a valid header value. Raises UsageWrong."""
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise UsageWrong(f"{option}: a header cannot hold control characters: {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageWrong(f"{option}: a header must be UTF-8: {text!r}") from error
    return text


async def only(message: OutgoingMessage) -> AsyncGenerator[OutgoingMessage, None]:
    """Yield one message."""
    yield message


def open_lines(name: str) -> BinaryIO:
    """Open a file of lines, unpacked if it ends with .gz; stdin for `-`. Raises UsageWrong."""
    if name == "-":
        # Unbuffered: a thread that is waiting for a line would hold the buffer's lock on Ctrl-C.
        raw: BinaryIO = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        return raw
    try:
        if name.endswith(".gz"):
            return gzip.open(name, "rb")  # type: ignore[return-value]
        return Path(name).open("rb")
    except OSError as error:
        raise UsageWrong(f"{name}: cannot be read: {error.strerror}") from error
