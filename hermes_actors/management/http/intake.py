"""Bodies of requests come in bounded: in size, in time, and in bytes of all that are under way."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import anyio
from msgspec import Struct

from hermes_actors.errors import ErrorCode, Refused, Unavailable

BODY_BYTES_MAX = 1_048_576

Event = MutableMapping[str, Any]
_LENGTHS = frozenset((b"content-length", b"transfer-encoding"))
_RETRY_AFTER_S = 1


class IntakeLimits(Struct, frozen=True):
    """The bytes that all bodies together may hold in memory, and how long one may take to come."""

    bodies_bytes_max: int
    body_timeout_s: float


class BodyIntake:
    """The bodies under way in this process."""

    def __init__(self, limits: IntakeLimits) -> None:
        self.limits = limits
        self.held_bytes = 0
        """The bytes of bodies in memory, of all requests under way."""

    def body(
        self,
        receive: Callable[[], Awaitable[Event]],
        headers: Iterable[tuple[bytes, bytes]],
        version: str = "1.1",
    ) -> "RequestBody":
        """A request's body, to be closed when the request has ended. `version` is that of HTTP."""
        return RequestBody(self, receive, headers, version)


class RequestBody:
    """One request's body as an ASGI app receives it."""

    def __init__(
        self,
        intake: BodyIntake,
        receive: Callable[[], Awaitable[Event]],
        headers: Iterable[tuple[bytes, bytes]],
        version: str,
    ) -> None:
        self._intake = intake
        self._receive = receive
        self._held_bytes = 0
        self._until_s: float | None = None
        names = {name.lower(): value for name, value in headers}
        length = names.get(b"content-length", b"")
        self._announced_bytes = int(length) if length.isdigit() and len(length) < 20 else 0
        # Over HTTP/2 a body need not announce itself.
        self.is_whole = (version < "2" and _LENGTHS.isdisjoint(names)) or length == b"0"
        """True when there is nothing of it left to come."""

    async def receive(self) -> Event:
        """The next event. Raises Refused: 408 and 413, and Unavailable: 503."""
        if self.is_whole:
            return await self._receive()
        _require_small(self._announced_bytes)
        now_s = anyio.current_time()
        if self._until_s is None:
            self._until_s = now_s + self._intake.limits.body_timeout_s
        event: Event | None = None
        # Looked at here too: what is there already is received without a wait to end.
        if now_s < self._until_s:
            with anyio.move_on_after(self._until_s - now_s):
                event = await self._receive()
        if event is None:
            raise Refused(
                "The body did not come within management.body_timeout_ms "
                f"({self._intake.limits.body_timeout_s * 1_000:g} ms); send it again",
                ErrorCode.TIMEOUT,
            )
        self._hold(len(event.get("body", b"")))
        self.is_whole = not event.get("more_body")
        return event

    def close(self) -> None:
        """Free the room of its bytes, which are needed no more."""
        self._intake.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def _hold(self, size_bytes: int) -> None:
        most = self._intake.limits.bodies_bytes_max
        _require_small(self._held_bytes + size_bytes)
        if self._intake.held_bytes + size_bytes > most:
            error = Unavailable(
                f"The bodies of all requests under way come to management.bodies_bytes_max ({most} "
                "bytes); try again"
            )
            error.headers = (("retry-after", str(_RETRY_AFTER_S)),)
            raise error
        self._held_bytes += size_bytes
        self._intake.held_bytes += size_bytes


def _require_small(size_bytes: int) -> None:
    if size_bytes > BODY_BYTES_MAX:
        raise Refused(
            f"The body has {size_bytes} bytes or more; management takes at most {BODY_BYTES_MAX} "
            "of one, which no setting changes; send less at once",
            ErrorCode.OTHER,
            status=413,
        )
