"""Receives the body of a request, with limits in size and time."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import anyio

from hermes_actors.errors import ErrorCode, Refused

BODY_BYTES_MAX = 1_048_576

Event = MutableMapping[str, Any]
_LENGTHS = frozenset((b"content-length", b"transfer-encoding"))


class RequestBody:
    """The body of one request, as ASGI events. `version` is the HTTP version."""

    def __init__(
        self,
        receive: Callable[[], Awaitable[Event]],
        headers: Iterable[tuple[bytes, bytes]],
        version: str,
        timeout_s: float,
    ) -> None:
        self._receive = receive
        self._received_bytes = 0
        self._timeout_s = timeout_s
        self._until_s: float | None = None
        names = {name.lower(): value for name, value in headers}
        length = names.get(b"content-length", b"")
        self._announced_bytes = int(length) if length.isdigit() and len(length) < 20 else 0
        # Over HTTP/2 a body needs neither of these headers.
        self.is_whole = (version < "2" and _LENGTHS.isdisjoint(names)) or length == b"0"
        """True if the whole body has been received."""

    async def receive(self) -> Event:
        """The next event. Raises Refused: 408 and 413."""
        if self.is_whole:
            return await self._receive()
        _require_small(self._announced_bytes)
        now_s = anyio.current_time()
        if self._until_s is None:
            self._until_s = now_s + self._timeout_s
        event: Event | None = None
        # Compared too, because a receive that does not wait is never cancelled.
        if now_s < self._until_s:
            with anyio.move_on_after(self._until_s - now_s):
                event = await self._receive()
        if event is None:
            raise Refused(
                "The body did not arrive within management.body_timeout_ms "
                f"({self._timeout_s * 1_000:g} ms); send it again",
                ErrorCode.TIMEOUT,
            )
        self._received_bytes += len(event.get("body", b""))
        _require_small(self._received_bytes)
        self.is_whole = not event.get("more_body")
        return event


def _require_small(size_bytes: int) -> None:
    if size_bytes > BODY_BYTES_MAX:
        raise Refused(
            f"The body has {size_bytes} bytes or more; management accepts at most "
            f"{BODY_BYTES_MAX}, a fixed limit; send less at once",
            ErrorCode.OTHER,
            status=413,
        )
