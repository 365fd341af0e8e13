"""Reads files and URLs periodically, so that new users, keys and certificates need no restart.

The last valid value stays in use while the content cannot be read or is invalid.
"""

import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx
import trio

from hermes_actors.errors import StartupError
from hermes_actors.runtime.clock import Clock
from hermes_actors.security.users import WrongFile

T = TypeVar("T")

EARLY_INTERVAL_S = 10.0
TIMEOUT_S = 5.0
_RETRY_S = 5.0
_BYTES_MAX = 4_194_304
_logger = logging.getLogger(__name__)


class Watched(Generic[T]):
    """A value that `parse` makes of the result of `read`, updated every `interval_s`.

    For the log, `field` is the setting's name and `place` its value. `parse` may raise WrongFile.
    `value` is `nothing` until the first successful read.
    """

    def __init__(
        self,
        field: str,
        place: str,
        read: Callable[[], Awaitable[bytes]],
        parse: Callable[[bytes], Awaitable[T]],
        nothing: T,
        clock: Clock,
        *,
        interval_s: float,
    ) -> None:
        self.field = field
        self.name = f"{field}: {place}"
        self._read = read
        self._parse = parse
        self._clock = clock
        self._interval_s = interval_s
        self._content: bytes | None = None
        self._early_at_s = float("-inf")
        self._asked = trio.Event()
        self._waiting: list[anyio.Event] = []
        self._is_reading = False
        self.value = nothing
        self.changes = 0
        self.trouble = "it was not read yet"

    @property
    def is_known(self) -> bool:
        """True once a valid value has been read."""
        return self._content is not None

    async def load(self) -> None:
        """Read the value for the first time. A trio coroutine. Raises StartupError."""
        self.trouble = await self._update()
        if self.trouble:
            raise StartupError(f"{self.name}: {self.trouble}")

    async def run(self) -> None:
        """Read the value every `interval_s`, sooner after a failure. A trio coroutine."""
        while True:
            await self.check()
            pause_s = min(self._interval_s, _RETRY_S) if self.trouble else self._interval_s
            with trio.move_on_after(pause_s):
                await self._asked.wait()

    async def check(self) -> None:
        """Read the value now. A trio coroutine."""
        self._asked = trio.Event()
        self._is_reading = True
        trouble = await self._update()
        self._is_reading = False
        if trouble and trouble != self.trouble:
            kept = "; the previous content stays in force" if self.is_known else ""
            _logger.error("%s: %s%s", self.name, trouble, kept)
        self.trouble = trouble
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set()

    async def _update(self) -> str:
        """Read and parse the content. Returns the problem; an empty string if there is none."""
        try:
            with trio.fail_after(TIMEOUT_S):
                content = await self._read()
            if len(content) > _BYTES_MAX:
                raise WrongFile(f"is longer than {_BYTES_MAX} bytes")
            if content != self._content:
                self.value = await self._parse(content)
                if self.is_known:
                    _logger.info("%s: the new content is in force", self.name)
                self._content = content
                self.changes += 1
        except OSError as error:
            return error.strerror or str(error)
        except (WrongFile, httpx.HTTPError, httpx.InvalidURL, trio.TooSlowError) as error:
            return str(error) or type(error).__name__
        return ""

    async def read_early(self) -> None:
        """Read the value ahead of time, because it lacks something, and wait up to TIMEOUT_S.

        At most once every EARLY_INTERVAL_S; else it returns at once, or joins a read that others
        wait for. May be awaited on either loop.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._early_at_s + EARLY_INTERVAL_S:
            self._early_at_s = now_s
            self._asked.set()
        elif not self._waiting:
            return
        await self._wait_read()

    async def read_now(self) -> str:
        """Read the value now, with a time limit. Returns the result in words."""
        before = self.changes
        self._asked.set()
        # A read that has begun may have missed the change.
        if self._is_reading:
            await self._wait_read()
        if not await self._wait_read():
            return "is not read yet"
        return self.trouble or ("has changed" if self.changes > before else "has not changed")

    async def _wait_read(self) -> bool:
        ended = anyio.Event()
        self._waiting.append(ended)
        with anyio.move_on_after(TIMEOUT_S):
            await ended.wait()
        return ended.is_set()


def watched_files(
    field: str,
    paths: Sequence[str],
    parse: Callable[[bytes], T],
    nothing: T,
    clock: Clock,
    interval_s: float,
) -> Watched[T]:
    """Watch a file, or several that are parsed together."""

    def read() -> bytes:
        return b"".join(Path(each).read_bytes() for each in paths)

    return Watched(
        field,
        ", ".join(paths),
        lambda: trio.to_thread.run_sync(read),
        lambda content: trio.to_thread.run_sync(parse, content),
        nothing,
        clock,
        interval_s=interval_s,
    )


def watched_url(
    field: str,
    url: str,
    parse: Callable[[bytes], T],
    nothing: T,
    clock: Clock,
    interval_s: float,
    *,
    context: ssl.SSLContext | bool = True,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Watched[T]:
    """Watch a URL. `context` is for TLS, `transport` for tests."""
    # The log must not show a password, or a query, which may contain a key.
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def read() -> bytes:
        async with httpx.AsyncClient(
            verify=context, transport=transport, timeout=TIMEOUT_S
        ) as client:
            answer = await client.get(url)
        if answer.status_code != 200:
            raise WrongFile(f"answered {answer.status_code}")
        return answer.content

    async def parsed(content: bytes) -> T:
        return parse(content)

    return Watched(field, shown, read, parsed, nothing, clock, interval_s=interval_s)
