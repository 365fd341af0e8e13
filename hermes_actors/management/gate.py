"""The way from an HTTP request to a trio coroutine that knows who calls."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

from hermes_actors.management.administration import Administration
from hermes_actors.management.answers import AnyRequest
from hermes_actors.management.roles import Caller
from hermes_actors.runtime.bridge import TrioBridge

T = TypeVar("T")
A = TypeVarTuple("A")


class Gate:
    """Carries calls over to trio; works for an app that is served on either loop."""

    def __init__(self, bridge: TrioBridge, administration: Administration) -> None:
        self._bridge = bridge
        self._security = administration.security
        self._require_readable = administration.require_readable

    async def read(self, async_fn: Callable[[Unpack[A]], Awaitable[T]], *args: *A) -> T:
        """Await `async_fn(*args)` in trio, for what everybody may see.

        Raises Unavailable while the metadata has not been read yet.
        """
        self._require_readable()
        return await self._bridge.call(async_fn, *args)

    async def look(self, async_fn: Callable[[Unpack[A]], Awaitable[T]], *args: *A) -> T:
        """Await `async_fn(*args)` in trio, for what does not need the metadata."""
        return await self._bridge.call(async_fn, *args)

    async def act(
        self,
        request: AnyRequest,
        async_fn: Callable[[Caller, Unpack[A]], Awaitable[T]],
        *args: *A,
    ) -> T:
        """Find out who calls, and await `async_fn(caller, *args)` in trio on his behalf.

        Raises Unavailable while the metadata has not been read yet.
        """
        self._require_readable()
        headers = {name.lower(): value for name, value in request.headers.items()}

        async def as_caller() -> T:
            caller = await self._security.identify(headers)
            return await async_fn(caller, *args)

        return await self._bridge.call(as_caller)
