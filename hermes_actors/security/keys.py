"""Where the keys that verify tokens come from: a file, or a URL that is asked again and again."""

import logging
import ssl
from typing import Protocol
from urllib.parse import urlsplit

import anyio
import httpx
import trio

from hermes_actors.runtime.clock import Clock
from hermes_actors.security.files import WatchedFile
from hermes_actors.security.keyset import NO_KEYS, KeySet, parse_key_set
from hermes_actors.security.users import WrongFile

_ANSWER_BYTES_MAX = 1_048_576
_RETRY_FIRST_S = 1.0
_RETRY_MAX_S = 60.0
_logger = logging.getLogger(__name__)


class Keys(Protocol):
    """The keys as they are now."""

    @property
    def current(self) -> KeySet:
        """The last good ones."""

    @property
    def generation(self) -> int:
        """Grows with each change of the keys."""

    @property
    def trouble(self) -> str:
        """Why no keys are known yet; "" when some were."""

    async def refresh_early(self) -> None:
        """A key is missing: look once more, unless that was done a moment ago. On either loop."""

    async def run(self) -> None:
        """Keep the keys fresh. A trio coroutine."""


class FileKeys:
    """Keys of a file that is looked at again and again."""

    trouble = ""

    def __init__(self, file: WatchedFile[KeySet]) -> None:
        self._file = file

    @property
    def current(self) -> KeySet:
        """The keys of the file's last good content."""
        return self._file.value

    @property
    def generation(self) -> int:
        """How often the file has changed."""
        return self._file.changes

    async def refresh_early(self) -> None:
        """Nothing: the file is looked at often enough."""

    async def run(self) -> None:
        """Watch the file."""
        await self._file.run()


class UrlKeys:
    """Keys of a URL, asked each `interval_s`, and once more for a key that is not among them, at
    most each `early_interval_s`. The last good keys stay while the URL is away.

    `context` says whom to trust (by default the system's authorities); `transport` is for tests.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        interval_s: float,
        early_interval_s: float,
        timeout_s: float,
        context: ssl.SSLContext | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = url
        # Neither a password nor a query, which may hold a key, belongs into a log.
        parts = urlsplit(url)
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._clock = clock
        self._interval_s = interval_s
        self._early_interval_s = early_interval_s
        self._timeout_s = timeout_s
        self._context = context or ssl.create_default_context()
        self._transport = transport
        self._content = b""
        self._asked: trio.Event | None = None
        self._asked_at_s: float | None = None
        self._waiting: list[anyio.Event] = []
        self._complaint = ""
        self.current = NO_KEYS
        self.generation = 0
        self.trouble = "they have not been fetched yet"
        self.fetches = 0

    async def refresh_early(self) -> None:
        """Have the keys fetched now, and wait for that for a bounded time. On either loop."""
        if self._asked is not None and not self._asked.is_set():
            now_s = self._clock.monotonic_s()
            if self._asked_at_s is not None and now_s < self._asked_at_s + self._early_interval_s:
                return
            self._asked_at_s = now_s
            self._asked.set()
        fetched = anyio.Event()
        self._waiting.append(fetched)
        try:
            with anyio.move_on_after(self._timeout_s):
                await fetched.wait()
        finally:
            if fetched in self._waiting:
                self._waiting.remove(fetched)

    async def run(self) -> None:
        """Fetch the keys again and again. A trio coroutine."""
        failures = 0
        async with self._client() as client:
            while True:
                self._asked = None
                failures = 0 if await self._fetch(client) else failures + 1
                self._asked = trio.Event()
                self._wake()
                pause_s = self._interval_s
                if failures:
                    pause_s = min(
                        pause_s, _RETRY_MAX_S, _RETRY_FIRST_S * 2 ** min(failures - 1, 10)
                    )
                with trio.move_on_after(pause_s):
                    await self._asked.wait()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set()

    async def _fetch(self, client: httpx.AsyncClient) -> bool:
        self.fetches += 1
        try:
            with trio.fail_after(self._timeout_s):
                content = await self._content_of(client)
            if content != self._content:
                self.current = parse_key_set(content)
                self._content = content
                self.generation += 1
            self.trouble = self._complaint = ""
            return True
        except (httpx.HTTPError, httpx.InvalidURL, trio.TooSlowError, WrongFile) as error:
            reason = str(error) or type(error).__name__
            if reason != self._complaint:
                kept = (
                    f"the {len(self.current)} keys known stay in force" if len(self.current) else ""
                )
                _logger.error(
                    "security.jwt.jwks_url: %s: %s; %s",
                    self._shown,
                    reason,
                    kept or "no key is known",
                )
            self._complaint = reason
            if self.trouble:
                self.trouble = reason
            return False

    async def _content_of(self, client: httpx.AsyncClient) -> bytes:
        content, size_bytes = b"", 0
        async with client.stream("GET", self._url) as answer:
            if answer.status_code != 200:
                raise WrongFile(f"answered {answer.status_code}")
            # Read to its end, for a bounded time: leaving a stream in its middle leaks it.
            async for part in answer.aiter_bytes():
                size_bytes += len(part)
                if size_bytes <= _ANSWER_BYTES_MAX:
                    content += part
        if size_bytes > _ANSWER_BYTES_MAX:
            raise WrongFile(f"answered more than {_ANSWER_BYTES_MAX} bytes")
        return content

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=self._context,
            transport=self._transport,
            timeout=self._timeout_s,
            follow_redirects=False,
        )
