"""A file whose content is taken again when it changes, without a restart."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import trio

from hermes_actors.errors import StartupError
from hermes_actors.security.users import WrongFile

T = TypeVar("T")

_FILE_BYTES_MAX = 4_194_304
_logger = logging.getLogger(__name__)


class WatchedFile(Generic[T]):
    """A file and what `parse` made of it; `field` is the setting that names it.

    `value` is there once `load` has returned. `run` looks at the file each `interval_s`; a content
    that `parse` refuses (WrongFile) or a file that cannot be read is told to the log, once, and
    the last good value stays.
    """

    value: T

    def __init__(
        self, path: str, field: str, parse: Callable[[bytes], T], interval_s: float
    ) -> None:
        self._path = Path(path)
        self._field = field
        self._parse = parse
        self._interval_s = interval_s
        self._content = b""
        self._complaint = ""
        self.changes = 0

    async def load(self) -> None:
        """Read it for the first time. A trio coroutine. Raises StartupError."""
        try:
            self._take(await self._read())
        except (WrongFile, OSError) as error:
            raise StartupError(self._sentence(error)) from error

    async def run(self) -> None:
        """Look at the file again and again. A trio coroutine."""
        while True:
            await trio.sleep(self._interval_s)
            await self.check()

    async def check(self) -> None:
        """Look at the file now. A trio coroutine."""
        try:
            content = await self._read()
            if content != self._content:
                self._take(content)
                self.changes += 1
                _logger.info("%s: %s was read again", self._field, self._path)
            self._complaint = ""
        except (WrongFile, OSError) as error:
            complaint = self._sentence(error)
            if complaint != self._complaint:
                _logger.error("%s; what it held before stays in force", complaint)
                self._complaint = complaint

    def _take(self, content: bytes) -> None:
        self.value = self._parse(content)
        self._content = content

    async def _read(self) -> bytes:
        def read() -> bytes:
            with self._path.open("rb") as file:
                return file.read(_FILE_BYTES_MAX + 1)

        content = await trio.to_thread.run_sync(read)
        if len(content) > _FILE_BYTES_MAX:
            raise WrongFile(f"is longer than {_FILE_BYTES_MAX} bytes")
        return content

    def _sentence(self, error: Exception) -> str:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"{self._field}: {self._path}: {reason}"
