"""Identifies the caller of an HTTP request, checks access, and calls a coroutine in trio."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

from hermes_actors.errors import Refused
from hermes_actors.management.access.mode import AccessMode, changes_nothing
from hermes_actors.management.access.roles import Caller, Guest, SecurityProvider
from hermes_actors.management.http.answers import REASON_HEADER, AnyRequest
from hermes_actors.management.http.origins import OPEN, Origins
from hermes_actors.metadata.audit import Author, changes_of
from hermes_actors.model.workload import REASON_CHARACTERS_MAX
from hermes_actors.runtime.bridge import TrioBridge
from hermes_actors.security.account import Credentials, sole_authorization

T = TypeVar("T")
A = TypeVarTuple("A")

# For probes and tools, which have no account.
_OPEN = OPEN | {"/openapi.json", "/roles"}
_CALLER = "hermes_caller"
OPEN_ROUTE = "hermes_open"
"""The option of a route that needs neither an account nor the mode readWrite: to sign in."""
REASON = "hermes_reason"
"""The key of a request's state for the reason of its change, if a form has it."""


class Gate:
    """Calls coroutines in trio for requests. The app may be served on either loop."""

    def __init__(
        self,
        bridge: TrioBridge,
        security: SecurityProvider,
        mode: AccessMode,
        require_readable: Callable[[], None],
        origins: Origins,
        *,
        guards_reads: bool = False,
    ) -> None:
        """`origins`: the pages that may make changes. `guards_reads`: reads need an account too."""
        self._bridge = bridge
        self._origins = origins
        self._guards_reads = guards_reads
        self._mode = mode
        self._security = security
        self._require_readable = require_readable

    async def read(
        self,
        async_fn: Callable[[Unpack[A]], Awaitable[T]],
        *args: *A,
        needs_metadata: bool = True,
    ) -> T:
        """Await `async_fn(*args)` in trio, without a caller.

        Raises Unavailable if it `needs_metadata` and they have not been read yet.
        """
        if needs_metadata:
            self._require_readable()
        return await self._bridge.call(async_fn, *args)

    async def act(
        self,
        request: AnyRequest,
        async_fn: Callable[[Caller, Unpack[A]], Awaitable[T]],
        *args: *A,
        takes_guests: bool = False,
    ) -> T:
        """Identify the caller, and await `async_fn(caller, *args)` in trio.

        Raises Unavailable if the metadata has not been read yet, and Unauthenticated without
        credentials, unless it `takes_guests`.
        """
        self._require_readable()

        async def as_caller() -> T:
            if takes_guests:
                caller = await self._security.identify(_credentials(request)) or Guest()
            else:
                caller = await self._required(request)
            with changes_of(_author(caller, request)):
                return await async_fn(caller, *args)

        return await self._bridge.call(as_caller)

    async def check(self, request: AnyRequest) -> None:
        """The checks for all routes, before a body is read: the origin of changes, authentication,
        and the mode.

        Raises Refused (403), Unauthenticated (401) and Unavailable (503).
        """
        method, path = request.method, request.url.path
        changes = not changes_nothing(method, path)
        if changes:
            self._origins.check(request.headers)
        if request.route_handler.opt.get(OPEN_ROUTE):
            return
        if changes or (self._guards_reads and path not in _OPEN):
            await self._bridge.call(self._required, request)
        if self._mode.restricts(method, path):
            caller = await self._bridge.call(self._required, request)
            if not caller.is_admin:
                raise self._mode.refusal()

    async def _required(self, request: AnyRequest) -> Caller:
        """The caller, identified once per request. Raises Unauthenticated without credentials."""
        known: Caller | None = request.scope["state"].get(_CALLER)
        if known is not None:
            return known
        caller = await self._security.identify(_credentials(request))
        if caller is None:
            raise self._security.refusal()
        request.scope["state"][_CALLER] = caller
        return caller


def _author(caller: Caller, request: AnyRequest) -> Author:
    in_header = request.headers.get(REASON_HEADER, "").encode("latin-1").decode("utf-8", "replace")
    reason = request.scope["state"].get(REASON, in_header)
    if len(reason) > REASON_CHARACTERS_MAX:
        raise Refused(f"{REASON_HEADER} must have at most {REASON_CHARACTERS_MAX} characters")
    return Author(caller.name, request.client.host if request.client else "", reason)


def _credentials(request: AnyRequest) -> Credentials:
    headers = request.headers
    return Credentials(
        sole_authorization(headers.getall("authorization", [])),
        request.scope.get("client_certificate"),  # type: ignore[arg-type]
        lambda name: headers.get(name, ""),
    )
