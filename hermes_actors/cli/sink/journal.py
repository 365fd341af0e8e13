"""A file of lines, written in batches by a thread; what was added is in it when it is closed."""

from io import FileIO
from pathlib import Path

import trio


class Journal:
    """Lines wait in memory, at most `lines_max`; `add` then waits until the file caught up.

    `run` writes them until it is cancelled, and what is left then as well.
    """

    def __init__(self, path: Path, *, interval_s: float = 0.1, lines_max: int = 10_000) -> None:
        self._path = path
        self._interval_s = interval_s
        self._lines_max = lines_max
        self._lines: list[bytes] = []
        self._filled = trio.Event()
        self._emptied = trio.Event()

    async def add(self, line: bytes) -> None:
        """Take one line, with its line end."""
        while len(self._lines) >= self._lines_max:
            await self._emptied.wait()
        self._lines.append(line)
        self._filled.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Create or empty the file and write to it. Raises OSError."""
        with self._path.open("wb", buffering=0) as file:
            task_status.started()
            try:
                while True:
                    await self._filled.wait()
                    await self._write(file)
                    await trio.sleep(self._interval_s)
            finally:
                await self._write(file)

    async def _write(self, file: FileIO) -> None:
        batch, self._lines = b"".join(self._lines), []
        self._filled = trio.Event()
        self._emptied.set()
        self._emptied = trio.Event()
        if batch:
            # Shielded: once taken off the list, the lines are nowhere but in this call.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(_write_all, file, batch)


def _write_all(file: FileIO, data: bytes) -> None:
    # A raw file may take less than it is given.
    while data:
        data = data[file.write(data) :]
