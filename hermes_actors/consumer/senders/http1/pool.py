"""Pushes over pooled HTTP/1.1 connections: a bounded pool for each subscription and origin.

There is no task and no timer for each push. A connection's callback ends one push and starts the
next one waiting; a single timer sweeps all pools for time-outs. The network is behind a seam
(`Net`), so that a simulation runs the same code over its own connections.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from hermes_actors.consumer.senders.http1.connection import (
    Net,
    OriginShare,
    PooledConnection,
    PushRequest,
)
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    PROBE_TIMEOUT_S,
    Done,
    Failure,
    Origin,
    Probed,
    Push,
    PushRoute,
    Sender,
    SendOutcome,
    may_begin,
)

SWEEP_INTERVAL_S = 0.025
"""The longest delay until a time-out is noticed."""

_TIDY_INTERVAL_S = 1.0


class PoolLimits(Struct, frozen=True):
    """Bounds of each pool; `connections_per_host_max` bounds all pools to one host and port.

    At most `waiting_max` pushes wait for a connection; a further one fails. With `repeats_stale`, a
    push whose connection the peer had closed is sent once more, over another one.
    """

    connections_max: int = 100
    waiting_max: int = 10_000
    response_bytes_max: int = 65_536
    idle_s: float = 30.0
    connections_per_host_max: int = 1_000
    repeats_stale: bool = True


class ConnectionPool:
    """The connections of one subscription to one origin, and the pushes that wait for one."""

    def __init__(self, net: Net, origin: Origin, limits: PoolLimits, share: OriginShare) -> None:
        self.net = net
        self.origin = origin
        self.limits = limits
        self.share = share
        self.idle: list[PooledConnection] = []
        self.is_known_idle = False
        self.busy: dict[PooledConnection, None] = {}
        self.dialing: dict[PooledConnection, None] = {}
        self.waiting: deque[PushRequest] = deque()
        self.next_deadline_s = float("inf")

    def submit(self, request: PushRequest, now_s: float) -> bool:
        """Start the request or queue it; False if too many wait."""
        if request.socket_timeout_s or request.deadline_s < self.next_deadline_s:
            self._note_deadline(request, now_s)
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable():
                self.busy[connection] = None
                connection.start(request, now_s)
                return True
            connection.close()
        if len(self.waiting) >= self.limits.waiting_max:
            return False
        self.waiting.append(request)
        self._connect()
        return True

    def probe(self, done: Probed, now_s: float) -> None:
        """Try to connect and report the result. If no connection is allowed, an idle one is proof
        enough.
        """
        if self._is_full or not self.share.take():
            found = self.give_idle()
            if found is not None:
                self.idle.append(found)
            failure = Failure.OVERLOADED if found is None else None
            self.net.soon(lambda: done(failure))
            return
        connection = self._dial()
        connection.probe = done
        connection.probe_deadline_s = now_s + PROBE_TIMEOUT_S
        self.next_deadline_s = min(self.next_deadline_s, connection.probe_deadline_s)

    # Calls from the connections.

    def on_opened(self, connection: PooledConnection) -> None:
        """The connection is open."""
        if connection not in self.dialing:
            connection.close()
            return
        del self.dialing[connection]
        probed, connection.probe = connection.probe, None
        self._free(connection)
        if probed is not None:
            probed(None)

    def on_dial_failed(self, connection: PooledConnection, failure: Failure, detail: str) -> None:
        """The connection could not be made."""
        if connection not in self.dialing:
            return
        del self.dialing[connection]
        # Each failure ends the oldest waiting push, so a dead origin ends them all. A probe's
        # failure ends only the probe.
        probed, connection.probe = connection.probe, None
        request = self.waiting.popleft() if self.waiting and probed is None else None
        connection.close()
        self._connect()
        if probed is not None:
            probed(failure)
        if request is not None:
            request.done(SendOutcome(0, "", failure, detail))

    def on_outcome(self, connection: PooledConnection, outcome: SendOutcome) -> None:
        """The connection's request has ended with this outcome."""
        request = connection.request
        assert request is not None, "an outcome belongs to a request"
        connection.request = None
        self.busy.pop(connection, None)
        if not connection.is_usable():
            connection.close()
            self._connect()
        elif self.share.hungry or self.waiting:
            self._free(connection)
        else:
            self._keep_idle(connection, self.net.now_s())
        # Last, because it may send again, and should find this connection free.
        request.done(outcome)

    def on_stale(self, connection: PooledConnection) -> None:
        """The peer had closed the connection before the request arrived."""
        request = connection.request
        assert request is not None, "only a request can find its connection stale"
        connection.request = None
        connection.exchange.give_up(Failure.RESET, "stale")
        self.busy.pop(connection, None)
        request.is_second_try = True
        self.waiting.appendleft(request)
        connection.close()
        self._connect()

    def drop(self, connection: PooledConnection) -> None:
        """Drop a connection without a request."""
        if connection in self.idle:
            self.idle.remove(connection)
        connection.close()

    # Calls from the origin's share.

    @property
    def size(self) -> int:
        """The number of connections, including those being made."""
        return len(self.dialing) + len(self.busy) + len(self.idle)

    @property
    def wants(self) -> bool:
        """True if one more connection would be used at once."""
        return len(self.dialing) < len(self.waiting) and not self._is_full

    def dial_one(self) -> None:
        """Make a connection; its place in the share is already taken."""
        self._dial()

    def adopt(self, connection: PooledConnection) -> None:
        """Use this open connection, which has no request."""
        connection.owner = self
        self._next(connection)

    def give_idle(self) -> PooledConnection | None:
        """Give away a usable connection that has no request."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        self.is_known_idle = False
        return None

    # Time.

    def close_idle(self, now_s: float) -> None:
        """Close connections that were idle too long."""
        while self.idle and self.idle[0].idle_since_s + self.limits.idle_s <= now_s:
            self.idle.pop(0).close()

    def sweep(self, now_s: float) -> None:
        """End what has timed out."""
        self.next_deadline_s = float("inf")
        late = [request for request in self.waiting if request.deadline_s <= now_s]
        if late:
            self.waiting = deque(r for r in self.waiting if r.deadline_s > now_s)
        for request in self.waiting:
            self._note_deadline(request, now_s)
        outcome = self._no_connection() if late else None
        for connection in list(self.busy):
            self._sweep_busy(connection, now_s)
        for connection in list(self.dialing):
            self._sweep_probe(connection, now_s)
        if outcome is not None:
            for request in late:
                request.done(outcome)

    def forget(self) -> None:
        """End all pushes, and close the connections of those in flight."""
        waiting, self.waiting = self.waiting, deque()
        for request in waiting:
            request.done(SendOutcome(0, "", Failure.CLOSED))
        for connection in list(self.busy):
            self._give_up(connection, Failure.CLOSED, "")

    def close(self) -> None:
        """End all pushes and close all connections."""
        self.forget()
        idle, self.idle = self.idle, []
        dialing, self.dialing = self.dialing, {}
        for connection in (*idle, *dialing):
            connection.close()
            probed, connection.probe = connection.probe, None
            if probed is not None:
                probed(Failure.CLOSED)

    @property
    def is_empty(self) -> bool:
        """True without connections and pushes."""
        return not (self.busy or self.waiting or self.idle or self.dialing)

    @property
    def _is_full(self) -> bool:
        return self.size >= self.limits.connections_max

    def _no_connection(self) -> SendOutcome:
        """The outcome of pushes that got no connection in time.

        A failure of the endpoint only if it did not accept connections.
        """
        if self.dialing or not self.share.standing:
            return SendOutcome(0, "", Failure.TIMEOUT, "no connection was opened in time")
        count = len(self.busy)
        whose = f"all {count} wait for answers"
        if not count:
            whose = f"all {self.share.open} to {self.origin} are other subscriptions'"
        detail = f"no connection was free in time, {whose}"
        return SendOutcome(0, "", Failure.OVERLOADED, detail)

    def _sweep_busy(self, connection: PooledConnection, now_s: float) -> None:
        request = connection.request
        if request is None:
            return
        if request.deadline_s <= now_s:
            timeout_ms = request.push.request_timeout_ms
            detail = f"no answer within {timeout_ms} ms"
            if connection.is_writing:
                detail = f"the endpoint had not taken the whole request within {timeout_ms} ms"
            self._give_up(connection, Failure.TIMEOUT, detail)
        elif request.socket_timeout_s and connection.heard_s + request.socket_timeout_s <= now_s:
            self._give_up(connection, Failure.IDLE, "silence on the connection")
        else:
            self._note_deadline(request, connection.heard_s or now_s)

    def _sweep_probe(self, connection: PooledConnection, now_s: float) -> None:
        probed = connection.probe
        if probed is None:
            return
        if connection.probe_deadline_s <= now_s:
            # The connection may still be completed, for the next push.
            connection.probe = None
            probed(Failure.TIMEOUT)
        else:
            self.next_deadline_s = min(self.next_deadline_s, connection.probe_deadline_s)

    def _give_up(self, connection: PooledConnection, failure: Failure, detail: str) -> None:
        outcome = connection.exchange.give_up(failure, detail)
        if outcome is not None:
            self.on_outcome(connection, outcome)

    def _note_deadline(self, request: PushRequest, heard_s: float) -> None:
        deadline_s = request.deadline_s
        if request.socket_timeout_s:
            deadline_s = min(deadline_s, heard_s + request.socket_timeout_s)
        self.next_deadline_s = min(self.next_deadline_s, deadline_s)

    # Connections.

    def _free(self, connection: PooledConnection) -> None:
        """Use a free connection: for a push of this subscription, or of another."""
        needs = bool(self.waiting)
        if not self.share.hand_over(connection, self, self.size + 1, needs):
            self._next(connection)
        elif needs:
            self._connect()

    def _next(self, connection: PooledConnection) -> None:
        now_s = self.net.now_s()
        request = self._pop_waiting()
        if request is not None:
            self._note_deadline(request, now_s)
            self.busy[connection] = None
            connection.start(request, now_s)
        else:
            self._keep_idle(connection, now_s)

    def _keep_idle(self, connection: PooledConnection, now_s: float) -> None:
        connection.idle_since_s = now_s
        self.idle.append(connection)
        if not self.is_known_idle:
            self.is_known_idle = True
            self.share.note_idle(self)

    def _pop_waiting(self) -> PushRequest | None:
        """The oldest waiting push that may still begin."""
        while self.waiting:
            request = self.waiting.popleft()
            if may_begin(request.push):
                return request
            self.net.soon(partial(request.done, NOT_BEGUN))
        return None

    def _connect(self) -> None:
        """Get the connections that the waiting pushes need, within the bounds."""
        while self.wants:
            if self.share.take():
                self._dial()
                continue
            idle = self.share.take_idle()
            if idle is None:
                self.share.wait(self)
                return
            self.adopt(idle)

    def _dial(self) -> PooledConnection:
        connection = PooledConnection(self, self.share, self.limits.response_bytes_max)
        self.dialing[connection] = None
        self.net.dial(connection, self.origin)
        return connection


class Http1Sender(Sender):
    """The plain HTTP/1.1 sender, over pooled connections of any `Net`."""

    def __init__(self, net: Net, limits: PoolLimits) -> None:
        self._net = net
        self._limits = limits
        self._pools: dict[tuple[str, Origin], ConnectionPool] = {}
        self._shares: dict[Origin, OriginShare] = {}
        self._is_swept = False
        self._tidy_at_s = 0.0
        self._is_closed = False

    def send(self, push: Push, done: Done) -> None:
        """Start the push. `done` is called exactly once, later."""
        if self._is_closed:
            self._net.soon(lambda: done(SendOutcome(0, "", Failure.CLOSED)))
            return
        route = push.route
        pool = self._pools.get((route.subscription, route.origin)) or self._open_pool(route)
        now_s = self._net.now_s()
        request = PushRequest(
            push,
            done,
            now_s + push.request_timeout_ms / 1_000,
            push.socket_timeout_ms / 1_000,
            is_second_try=not self._limits.repeats_stale,
        )
        if not pool.submit(request, now_s):
            outcome = SendOutcome(0, "", Failure.OVERLOADED, "too many pushes wait")
            self._net.soon(lambda: done(outcome))

    def after_outcomes(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the loop's next turn."""
        self._net.soon(callback)

    def probe(self, route: PushRoute, done: Probed) -> bool:
        """Connect to the route's origin. The connection is kept for the subscription's
        next push.
        """
        if self._is_closed:
            self._net.soon(lambda: done(Failure.CLOSED))
            return True
        pool = self._pools.get((route.subscription, route.origin)) or self._open_pool(route)
        pool.probe(done, self._net.now_s())
        return True

    def forget(self, subscription: str) -> None:
        """End all pushes of the subscription with CLOSED, and close their connections."""
        for pool in [pool for key, pool in self._pools.items() if key[0] == subscription]:
            pool.forget()

    def close(self) -> None:
        """End all pushes with CLOSED and close all connections. Later pushes end with
        CLOSED, too.
        """
        self._is_closed = True
        for share in self._shares.values():
            share.close()
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

    def _open_pool(self, route: PushRoute) -> ConnectionPool:
        origin = route.origin
        share = self._shares.get(origin)
        if share is None:
            share = self._shares[origin] = OriginShare(self._limits.connections_per_host_max)
        share.pools += 1
        pool = ConnectionPool(self._net, origin, self._limits, share)
        self._pools[route.subscription, origin] = pool
        if not self._is_swept:
            self._is_swept = True
            self._net.later(SWEEP_INTERVAL_S, self._sweep)
        return pool

    def _sweep(self) -> None:
        now_s = self._net.now_s()
        for pool in [each for each in self._pools.values() if each.next_deadline_s <= now_s]:
            pool.sweep(now_s)
        if now_s >= self._tidy_at_s:
            self._tidy(now_s)
        self._is_swept = bool(self._pools)
        if self._is_swept:
            self._net.later(SWEEP_INTERVAL_S, self._sweep)

    def _tidy(self, now_s: float) -> None:
        self._tidy_at_s = now_s + _TIDY_INTERVAL_S
        for pool in self._pools.values():
            pool.close_idle(now_s)
        for key in [key for key, pool in self._pools.items() if pool.is_empty]:
            pool = self._pools.pop(key)
            share = pool.share
            share.forget(pool)
            if not share.pools:
                del self._shares[key[1]]
