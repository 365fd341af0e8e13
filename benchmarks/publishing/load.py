"""Loads: closed (each connection sends after its answer) and open (at a fixed rate).

In an open loop a message's latency counts from when it was due, not from when it could be sent, so
that a stalled server is charged for everything that should have been sent meanwhile. A message
without an answer counts with the time it was waited for.
"""

import asyncio
import contextlib
import gc
import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from publishing.arrivals import Alarm, constant, poisson
from publishing.batch import BatchConnection
from publishing.http1 import Http1Connection
from publishing.http2 import STREAMS, Http2Connection
from publishing.latencies import Latencies
from publishing.messages import Messages
from publishing.wire import Connection

WARM_UP_S = 0.7
_DRAIN_S = 3.0
_REOPEN_S = 0.05
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

PROTOCOLS: dict[str, type[Connection]] = {
    "http1": Http1Connection,
    "http2": Http2Connection,
    "batch": BatchConnection,
}


class Target(NamedTuple):
    """The loaded node, and the messages to send."""

    port: int
    pid: int
    protocol: str
    messages: Messages
    chunk: int


class Load:
    """A run's messages and answer counts, shared by all its connections."""

    def __init__(self, target: Target, connections: int, seconds: float) -> None:
        """For HTTP/2, `connections` counts requests under way, of which a connection has 16."""
        self._target = target
        self._class = PROTOCOLS[target.protocol]
        self._each = target.chunk if target.protocol == "batch" else 1
        self._requests: Iterator[bytes] = cycle(
            self._class.requests(target.messages.bodies, target.chunk)
        )
        self._count = -(-connections // STREAMS) if target.protocol == "http2" else connections
        # A connection offers 16 streams; the surplus ones stay unused.
        self._unused = self._count * STREAMS - connections if target.protocol == "http2" else 0
        self._connections: dict[Connection, None] = {}
        self._reopening: set[asyncio.Task[None]] = set()
        self.is_over = False
        self.start_s = self.end_s = 0.0
        self.seconds = seconds
        self.latencies = Latencies()
        self.errors: Counter[str] = Counter()
        self.acknowledged = 0

    async def run(self) -> dict[str, Any]:
        """Warm up, measure, close; return the figures."""
        begun_s = time.perf_counter()
        self.start_s = begun_s + WARM_UP_S
        self.end_s = self.start_s + self.seconds
        for _ in range(self._count):
            await self._open()
        await self.begin()
        await asyncio.sleep(self.start_s - time.perf_counter())
        gc.collect()
        gc.disable()
        try:
            server_s, own_s = cpu_s(self._target.pid), time.process_time()
            self.errors.clear()
            await asyncio.sleep(self.end_s - time.perf_counter())
            server_s, own_s = cpu_s(self._target.pid) - server_s, time.process_time() - own_s
            unanswered = await self.finish()
        finally:
            gc.enable()
            self.is_over = True
            for connection in self._connections:
                if connection.transport is not None:
                    connection.transport.abort()
            for task in self._reopening:
                task.cancel()
        count = self.acknowledged
        return {
            "messages_per_s": round(count / self.seconds),
            **self.latencies.summary(),
            "cpu_ms_per_1000": round(server_s / count * 1e6, 2) if count else None,
            "server_cpu_percent": round(server_s / self.seconds * 100),
            "client_cpu_percent": round(own_s / self.seconds * 100),
            "errors": dict(sorted(self.errors.items())),
            "unanswered": unanswered,
        }

    async def begin(self) -> None:
        """Send the first messages."""

    async def finish(self) -> int:
        """Stop sending; return how many measured messages stay unanswered."""
        return 0

    def answered(self, due_s: float, good: int, bad: Counter[str]) -> None:
        """Count an answer that came in the measured time."""
        now_s = time.perf_counter()
        if self.start_s <= now_s < self.end_s:
            if good:
                self.acknowledged += good
                self.latencies.record(now_s - due_s, good)
            if bad:
                self.errors += bad

    def ready(self, connection: Connection) -> None:
        """In a closed loop, send the next message at once."""
        if self._unused:
            self._unused -= 1
        elif not self.is_over:
            connection.send(next(self._requests), time.perf_counter())

    def lost(self, connection: Connection) -> None:
        """Open another connection instead."""
        self._connections.pop(connection, None)
        if not self.is_over:
            task = asyncio.get_running_loop().create_task(self._reopen())
            self._reopening.add(task)
            task.add_done_callback(self._reopening.discard)

    async def _reopen(self) -> None:
        while True:
            await asyncio.sleep(_REOPEN_S)
            try:
                await self._open()
            except OSError:
                continue
            return

    async def _open(self) -> None:
        connection = self._class(self)
        connection.messages_each = self._each
        self._connections[connection] = None
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, "127.0.0.1", self._target.port
            )
        finally:
            # Refused, or given up at the end of the run.
            if connection.transport is None:
                del self._connections[connection]


class OpenLoad(Load):
    """Messages come at a rate that does not depend on the answers.

    `connections` is how many may be under way; further messages wait here, and their time counts.
    For batches, a chunk arrives as a whole.
    """

    def __init__(
        self, target: Target, connections: int, seconds: float, rate_per_s: float, spacing: str
    ) -> None:
        super().__init__(target, connections, seconds)
        self._rate_per_s = rate_per_s
        self._is_poisson = spacing == "poisson"
        self._free: deque[Connection] = deque()
        self._waiting: deque[float] = deque()
        self._outstanding = 0
        self._settled: asyncio.Event | None = None
        self._lateness = Latencies()
        self._alarm: Alarm | None = None
        self._arrivals: Iterator[float] = iter(())
        self._next_s = 0.0

    async def run(self) -> dict[str, Any]:
        """As for every load, plus the offered rate and how late this process was."""
        figures = await super().run()
        (late_ms,) = self._lateness.quantiles_ms(0.99)
        late = None if late_ms is None else round(late_ms, 3)
        return {"offered_per_s": round(self._rate_per_s), **figures, "late_p99_ms": late}

    async def begin(self) -> None:
        """Start the arrivals."""
        rate, now_s = self._rate_per_s / self._each, time.perf_counter()
        if self._is_poisson:
            self._arrivals = poisson(rate, now_s, random.Random(1))
        else:
            self._arrivals = constant(rate, now_s)
        self._next_s = next(self._arrivals)
        self._alarm = Alarm(asyncio.get_running_loop(), self._fire)
        self._alarm.set(self._next_s)

    async def finish(self) -> int:
        """Wait up to 3 s for answers. Unanswered messages count with the time they waited."""
        assert self._alarm is not None
        self._alarm.close()
        self._settled = asyncio.Event()
        if self._outstanding > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), _DRAIN_S)
        self.is_over = True
        now_s, unanswered = time.perf_counter(), 0
        groups = [(due_s, self._each) for due_s in self._waiting]
        for connection in self._connections:
            groups += connection.under_way()
        for due_s, count in groups:
            if due_s >= self.start_s:
                self.latencies.record(now_s - due_s, count)
                unanswered += count
        return unanswered

    def answered(self, due_s: float, good: int, bad: Counter[str]) -> None:
        """Count an answer to a message that was due in the measured time."""
        now_s = time.perf_counter()
        self._outstanding -= good + bad.total()
        if self._settled is not None and self._outstanding <= 0:
            self._settled.set()
        if good:
            if due_s >= self.start_s:
                self.latencies.record(now_s - due_s, good)
            if self.start_s <= now_s < self.end_s:
                self.acknowledged += good
        if bad and due_s >= self.start_s:
            self.errors += bad

    def ready(self, connection: Connection) -> None:
        """Send a waiting message, or wait for the next arrival."""
        if self._unused:
            self._unused -= 1
        elif self._waiting:
            connection.send(next(self._requests), self._waiting.popleft())
        else:
            self._free.append(connection)

    def lost(self, connection: Connection) -> None:
        """Forget the connection's free places, too."""
        self._free = deque(each for each in self._free if each is not connection)
        super().lost(connection)

    def _fire(self) -> None:
        now_s = time.perf_counter()
        while self._next_s <= now_s:
            due_s = self._next_s
            self._outstanding += self._each
            if self._free:
                self._lateness.record(now_s - due_s)
                self._free.popleft().send(next(self._requests), due_s)
            else:
                self._waiting.append(due_s)
            self._next_s = next(self._arrivals)
        assert self._alarm is not None
        self._alarm.set(self._next_s)


def run(load: Load) -> dict[str, Any]:
    """The figures of a load, run on its own loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(load.run())


def cpu_s(pid: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
