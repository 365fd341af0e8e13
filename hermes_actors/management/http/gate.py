"""Identifies the caller of an HTTP request, checks access, and calls a coroutine in trio."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple, Unpack

from hermes_actors.errors import Refused
from hermes_actors.management.access.mode import AccessMode
from hermes_actors.management.access.roles import Caller, Guest, SecurityProvider, require_allowed
from hermes_actors.management.access.table import Access, Rule, rule_of
from hermes_actors.management.http.answers import REASON_HEADER, AnyRequest
from hermes_actors.management.http.origins import Origins
from hermes_actors.metadata.audit import Author, changes_of
from hermes_actors.model.workload import REASON_CHARACTERS_MAX
from hermes_actors.runtime.bridge import TrioBridge
from hermes_actors.security.account import Credentials, sole_authorization

T = TypeVar("T")
A = TypeVarTuple("A")

_CALLER = "hermes_caller"
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
    ) -> T:
        """Identify the caller, and await `async_fn(caller, *args)` in trio. The author of changes
        is the caller, a Guest if the route needs no account and there are no credentials.

        Raises Unavailable if the metadata has not been read yet.
        """
        self._require_readable()

        async def as_caller() -> T:
            caller = await self.caller(request) or Guest()
            with changes_of(_author(caller, request)):
                return await async_fn(caller, *args)

        return await self._bridge.call(as_caller)

    async def check(self, request: AnyRequest) -> None:
        """The checks for all routes, before a body is read: the origin of changes, the table of
        access, and the mode.

        Raises Refused (403), Unauthenticated (401) and Unavailable (503).
        """
        rule = rule_of(request.method, request.scope["path_template"])
        await self.require(request, rule, f"call {request.method} {request.url.path}")

    async def require(self, request: AnyRequest, rule: Rule, action: str) -> None:
        """Raises as `check` if the rule does not allow the request's caller to take the action."""
        if rule.changes:
            self._origins.check(request.headers)
        if rule.access is Access.OPEN or (rule.access is Access.ANYONE and not self._guards_reads):
            return
        caller = await self.caller(request)
        if caller is None:
            raise self._security.refusal()
        require_allowed(caller, rule, action)
        if rule.changes and not (rule.is_pulling or caller.is_admin):
            self._mode.require_changeable()

    async def caller(self, request: AnyRequest) -> Caller | None:
        """The caller, identified once per request. None without credentials.

        Raises Unauthenticated (401) and Unavailable (503).
        """
        state = request.scope["state"]
        if _CALLER not in state:
            identify = self._security.identify
            state[_CALLER] = await self._bridge.call(identify, credentials_of(request))
        known: Caller | None = state[_CALLER]
        return known


def _author(caller: Caller, request: AnyRequest) -> Author:
    in_header = request.headers.get(REASON_HEADER, "").encode("latin-1").decode("utf-8", "replace")
    reason = request.scope["state"].get(REASON, in_header)
    if len(reason) > REASON_CHARACTERS_MAX:
        raise Refused(f"{REASON_HEADER} must have at most {REASON_CHARACTERS_MAX} characters")
    return Author(caller.name, request.client.host if request.client else "", reason)


def credentials_of(request: AnyRequest) -> Credentials:
    """The credentials of a request. Raises Refused."""
    headers = request.headers
    return Credentials(
        sole_authorization(headers.getall("authorization", [])),
        request.scope.get("client_certificate"),  # type: ignore[arg-type]
        lambda name: headers.get(name, ""),
    )
