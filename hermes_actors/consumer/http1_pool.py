"""Pushes over pooled HTTP/1.1 connections: one pool for each lane and origin, bounded, swept.

No task and no timer for each push: a connection's callback ends one push and starts the next that
waits; one timer sweeps all pools for what has run out of time. Knows the network through a seam
(`Net`), so that a simulation runs the same code over connections of its own.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from hermes_actors.consumer.http1_wire import Exchange, request_bytes
from hermes_actors.consumer.sender import CONNECTED, Done, Failure, Origin, Push, Route, SendOutcome

SWEEP_INTERVAL_S = 0.025
"""How late a time-out may be noticed."""


class Wire(Protocol):
    """An open connection's way out."""

    def write(self, data: bytes) -> None:
        """Send these bytes; buffers what does not go at once."""

    def abort(self) -> None:
        """Close without waiting. May call `PooledConnection.ended`, now or later, or not."""

    def is_closing(self) -> bool:
        """True when nothing written from now on would arrive."""


class Net(Protocol):
    """What the pools need of a loop and its network."""

    def now_s(self) -> float:
        """Monotonic seconds."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call after the running code has returned."""

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call once, after the delay."""

    def dial(self, connection: "PooledConnection", origin: Origin) -> None:
        """Begin to connect. Later exactly one of `connection.opened` and `.dial_failed` follows."""


class PoolLimits(Struct, frozen=True):
    """Bounds of each pool. `waiting_max` pushes may wait for a connection, the next one fails."""

    connections_max: int = 100
    waiting_max: int = 10_000
    response_bytes_max: int = 65_536
    idle_s: float = 30.0


class _Request:
    """A push that has not ended."""

    __slots__ = ("deadline_s", "done", "is_second_try", "push", "socket_timeout_s")

    def __init__(self, push: Push, done: Done, now_s: float) -> None:
        self.push = push
        self.done = done
        self.deadline_s = now_s + push.request_timeout_ms / 1_000
        self.socket_timeout_s = push.socket_timeout_ms / 1_000
        self.is_second_try = False


class PooledConnection:
    """One connection of a pool.

    The network calls `opened` or `dial_failed`, then `received` and `ended`.
    """

    __slots__ = ("_pool", "_wire", "exchange", "heard_s", "idle_since_s", "probe", "request")

    def __init__(self, pool: "_Pool") -> None:
        self._pool = pool
        self._wire: Wire | None = None
        self.exchange = Exchange(pool.limits.response_bytes_max)
        self.request: _Request | None = None
        self.probe: Done | None = None
        self.idle_since_s = 0.0
        self.heard_s = 0.0

    def opened(self, wire: Wire) -> None:
        """The connection stands."""
        self._wire = wire
        self._pool.on_opened(self)

    def dial_failed(self, detail: str) -> None:
        """It could not be made."""
        self._pool.on_dial_failed(self, detail)

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        exchange = self.exchange
        outcome = exchange.receive(data)
        if outcome is not None:
            self._pool.on_outcome(self, outcome)
        elif not exchange.is_reusable:
            self._pool.drop(self)
        elif self.request is not None and self.request.socket_timeout_s:
            self.heard_s = self._pool.net.now_s()

    def ended(self, why: str = "") -> None:
        """The peer closed, or the connection broke. Calls after the first change nothing."""
        exchange, request = self.exchange, self.request
        is_stale = (
            request is not None
            and not exchange.is_answered
            and exchange.served > 0
            and not request.is_second_try
        )
        if is_stale:
            # The peer closed an idle connection while we wrote to it. Nothing was answered, so
            # this is tried once more, over a connection that is not older than the request.
            self._pool.on_stale(self)
            return
        outcome = exchange.end_of_stream(why)
        if outcome is not None:
            self._pool.on_outcome(self, outcome)
        else:
            self._pool.drop(self)

    def start(self, request: _Request, now_s: float) -> None:
        """Write this request."""
        assert self._wire is not None, "not opened"
        self.request = request
        self.heard_s = now_s
        self.exchange.begin()
        self._wire.write(request_bytes(request.push))

    def is_usable(self) -> bool:
        """True when a request may be written now."""
        return self._wire is not None and self.exchange.is_reusable and not self._wire.is_closing()

    def close(self) -> None:
        """Close it; whatever the peer still says is not heard."""
        self.exchange.is_reusable = False
        if self._wire is not None:
            self._wire.abort()


class _Pool:
    """The connections of one lane to one origin, and the pushes that wait for one."""

    __slots__ = ("busy", "dialing", "idle", "limits", "net", "next_deadline_s", "origin", "waiting")

    def __init__(self, net: Net, origin: Origin, limits: PoolLimits) -> None:
        self.net = net
        self.origin = origin
        self.limits = limits
        self.idle: list[PooledConnection] = []
        self.busy: dict[PooledConnection, None] = {}
        self.dialing: dict[PooledConnection, None] = {}
        self.waiting: deque[_Request] = deque()
        self.next_deadline_s = float("inf")

    def submit(self, request: _Request, now_s: float) -> bool:
        """Start the request or let it wait; False when too many wait."""
        self._note_deadline(request, now_s)
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable():
                self._start(connection, request, now_s)
                return True
            connection.close()
        if len(self.waiting) >= self.limits.waiting_max:
            return False
        self.waiting.append(request)
        self._dial()
        return True

    def probe(self, done: Done) -> None:
        """Open a connection, and say whether it could be; an idle one will do at the bound."""
        if self._is_full:
            while self.idle and not self.idle[-1].is_usable():
                self.idle.pop().close()
            full = SendOutcome(0, "", Failure.OVERLOADED, "all connections are in use")
            outcome = CONNECTED if self.idle else full
            self.net.soon(lambda: done(outcome))
            return
        connection = PooledConnection(self)
        connection.probe = done
        self.dialing[connection] = None
        self.net.dial(connection, self.origin)

    def on_opened(self, connection: PooledConnection) -> None:
        if connection not in self.dialing:
            connection.close()
            return
        del self.dialing[connection]
        probe, connection.probe = connection.probe, None
        self._next(connection)
        if probe is not None:
            probe(CONNECTED)

    def on_dial_failed(self, connection: PooledConnection, detail: str) -> None:
        if connection not in self.dialing:
            return
        del self.dialing[connection]
        if connection.probe is not None:
            self._dial()
            connection.probe(SendOutcome(0, "", Failure.CONNECT, detail))
            return
        # Each failure ends the one that has waited longest, so a dead origin ends them all.
        request = self.waiting.popleft() if self.waiting else None
        self._dial()
        if request is not None:
            request.done(SendOutcome(0, "", Failure.CONNECT, detail))

    def on_outcome(self, connection: PooledConnection, outcome: SendOutcome) -> None:
        request = connection.request
        assert request is not None, "an outcome belongs to a request"
        connection.request = None
        self.busy.pop(connection, None)
        if connection.is_usable():
            self._next(connection)
        else:
            connection.close()
            self._dial()
        # Last: it may send again, and finds this connection free.
        request.done(outcome)

    def on_stale(self, connection: PooledConnection) -> None:
        request = connection.request
        assert request is not None, "only a request can find its connection stale"
        connection.request = None
        connection.exchange.fail(Failure.RESET, "stale")
        self.busy.pop(connection, None)
        connection.close()
        request.is_second_try = True
        self.waiting.appendleft(request)
        self._dial()

    def drop(self, connection: PooledConnection) -> None:
        """Forget a connection without a request."""
        connection.close()
        if connection in self.idle:
            self.idle.remove(connection)

    def sweep(self, now_s: float) -> None:
        """End what has run out of time; close what has been idle for too long."""
        while self.idle and self.idle[0].idle_since_s + self.limits.idle_s <= now_s:
            self.idle.pop(0).close()
        if now_s < self.next_deadline_s:
            return
        self.next_deadline_s = float("inf")
        late = [request for request in self.waiting if request.deadline_s <= now_s]
        if late:
            self.waiting = deque(r for r in self.waiting if r.deadline_s > now_s)
        for request in self.waiting:
            self._note_deadline(request, now_s)
        # Only an endpoint that does not let us in is to blame for what could not be sent.
        outcome = SendOutcome(0, "", Failure.TIMEOUT, "no connection was opened in time")
        if not self.dialing:
            count = len(self.busy)
            detail = f"no connection was free in time, all {count} wait for answers"
            outcome = SendOutcome(0, "", Failure.OVERLOADED, detail)
        for connection in list(self.busy):
            self._sweep_busy(connection, now_s)
        for request in late:
            request.done(outcome)

    def close(self) -> None:
        """End everything."""
        waiting, self.waiting = self.waiting, deque()
        for request in waiting:
            request.done(SendOutcome(0, "", Failure.CLOSED))
        for connection in list(self.busy):
            self._give_up(connection, Failure.CLOSED, "")
        for connection in self.idle:
            connection.close()
        self.idle.clear()
        dialing, self.dialing = self.dialing, {}
        for connection in dialing:
            if connection.probe is not None:
                connection.probe(SendOutcome(0, "", Failure.CLOSED))

    @property
    def _is_full(self) -> bool:
        connections = len(self.dialing) + len(self.busy) + len(self.idle)
        return connections >= self.limits.connections_max

    @property
    def is_empty(self) -> bool:
        return not (self.busy or self.waiting or self.idle or self.dialing)

    def _sweep_busy(self, connection: PooledConnection, now_s: float) -> None:
        request = connection.request
        if request is None:
            return
        if request.deadline_s <= now_s:
            timeout_ms = request.push.request_timeout_ms
            self._give_up(connection, Failure.TIMEOUT, f"no answer within {timeout_ms} ms")
        elif request.socket_timeout_s and connection.heard_s + request.socket_timeout_s <= now_s:
            self._give_up(connection, Failure.IDLE, "silence on the connection")
        else:
            self._note_deadline(request, connection.heard_s or now_s)

    def _give_up(self, connection: PooledConnection, failure: Failure, detail: str) -> None:
        outcome = connection.exchange.give_up(failure, detail)
        if outcome is not None:
            self.on_outcome(connection, outcome)

    def _note_deadline(self, request: _Request, heard_s: float) -> None:
        deadline_s = request.deadline_s
        if request.socket_timeout_s:
            deadline_s = min(deadline_s, heard_s + request.socket_timeout_s)
        self.next_deadline_s = min(self.next_deadline_s, deadline_s)

    def _start(self, connection: PooledConnection, request: _Request, now_s: float) -> None:
        self.busy[connection] = None
        connection.start(request, now_s)

    def _next(self, connection: PooledConnection) -> None:
        now_s = self.net.now_s()
        if self.waiting:
            request = self.waiting.popleft()
            self._note_deadline(request, now_s)
            self._start(connection, request, now_s)
        else:
            connection.idle_since_s = now_s
            self.idle.append(connection)

    def _dial(self) -> None:
        while len(self.dialing) < len(self.waiting) and not self._is_full:
            connection = PooledConnection(self)
            self.dialing[connection] = None
            self.net.dial(connection, self.origin)


class Http1Sender:
    """The plain HTTP/1.1 sender: `Sender`'s promise over pooled connections of any `Net`."""

    def __init__(self, net: Net, limits: PoolLimits) -> None:
        self._net = net
        self._limits = limits
        self._pools: dict[tuple[str, Origin], _Pool] = {}
        self._is_swept = False
        self._is_closed = False

    def send(self, push: Push, done: Done) -> None:
        """Start the push; `done` is called exactly once, later."""
        if self._is_closed:
            self._net.soon(lambda: done(SendOutcome(0, "", Failure.CLOSED)))
            return
        pool = self._pool(push.route)
        now_s = self._net.now_s()
        if not pool.submit(_Request(push, done, now_s), now_s):
            outcome = SendOutcome(0, "", Failure.OVERLOADED, "too many pushes wait")
            self._net.soon(lambda: done(outcome))

    def probe(self, route: Route, done: Done) -> None:
        """Connect to the route's origin; the connection is kept for the next push of its lane."""
        if self._is_closed:
            self._net.soon(lambda: done(SendOutcome(0, "", Failure.CLOSED)))
            return
        self._pool(route).probe(done)

    def close(self) -> None:
        """End all pushes with CLOSED and close all connections; later pushes end likewise."""
        self._is_closed = True
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()

    def statistics(self) -> tuple[int, int, int]:
        """(busy connections, idle connections, pushes waiting) over all pools."""
        pools = self._pools.values()
        return (
            sum(len(pool.busy) for pool in pools),
            sum(len(pool.idle) for pool in pools),
            sum(len(pool.waiting) for pool in pools),
        )

    def _pool(self, route: Route) -> _Pool:
        key = (route.lane, route.origin)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(self._net, route.origin, self._limits)
            if not self._is_swept:
                self._is_swept = True
                self._net.later(SWEEP_INTERVAL_S, self._sweep)
        return pool

    def _sweep(self) -> None:
        now_s = self._net.now_s()
        for pool in list(self._pools.values()):
            pool.sweep(now_s)
        for key in [key for key, pool in self._pools.items() if pool.is_empty]:
            del self._pools[key]
        self._is_swept = bool(self._pools)
        if self._is_swept:
            self._net.later(SWEEP_INTERVAL_S, self._sweep)
