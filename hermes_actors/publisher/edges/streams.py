"""One batch between an HTTP connection and its stream: reads and writes at the same time.

Runs on the asyncio host and in trio alike. Neither direction waits for the other but where the
stream says so: a publisher that writes all before it reads gets as far as the stream's bounds.
"""

from typing import Protocol

import anyio

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.publisher.batch import BatchStream

_LINGER_S = 1.0


class Left(Exception):
    """The publisher has gone."""


class Peer(Protocol):
    """The way to the publisher and back."""

    async def read(self) -> bytes | None:
        """The next piece of the body, None at its end. Raises Left."""

    async def write(self, data: bytes) -> None:
        """Send a piece of the answer; the first one sends its head too. Raises Left."""

    async def finish(self) -> None:
        """The answer is complete. Raises Left."""


async def run_stream(stream: BatchStream, peer: Peer, idle_s: float) -> None:
    """Serve one batch from its head to its last line, and close the stream.

    After `idle_s` without a piece of the body, or without the publisher reading an answer, it ends.
    """
    pump = _Pump(stream, peer, idle_s)
    try:
        await pump.run()
    finally:
        stream.close()


class _Pump:
    def __init__(self, stream: BatchStream, peer: Peer, idle_s: float) -> None:
        self._stream = stream
        self._peer = peer
        self._idle_s = idle_s
        self._reading: anyio.CancelScope | None = None
        self._reader_event: anyio.Event | None = None
        self._writer_event: anyio.Event | None = None
        self._has_left = False
        self._is_read = False
        stream.wake_reader = self._wake_reader
        stream.wake_writer = self._wake_writer

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write)
            await self._read()
            self._wake_writer()
        if self._has_left:
            return
        try:
            await self._linger()
            await self._peer.finish()
        except Left:
            return

    async def _read(self) -> None:
        stream = self._stream
        while True:
            while not stream.go_on():
                self._reader_event = anyio.Event()
                await self._reader_event.wait()
            if stream.is_over:
                return
            piece = b""
            try:
                with (
                    anyio.CancelScope() as self._reading,
                    anyio.move_on_after(self._idle_s) as limit,
                ):
                    found = await self._peer.read()
                    piece = found or b""
                    self._is_read = found is None
                self._reading = None
            except Left:
                self._leave()
                continue
            if self._is_read:
                stream.finish()
            elif piece:
                stream.feed(piece)
            elif limit.cancelled_caught:
                stream.stop(_idle(self._idle_s, "no more of the body came"))

    async def _write(self) -> None:
        stream = self._stream
        while True:
            if lines := stream.take_lines():
                if not await self._send(lines):
                    self._leave()
                    return
                stream.sent()
            elif stream.is_answered:
                return
            else:
                if stream.is_over and self._reading is not None:
                    self._reading.cancel()
                self._writer_event = anyio.Event()
                await self._writer_event.wait()

    async def _send(self, lines: bytes) -> bool:
        """False when the publisher has gone, or reads no answers."""
        with anyio.move_on_after(self._idle_s):
            try:
                await self._peer.write(lines)
            except Left:
                return False
            return True
        return False

    def _leave(self) -> None:
        self._has_left = True
        self._stream.leave()
        self._wake_reader()
        self._wake_writer()
        if self._reading is not None:
            self._reading.cancel()

    async def _linger(self) -> None:
        """Read what still comes of a body that was ended early. A connection that is closed with
        unread bytes is reset, and the publisher may lose the last lines.
        """
        with anyio.move_on_after(_LINGER_S):
            while not self._is_read:
                self._is_read = await self._peer.read() is None

    def _wake_reader(self) -> None:
        if self._reader_event is not None:
            self._reader_event.set()

    def _wake_writer(self) -> None:
        if self._writer_event is not None:
            self._writer_event.set()


def _idle(idle_s: float, what: str) -> Refused:
    return Refused(f"For {idle_s:g} s {what}: lines after this were not read", ErrorCode.TIMEOUT)
