"""Connection pools of httpx' transport, one for each subscription and origin: nothing is shared
between subscriptions, so that one's slow answers do not take another's streams.
"""

from collections.abc import Callable
from contextlib import suppress

import httpcore
import trio

from hermes_actors.consumer.senders.httpx.net import TRANSPORT_ERRORS
from hermes_actors.consumer.senders.sender import Origin, Route

POOLS_MAX = 1_000
"""Pools that are kept, unless more are in use."""

ABANDONED_MAX = 8
"""Streams without an end that a pool may hold before it is taken out of use."""


class Pool:
    """The connections of one subscription to one origin. `abandoned` counts streams that were left
    without their end: the transport does not reset them, so they go on counting against the
    server's limit. `is_spoilt`: nothing good comes of these connections any more.
    """

    def __init__(self, connections: httpcore.AsyncConnectionPool) -> None:
        self.connections = connections
        self.pushes = 0
        self.abandoned = 0
        self.is_spoilt = False
        self.free_since_s = 0.0


class Pools:
    """All pools of a sender; `open_pool` makes one. Idle ones are closed by `close_idle`."""

    def __init__(
        self, open_pool: Callable[[Origin], httpcore.AsyncConnectionPool], idle_s: float
    ) -> None:
        self._open_pool = open_pool
        self._idle_s = idle_s
        self._pools: dict[tuple[str, Origin], Pool] = {}
        # Out of use, but not out of pushes. A dictionary for its order.
        self._retired: dict[Pool, None] = {}

    async def take(self, route: Route) -> Pool:
        """The pool for one push, to be given back."""
        key = (route.subscription, route.origin)
        if key not in self._pools:
            await self._make_room()
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(self._open_pool(route.origin))
        pool.pushes += 1
        return pool

    async def give_back(self, route: Route, pool: Pool) -> None:
        """Give back the pool of a push that is over. One that has gone bad takes no more, and is
        closed after its last push.
        """
        pool.pushes -= 1
        pool.free_since_s = trio.current_time()
        key = (route.subscription, route.origin)
        is_bad = pool.is_spoilt or pool.abandoned >= ABANDONED_MAX
        if is_bad and self._pools.get(key) is pool:
            del self._pools[key]
            self._retired[pool] = None
        if not pool.pushes and pool in self._retired:
            del self._retired[pool]
            with trio.CancelScope(shield=True):
                await _close(pool.connections)

    async def close_idle(self) -> None:
        """Close the connections that nothing has used for as long as they are kept."""
        now_s = trio.current_time()
        for key, pool in list(self._pools.items()):
            is_idle = not pool.pushes and now_s - pool.free_since_s >= self._idle_s
            # Asked again: others go on while one is being closed.
            if is_idle and self._pools.get(key) is pool:
                del self._pools[key]
                await _close(pool.connections)

    async def close_idle_of(self, origin: Origin) -> bool:
        """Close the connections to this host and port that have been idle for longest; False when
        there are none.
        """
        place = (origin.host, origin.port)
        free = [
            key
            for key, pool in self._pools.items()
            if not pool.pushes and (key[1].host, key[1].port) == place
        ]
        if not free:
            return False
        longest = min(free, key=lambda key: self._pools[key].free_since_s)
        await _close(self._pools.pop(longest).connections)
        return True

    async def close(self) -> None:
        """Close all connections, whoever uses them."""
        pools, self._pools = [*self._pools.values(), *self._retired], {}
        for pool in pools:
            await _close(pool.connections)

    async def _make_room(self) -> None:
        while len(self._pools) >= POOLS_MAX:
            free = [key for key, pool in self._pools.items() if not pool.pushes]
            if not free:
                return
            longest = min(free, key=lambda key: self._pools[key].free_since_s)
            await _close(self._pools.pop(longest).connections)


async def _close(connections: httpcore.AsyncConnectionPool) -> None:
    """Close connections that nobody uses any more; errors of the transport are ignored."""
    with suppress(*TRANSPORT_ERRORS):
        await connections.aclose()
