"""The network between a node and the subscribers: connections in virtual time, without sockets.

It implements the seam below the HTTP/1.1 sender, so that pools and codec are the production code's.
The subscribers' side parses the bytes with a server's parser.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from heapq import heappop, heappush

import trio

from hermes_actors.consumer.senders.http1.connection import PooledConnection
from hermes_actors.consumer.senders.sender import Origin
from hermes_chaos.sim.determinism import inside
from hermes_chaos.sim.environment.subscribers import Endpoint, Plan, RequestParser


class SimulatedNet:
    """One node's network; satisfies `Net`."""

    def __init__(
        self,
        nursery: trio.Nursery,
        dc: str,
        endpoints: Mapping[str, Endpoint],
        rng: random.Random,
        process: Context,
    ) -> None:
        """The node's callbacks run in its `process`."""
        self._here = _Timers(nursery, process)
        self._beyond = _Timers(nursery, inside(""))
        self._endpoints = endpoints
        self._rng = rng
        self.dc = dc

    def die(self) -> None:
        """End the node's network: nothing is called, sent or received any more."""
        self._here.end()
        self._beyond.end()

    def now_s(self) -> float:
        """Virtual seconds."""
        return trio.current_time()

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after the running code has returned."""
        self.later(0.0, callback)

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call once, after the delay. Never if the node dies first; later if it is paused."""
        self._here.add(delay_s, callback)

    def beyond(self, delay_s: float, callback: Callable[[], None]) -> None:
        """As `later`, for the other end, whether the node is paused or not."""
        self._beyond.add(delay_s, callback)

    def dial(self, connection: PooledConnection, origin: Origin) -> None:
        """Start to connect."""
        endpoint = self._endpoints.get(origin.host)

        def connected() -> None:
            if endpoint is None or endpoint.is_down:
                connection.dial_failed(f"{origin}: connection refused")
            else:
                connection.opened(_Link(self, connection, endpoint))

        self.later(self._rng.uniform(0.0005, 0.002), connected)


class _Timers:
    """Timed callbacks of one process. One task serves all, which is cheaper than a task for each.
    Callbacks due at the same moment run in order of arrival.
    """

    def __init__(self, nursery: trio.Nursery, process: Context) -> None:
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._pause = trio.CancelScope()
        self._is_over = False
        process.run(nursery.start_soon, self._run)

    def add(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call once, after the delay."""
        at_s = trio.current_time() + delay_s
        self._count += 1
        heappush(self._waiting, (at_s, self._count, callback))
        self._pause.deadline = min(self._pause.deadline, at_s)

    def end(self) -> None:
        """Drop all calls; make no more."""
        self._is_over = True
        self._pause.cancel()

    async def _run(self) -> None:
        waiting = self._waiting
        while not self._is_over:
            self._pause = trio.CancelScope(deadline=waiting[0][0] if waiting else math.inf)
            with self._pause:
                await trio.sleep_forever()
            now_s = trio.current_time()
            due: list[Callable[[], None]] = []
            while waiting and waiting[0][0] <= now_s:
                due.append(heappop(waiting)[2])
            for callback in due:
                if not self._is_over:
                    callback()


class _Link:
    """An open connection; satisfies `Wire`."""

    def __init__(self, net: SimulatedNet, connection: PooledConnection, endpoint: Endpoint) -> None:
        self._net = net
        self._connection = connection
        self._endpoint = endpoint
        self._server = RequestParser(self._on_request)
        self._is_closed = False
        self._is_left = False

    def write(self, data: bytes) -> None:
        """The bytes arrive a moment later."""
        self._net.beyond(0.0005, lambda: self._arrive(data))

    def abort(self) -> None:
        """Close our side and ignore what the subscriber still sends."""
        self._is_closed = True

    def is_closing(self) -> bool:
        """True once either side has closed and we know of it."""
        return self._is_closed

    def _arrive(self, data: bytes) -> None:
        # Also after an abort, because the bytes were under way; but not once the subscriber has
        # left.
        if not self._is_left:
            self._server.feed(data)

    def _on_request(self, messages: Sequence[tuple[str, bytes]]) -> None:
        plan = self._endpoint.receive(self._net.dc, messages)
        self._send(plan, 0, b"", messages)

    def _send(
        self, plan: Plan, number: int, sent: bytes, messages: Sequence[tuple[str, bytes]]
    ) -> None:
        """Send the pieces from `number` on, one after the other, then close if planned."""
        if number < len(plan.pieces):
            delay_s, piece = plan.pieces[number]

            def arrive() -> None:
                if self._is_closed:
                    return
                # The head decides the outcome; report it before the sender acts on it.
                if b"\r\n\r\n" in sent + piece and b"\r\n\r\n" not in sent:
                    self._endpoint.answered(self._net.dc, messages, int((sent + piece)[9:12]))
                self._send(plan, number + 1, sent + piece, messages)
                self._connection.received(piece)

            self._net.later(delay_s, arrive)
        elif plan.closes_after_s is not None:
            self._net.later(plan.closes_after_s, self._close)

    def _close(self) -> None:
        self._is_left = True
        if not self._is_closed:
            self._is_closed = True
            self._connection.ended("the subscriber closed the connection")
