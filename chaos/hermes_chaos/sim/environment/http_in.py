"""Publishers' HTTP/1.1 connections to a node in process: the production edge without sockets."""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import msgspec
import trio
from msgspec import Struct

from hermes_actors.publisher.edges.http1.connection import Http1Connection
from hermes_actors.publisher.edges.http2.connection import Http2Connection
from hermes_actors.publisher.edges.publishing import PublishEdge


class Response(Struct, frozen=True):
    """An answer. `message_id` and an error's `code` are empty strings if absent."""

    status: int
    message_id: str
    code: str = ""


class TrioHost:
    """Runs connections on trio. Their tasks run in `nursery`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after the running code has returned."""

        async def call() -> None:
            callback()

        self._nursery.start_soon(call)

    def spawn(
        self, task: Coroutine[Any, Any, None], on_failure: Callable[[], None]
    ) -> Callable[[], None]:
        """Run the task concurrently. The returned function cancels it. A failure ends the run."""
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await task

        self._nursery.start_soon(run)
        return scope.cancel


class Line:
    """The client's end of a connection, and the wire that the node's end writes to.

    Bytes sent while the node does not read wait in `unread`. The client reads nothing while
    `may_write` is not set.
    """

    def __init__(
        self,
        edge: PublishEdge,
        speaks: type[Http1Connection] | type[Http2Connection] = Http1Connection,
    ) -> None:
        self.answered = bytearray()
        self.unread: deque[bytes] = deque()
        self.is_closed = False
        self.may_write = trio.Event()
        self.may_write.set()
        self.changed = trio.Event()
        self._is_reading = True
        self._unsent = bytearray()
        self.connection = speaks(edge, cast("Any", self))

    def send(self, data: bytes) -> None:
        """Send bytes to the node."""
        self.unread.append(data)
        self._deliver()

    def leave(self) -> None:
        """Close from the client's side."""
        if not self.is_closed:
            self.is_closed = True
            self.connection.lost()

    def read_on(self) -> None:
        """Let the client read again."""
        self.may_write.set()
        self.answered += self._unsent
        self._unsent.clear()
        self._tell()
        self.connection.resumed()

    def write(self, data: bytes) -> None:
        """As `asyncio.Transport.write`."""
        if self.may_write.is_set():
            self.answered += data
            self._tell()
            return
        was_empty = not self._unsent
        self._unsent += data
        if was_empty:
            self.connection.paused()

    def can_write_eof(self) -> bool:
        """As `asyncio.Transport.can_write_eof`."""
        return False

    def write_eof(self) -> None:
        """As `asyncio.Transport.write_eof`."""

    def close(self) -> None:
        """As `asyncio.Transport.close`."""
        self.abort()

    def abort(self) -> None:
        """As `asyncio.Transport.abort`."""
        if not self.is_closed:
            self.is_closed = True
            self.connection.lost()
            self._tell()

    def pause_reading(self) -> None:
        """As `asyncio.Transport.pause_reading`."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """As `asyncio.Transport.resume_reading`."""
        self._is_reading = True
        self._deliver()

    def get_write_buffer_size(self) -> int:
        """As `asyncio.Transport.get_write_buffer_size`."""
        return len(self._unsent)

    def _deliver(self) -> None:
        while self._is_reading and self.unread and not self.is_closed:
            self.connection.received(self.unread.popleft())

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class Exchange:
    """One request on its own connection, and what was answered so far."""

    def __init__(self, path: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        head = f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()
        # In two pieces if possible: an edge must not rely on one read.
        half = len(body) // 2 if len(body) > 1_024 else len(body)
        self._pieces = [head, body[:half], body[half:]]
        self.response: Response | None = None

    async def run(self, edge: PublishEdge) -> None:
        """Send the request and wait for its answer."""
        line = Line(edge)
        try:
            for piece in filter(None, self._pieces):
                await trio.lowlevel.checkpoint()
                line.send(piece)
            # A stopping node closes the connection together with its answer.
            while (response := _response_in(bytes(line.answered))) is None and not line.is_closed:
                await line.changed.wait()
            self.response = response
        finally:
            line.leave()


def _response_in(answered: bytes) -> Response | None:
    """The answer, once it is complete."""
    head, separator, body = answered.partition(b"\r\n\r\n")
    if not separator:
        return None
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    if len(body) < int(headers["content-length"]):
        return None
    status = int(first.split(" ")[1])
    code = msgspec.json.decode(body, type=dict[str, str])["code"] if body else ""
    return Response(status, headers.get("hermes-message-id", ""), code)
