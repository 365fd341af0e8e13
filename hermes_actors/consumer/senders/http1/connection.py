"""One connection of a pool, which writes a request in pieces and ends it once with its answer. Also
the limit of connections to one origin, shared fairly by all pools.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from hermes_actors.consumer.senders.http1.wire import Exchange, request_bytes, request_head_bytes
from hermes_actors.consumer.senders.sender import Done, Failure, Origin, Probed, Push

if TYPE_CHECKING:
    from hermes_actors.consumer.senders.http1.pool import ConnectionPool

PIECE_BYTES = 131_072
"""A longer request is written in pieces of this size, each when the previous one is sent. So a peer
that does not read holds no more than this in our buffers.
"""

_LOOKED_AT_MAX = 4
"""Maximum number of waiting pools checked for each free connection."""


class Wire(Protocol):
    """The write side of an open connection."""

    def write(self, data: bytes) -> None:
        """Send these bytes; buffers what cannot be sent at once.

        May call `paused`, then `resumed` later.
        """

    def abort(self) -> None:
        """Close without waiting. May call `PooledConnection.ended`, now or later, or not at all."""

    def is_closing(self) -> bool:
        """True if nothing written from now on would arrive."""


class Net(Protocol):
    """The loop and its network, as the pools need them."""

    def now_s(self) -> float:
        """Return monotonic seconds."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` after the running code has returned."""

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` once, after the delay."""

    def dial(self, connection: "PooledConnection", origin: Origin) -> None:
        """Start to connect. Later calls exactly one of `connection.opened` and `.dial_failed`."""


class PushRequest(Struct, eq=False):
    """A push that has not ended. `socket_timeout_s` 0 means none."""

    push: Push
    done: Done
    deadline_s: float
    socket_timeout_s: float
    is_second_try: bool = False


class OriginShare:
    """The connections to one origin over all pools: at most `limit`. `hungry` are the pools that
    wait for one.

    A free connection goes to a waiting pool if its own pool has no use for it or has more
    connections; waiting pools take turns. So thousands of subscriptions share what one host can
    bear.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.standing = 0
        self.pools = 0
        self.hungry: dict[ConnectionPool, None] = {}
        self._with_idle: dict[ConnectionPool, None] = {}
        self._is_closed = False

    def take(self) -> bool:
        """Reserve a place for a new connection; False if none is left."""
        if self.open >= self.limit:
            return False
        self.open += 1
        return True

    def on_opened(self) -> None:
        """Count one more open connection."""
        self.standing += 1

    def give_back(self, *, was_open: bool) -> None:
        """Free the place of a closed connection, for the next waiting pool."""
        self.open -= 1
        self.standing -= was_open
        while self.hungry and self.open < self.limit and not self._is_closed:
            pool = next(iter(self.hungry))
            del self.hungry[pool]
            if pool.wants:
                self.open += 1
                pool.dial_one()
                if pool.wants:
                    self.hungry[pool] = None

    def wait(self, pool: "ConnectionPool") -> None:
        """Queue the pool for the next free connection."""
        self.hungry[pool] = None

    def note_idle(self, pool: "ConnectionPool") -> None:
        """Note that the pool has an idle connection."""
        self._with_idle[pool] = None

    def take_idle(self) -> "PooledConnection | None":
        """Take an idle connection from any pool."""
        while self._with_idle:
            pool = next(iter(self._with_idle))
            connection = pool.give_idle()
            if connection is not None:
                return connection
            # The pool reports its next idle connection again.
            self._with_idle.pop(pool, None)
        return None

    def hand_over(
        self, connection: "PooledConnection", pool: "ConnectionPool", size: int, needs: bool
    ) -> bool:
        """Give a pool's free connection to a waiting pool; False if the pool keeps it.

        `size` is the number of connections of the pool, this one included; `needs`: the pool would
        use it at once.
        """
        for _ in range(min(_LOOKED_AT_MAX, len(self.hungry))):
            other = next(iter(self.hungry))
            del self.hungry[other]
            if not other.wants:
                continue
            if other is pool or (needs and other.size >= size):
                self.hungry[other] = None
                continue
            other.adopt(connection)
            if other.wants:
                self.hungry[other] = None
            return True
        return False

    def forget(self, pool: "ConnectionPool") -> None:
        """Forget a closed pool."""
        self.pools -= 1
        self.hungry.pop(pool, None)
        self._with_idle.pop(pool, None)

    def close(self) -> None:
        """Give no more connections to pools."""
        self._is_closed = True
        self.hungry.clear()


class PooledConnection:
    """One connection of a pool.

    The network calls `opened` or `dial_failed`, then `received`, `paused`, `resumed`, `ended`.
    """

    def __init__(
        self, owner: "ConnectionPool", share: OriginShare, response_bytes_max: int
    ) -> None:
        self.owner = owner
        self._share = share
        self._is_counted = True
        self._wire: Wire | None = None
        self._rest = b""
        self._at = 0
        self._is_paused = False
        self.exchange = Exchange(response_bytes_max)
        self.request: PushRequest | None = None
        self.probe: Probed | None = None
        self.probe_deadline_s = 0.0
        self.idle_since_s = 0.0
        self.heard_s = 0.0

    def opened(self, wire: Wire) -> None:
        """The connection is open, and writes to `wire`."""
        self._wire = wire
        if self._is_counted:
            self._share.on_opened()
        self.owner.on_opened(self)

    def dial_failed(self, detail: str, failure: Failure = Failure.CONNECT) -> None:
        """The connection could not be made."""
        self.owner.on_dial_failed(self, failure, detail)

    def received(self, data: bytes) -> None:
        """Handle bytes from the peer."""
        exchange = self.exchange
        outcome = exchange.receive(data)
        if outcome is not None:
            if outcome.status == 408 and self._is_goodbye():
                self.owner.on_stale(self)
            else:
                self.owner.on_outcome(self, outcome)
        elif not exchange.is_reusable:
            self.owner.drop(self)
        elif self.request is not None and self.request.socket_timeout_s:
            self.heard_s = self.owner.net.now_s()

    def paused(self) -> None:
        """Stop writing: the peer reads too slowly."""
        self._is_paused = True

    def resumed(self) -> None:
        """Write on: the peer has read what was written."""
        self._is_paused = False
        if self.request is not None:
            if self.request.socket_timeout_s:
                self.heard_s = self.owner.net.now_s()
            self._write_on()

    def ended(self, why: str = "") -> None:
        """The peer closed, or the connection broke. Only the first call has an effect."""
        exchange, request = self.exchange, self.request
        is_stale = (
            request is not None
            and not exchange.is_answered
            and exchange.served > 0
            and not request.is_second_try
        )
        if is_stale:
            # Usually the peer closed an idle connection while we wrote to it. But it may also have
            # taken the push and died, which cannot be told apart; so repeat at most once.
            self.owner.on_stale(self)
            return
        outcome = exchange.end_of_stream(why)
        if outcome is not None:
            self.owner.on_outcome(self, outcome)
        else:
            self.owner.drop(self)

    def start(self, request: PushRequest, now_s: float) -> None:
        """Write this request to the connection, which must be open."""
        assert self._wire is not None, "not opened"
        self.request = request
        self.heard_s = now_s
        push = request.push
        self.exchange.begin(push.witness)
        if len(push.body) <= PIECE_BYTES:
            self._wire.write(request_bytes(push))
        else:
            self._rest, self._at = push.body, 0
            self._wire.write(request_head_bytes(push))
            self._write_on()

    @property
    def is_writing(self) -> bool:
        """True until the peer has taken the whole request."""
        return self._is_paused

    def is_usable(self) -> bool:
        """True if a request may be written now."""
        return (
            self._wire is not None
            and self.exchange.is_reusable
            # If the answer came before the whole request was sent, the rest is still being sent.
            and not self._is_paused
            and not self._wire.is_closing()
        )

    def close(self) -> None:
        """Close the connection and ignore what the peer still sends."""
        self.exchange.is_reusable = False
        self._rest = b""
        was_open = self._wire is not None
        if self._wire is not None:
            self._wire.abort()
        if self._is_counted:
            self._is_counted = False
            self._share.give_back(was_open=was_open)

    def _is_goodbye(self) -> bool:
        """True for a 408 by which the peer closes a connection that was idle too long.

        It crosses the request on the way and is no answer to it (RFC 9110, section 15.5.9).
        """
        request, exchange = self.request, self.exchange
        return (
            request is not None
            and not request.is_second_try
            and exchange.served > 1
            and not exchange.is_reusable
        )

    def _write_on(self) -> None:
        wire = self._wire
        assert wire is not None, "not opened"
        while self._rest and not self._is_paused:
            piece = self._rest[self._at : self._at + PIECE_BYTES]
            self._at += len(piece)
            if self._at >= len(self._rest):
                self._rest = b""
            wire.write(piece)
