"""The count of connections to one origin over all lanes, and the turns of lanes when none is left.

A connection that a lane has no use for, or has more of than another that waits, goes over to the
lane that waits; lanes take turns. So thousands of subscriptions to one host share what it can bear.
"""

from typing import Protocol

from hermes_actors.consumer.senders.http1.connection import PooledConnection

_LOOKED_AT_MAX = 4
"""How many of the lanes that wait are looked at for each connection that comes free."""


class Lane(Protocol):
    """The pool of a lane, as a share sees it."""

    @property
    def size(self) -> int:
        """How many connections the pool has, those being made included."""

    @property
    def wants(self) -> bool:
        """True when one more connection would be used at once."""

    def dial_one(self) -> None:
        """Make a connection; its place has been taken."""

    def adopt(self, connection: PooledConnection) -> None:
        """Use this connection, which stands and has no request."""

    def give_idle(self) -> PooledConnection | None:
        """Part with a usable connection that has no request."""


class OriginShare:
    """The connections to one origin: at most `limit`. `hungry` are the lanes that wait for one."""

    __slots__ = ("_is_closed", "_with_idle", "hungry", "lanes", "limit", "open", "standing")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.standing = 0
        self.lanes = 0
        self.hungry: dict[Lane, None] = {}
        self._with_idle: dict[Lane, None] = {}
        self._is_closed = False

    def take(self) -> bool:
        """Take a place for a connection to be made; False when none is left."""
        if self.open >= self.limit:
            return False
        self.open += 1
        return True

    def on_opened(self) -> None:
        """Count one more connection that stands."""
        self.standing += 1

    def give_back(self, *, was_open: bool) -> None:
        """Free the place of a connection that is gone: it is the next lane's."""
        self.open -= 1
        self.standing -= was_open
        while self.hungry and self.open < self.limit and not self._is_closed:
            lane = next(iter(self.hungry))
            del self.hungry[lane]
            if lane.wants:
                self.open += 1
                lane.dial_one()
                if lane.wants:
                    self.hungry[lane] = None

    def wait(self, lane: Lane) -> None:
        """Put the lane in line for a connection that comes free."""
        self.hungry[lane] = None

    def note_idle(self, lane: Lane) -> None:
        """Note that the lane has a connection without a request."""
        self._with_idle[lane] = None

    def take_idle(self) -> PooledConnection | None:
        """Take a connection that some lane has no use for at the moment."""
        while self._with_idle:
            lane = next(iter(self._with_idle))
            connection = lane.give_idle()
            if connection is not None:
                return connection
            # It says so again when it has one.
            self._with_idle.pop(lane, None)
        return None

    def hand_over(self, connection: PooledConnection, lane: Lane, size: int, needs: bool) -> bool:
        """Give a lane's connection that came free to one that waits; False when it keeps it.

        `size` is how many the lane has with this one, `needs`: it would use it at once.
        """
        for _ in range(min(_LOOKED_AT_MAX, len(self.hungry))):
            other = next(iter(self.hungry))
            del self.hungry[other]
            if not other.wants:
                continue
            if other is lane or (needs and other.size >= size):
                self.hungry[other] = None
                continue
            other.adopt(connection)
            if other.wants:
                self.hungry[other] = None
            return True
        return False

    def forget(self, lane: Lane) -> None:
        """Forget a lane whose pool is gone."""
        self.lanes -= 1
        self.hungry.pop(lane, None)
        self._with_idle.pop(lane, None)

    def close(self) -> None:
        """Give no lane another connection from now on."""
        self._is_closed = True
        self.hungry.clear()
