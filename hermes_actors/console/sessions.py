"""Sessions of people who have signed in: a bounded table in memory."""

import hashlib

from msgspec import Struct

from hermes_actors.runtime.clock import Clock, IdSource

IDLE_MAX_S = 1_800.0
AGE_MAX_S = 43_200.0
SESSIONS_MAX = 1_000
OF_ONE_NAME_MAX = 20


class Session(Struct):
    """One person's session. `authorization` is the header that it stands for, a secret."""

    name: str
    authorization: str
    began_s: float
    seen_s: float

    def __repr__(self) -> str:
        return f"Session({self.name!r})"


class Sessions:
    """The open sessions by their random ids of 244 bits.

    A session ends after IDLE_MAX_S without use, and AGE_MAX_S after its start. If there are
    SESSIONS_MAX, a new one takes the place of the one that was unused longest; if there are
    OF_ONE_NAME_MAX of its name, of that name's.
    """

    def __init__(self, node: str, clock: Clock, ids: IdSource) -> None:
        """`node`: the node with its datacentre. Browsers send cookies to all ports of a host, so
        nodes on one host must not share the cookie's name.
        """
        digest = hashlib.blake2b(node.encode(), digest_size=4).hexdigest()
        self.cookie = f"hermes_{digest}"
        self._clock = clock
        self._ids = ids
        self._open: dict[str, Session] = {}

    def begin(self, name: str, authorization: str) -> str:
        """Open a session; returns its id."""
        now_s = self._clock.monotonic_s()
        own = [each for each, session in self._open.items() if session.name == name]
        among = own if len(own) >= OF_ONE_NAME_MAX else self._open
        if among is own or len(among) >= SESSIONS_MAX:
            del self._open[min(among, key=lambda each: self._open[each].seen_s)]
        id_ = (self._ids.message_id() + self._ids.message_id()).replace("-", "")
        self._open[id_] = Session(name, authorization, now_s, now_s)
        return id_

    def find(self, id_: str, *, is_used: bool = True) -> Session | None:
        """The session; None if there is none or it has ended. `is_used`: it begins to idle anew."""
        session, now_s = self._open.get(id_), self._clock.monotonic_s()
        if session is None:
            return None
        if now_s >= min(session.seen_s + IDLE_MAX_S, session.began_s + AGE_MAX_S):
            del self._open[id_]
            return None
        if is_used:
            session.seen_s = now_s
        return session

    def end(self, id_: str) -> None:
        """End the session if it is open."""
        self._open.pop(id_, None)
