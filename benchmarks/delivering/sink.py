"""The subscribers: one process that answers pushes by path and records when each message arrived.

`/count` only answers and counts. `/note/KEY` also parses and records. `/fail/KEY` does, too, but
answers 503 to each hundredth message until the sink is mended. The other origin answers `/slow`
late. The sink can tell which of the known processes sent a push.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import threading
import time
from array import array
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Self, cast

import uvloop

from delivering.peers import processes_of

_GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_BAD = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_FAILING_EACH = 100
_NAMED_EACH_S = 0.05
_SLOW_HOST = "127.0.0.2"
"""Another host, so that it does not share a node's per-host limits."""


def is_failing(number: int) -> bool:
    """True for the messages that `/fail` refuses until the sink is mended."""
    return number % _FAILING_EACH == 0


class Arrivals(NamedTuple):
    """Accepted messages: their numbers, when they were due at the publisher, when they came (times
    of time.perf_counter(), which all processes share), and the sender, by the number that the sink
    was told for its process; -1 for any other.
    """

    numbers: "array[int]"
    due_s: "array[float]"
    came_s: "array[float]"
    senders: "array[int]"

    @classmethod
    def none(cls) -> Self:
        """No arrivals."""
        return cls(array("q"), array("d"), array("d"), array("q"))


class Counted(NamedTuple):
    """The pushes to `/count` since the last call, and the time of the last one."""

    messages: int
    last_s: float


class _Board:
    """The counts that all connections share."""

    def __init__(self, slow_s: float) -> None:
        self.slow_s = slow_s
        self.port = 0
        self.is_mended = False
        self.count = 0
        self.last_s = 0.0
        self.arrivals: dict[str, Arrivals] = {}
        self.senders: dict[int, int] = {}
        """The number of each known process, by its id."""
        self._connections = 0
        self._unnamed: dict[int, int] = {}
        self._names: dict[int, int] = {}

    def opened(self, port: int) -> int:
        """Register a connection from that port. Return its number, under which arrivals are
        recorded.
        """
        self._connections += 1
        if self.senders:
            self._unnamed[self._connections] = port
        return self._connections

    def name_senders(self) -> None:
        """Find out who opened the connections since the last call. May run in any thread; it takes
        milliseconds, for which pushes should not wait.
        """
        unnamed = dict(self._unnamed)
        if not unnamed:
            return
        found = processes_of(set(unnamed.values()), self.port, set(self.senders))
        for connection, port in unnamed.items():
            self._names[connection] = self.senders.get(found.get(port, -1), -1)
            self._unnamed.pop(connection, None)

    def taken(self) -> dict[str, Arrivals]:
        """The records since the last call, with the senders' numbers."""
        self.name_senders()
        arrivals, self.arrivals = self.arrivals, {}
        return {
            key: noted._replace(
                senders=array("h", (self._names.get(each, -1) for each in noted.senders))
            )
            for key, noted in arrivals.items()
        }

    def answer(self, path: bytes, body: bytes, connection: int) -> bytes:
        """Record a push; return the answer."""
        now_s = time.perf_counter()
        _, kind, key = path.decode().split("/", 2)
        number, due_s = _number_of(body)
        if kind == "fail" and not self.is_mended and is_failing(number):
            return _BAD
        if number >= 0:
            noted = self.arrivals.setdefault(key, Arrivals.none())
            noted.numbers.append(number)
            noted.due_s.append(due_s)
            noted.came_s.append(now_s)
            noted.senders.append(connection)
        return _GOOD


def _number_of(body: bytes) -> tuple[int, float]:
    content = json.loads(body)
    return content.get("n", content.get("number", -1)), content.get("at", 0.0)


class _Subscriber(asyncio.Protocol):
    """Answers each complete request."""

    def __init__(self, board: _Board) -> None:
        self._board = board
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the new connection."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        # A connection that was closed again has no address.
        self._number = self._board.opened(peer[1] if peer is not None else 0)

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        data = self._buffer + data
        answers = []
        while (end := data.find(b"\r\n\r\n")) >= 0:
            at = data.find(b"Content-Length: ") + 16
            whole = end + 4 + int(data[at : data.find(b"\r", at)])
            if len(data) < whole:
                break
            if data.startswith(b"POST /count "):
                self._board.count += 1
                self._board.last_s = time.perf_counter()
                answers.append(_GOOD)
            elif data.startswith(b"POST /slow "):
                loop = asyncio.get_running_loop()
                loop.call_later(self._board.slow_s, self._transport.write, _GOOD)
            else:
                path = data[5 : data.find(b" ", 5)]
                body = data[end + 4 : whole]
                answers.append(self._board.answer(path, body, self._number))
            data = data[whole:]
        self._buffer = data
        if answers:
            self._transport.write(b"".join(answers))


def _serve(pipe: Connection, slow_s: float) -> None:
    """The sink's process: first sends its ports, then answers the pipe's requests."""
    board = _Board(slow_s)

    def asked() -> None:
        question = pipe.recv()
        if question == "count":
            pipe.send(Counted(board.count, board.last_s))
            board.count = 0
        elif question == "take":
            pipe.send(board.taken())
        elif isinstance(question, dict):
            board.senders |= question
            pipe.send(len(board.senders))
        else:
            board.is_mended = question == "mend"
            pipe.send(board.is_mended)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(lambda: _Subscriber(board), host, 0, backlog=1_024)
            for host in ("127.0.0.1", _SLOW_HOST)
        ]
        loop.add_reader(pipe.fileno(), asked)
        # Being watched makes the pipe non-blocking, but a minute's arrivals exceed its buffer.
        os.set_blocking(pipe.fileno(), True)
        ports = [server.sockets[0].getsockname()[1] for server in servers]
        board.port = ports[0]
        pipe.send(ports)
        await asyncio.Event().wait()

    threading.Thread(target=_name_regularly, args=(board,), daemon=True).start()
    # A garbage collection would show in every latency.
    gc.disable()
    uvloop.run(main())


def _name_regularly(board: _Board) -> None:
    while True:
        time.sleep(_NAMED_EACH_S)
        board.name_senders()


class Sink:
    """The client of the sink's process, which ends with the block."""

    def __init__(self, slow_s: float) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._one_at_a_time = threading.Lock()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, slow_s), daemon=True
        )

    def __enter__(self) -> Self:
        self._process.start()
        port, slow_port = self._pipe.recv()
        self._origin = f"http://127.0.0.1:{port}"
        self.slow = f"http://{_SLOW_HOST}:{slow_port}/slow"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.join()

    def at(self, path: str) -> str:
        """An endpoint of the sink."""
        return f"{self._origin}/{path}"

    def counted(self) -> Counted:
        """The pushes to `/count` since the last call."""
        return cast("Counted", self._asked("count"))

    def take(self) -> dict[str, Arrivals]:
        """By key, what was recorded since the last call."""
        return cast("dict[str, Arrivals]", self._asked("take"))

    def fail(self) -> None:
        """Let `/fail` fail from now on."""
        self._asked("fail")

    def mend(self) -> None:
        """Let nothing fail any more."""
        self._asked("mend")

    def know(self, senders: Mapping[int, int]) -> None:
        """Give the processes with these ids these numbers, on connections that they open from now
        on.
        """
        self._asked(dict(senders))

    def _asked(self, question: str | dict[int, int]) -> Any:
        with self._one_at_a_time:
            self._pipe.send(question)
            return self._pipe.recv()
