"""How long a connection has been as it is, as far as a sweep can see. Pure.

A request costs nothing here: the sweep compares what it sees with what it saw the last time.
"""

from enum import Enum

_IDLE_S = 60.0


class State(Enum):
    """What a connection waits for: a request, the rest of a head, the rest of a body that nobody
    wants, or the node itself.
    """

    IDLE = 0
    HEAD = 1
    UNWANTED = 2
    BUSY = 3


class Watch:
    """One connection's times. They are as exact as the sweep is frequent."""

    __slots__ = ("_seen", "_since_s", "_unsent_bytes", "_unsent_since_s")

    def __init__(self, now_s: float) -> None:
        self._seen = (State.IDLE, 0)
        self._since_s = self._unsent_since_s = now_s
        self._unsent_bytes = 0

    def ends_s(self, state: State, served: int, head_timeout_s: float, now_s: float) -> float:
        """When the client will have had its time: a minute for a request to begin, `head_timeout_s`
        for its head, and for a body that is only dropped; 0.0 while it is the node's turn.
        `served` tells two requests apart.
        """
        seen = (state, served)
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        if state is State.BUSY:
            return 0.0
        return self._since_s + (_IDLE_S if state is State.IDLE else head_timeout_s)

    def is_stuck(self, unsent_bytes: int, limit_s: float, now_s: float) -> bool:
        """Whether so many bytes have waited for the client for `limit_s`, and not one went."""
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
            return False
        return now_s > self._unsent_since_s + limit_s

    def all_went(self) -> None:
        """Nothing waits for the client: what will is timed anew, however many bytes it is."""
        self._unsent_bytes = 0
