"""A node's disk: synced bytes outlive the node, others may be lost or torn.

It implements the seam below the spool's segments, so that their format, recovery and order are the
production code's.
"""

import errno
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from hermes_actors.fallback.spool.disk import SpoolDisk
from hermes_actors.fallback.spool.store import SegmentStore

WRITE_S = (0.0005, 0.004)
READ_S = (0.0, 0.001)
_AT_ONCE = (0.0, 0.0)
_LATE_RATE = 0.3
_TORN_RATE = 0.3


class _Ended(Exception):
    """The process that made a change has died in the middle of it."""


class SimulatedDisk(SpoolDisk):
    """Keeps its files in memory from one life of a node to the next.

    Writes and reads take a time within these bounds. The nemesis sets `is_full`, `is_failing` and
    `slow_s`, the minimum duration of a write.
    """

    def __init__(
        self,
        rng: random.Random | None = None,
        *,
        write_s: tuple[float, float] = _AT_ONCE,
        read_s: tuple[float, float] = _AT_ONCE,
    ) -> None:
        self._rng = rng or random.Random(1)  # noqa: S311 -- repeats itself
        self.write_s = write_s
        self.read_s = read_s
        self.files: dict[str, bytearray] = {}
        self._synced: dict[str, int] = {}
        self._marked: dict[str, list[tuple[int, bytes]]] = {}
        self._tears = False
        self.is_full = False
        self.is_failing = False
        self.slow_s = 0.0

    def heal(self) -> None:
        """End all faults."""
        self.is_full = self.is_failing = False
        self.slow_s = 0.0

    def holds(self, message_id: str) -> bool:
        """True if a crash at this moment would leave a message with that id on the disk."""
        sought = message_id.encode()
        return any(
            sought in file[: self._synced[name]]
            for name, file in self.files.items()
            if name.endswith(".spool")
        )

    def lose_power(self) -> None:
        """Lose unsynced bytes from some byte on, and undo marks from some mark on."""
        for name, file in self.files.items():
            del file[self._rng.randint(self._synced[name], len(file)) :]
            self._synced[name] = len(file)
        for name, marks in self._marked.items():
            undone = self._rng.randint(0, len(marks))
            for at, before in reversed(marks[len(marks) - undone :]):
                self.files[name][at : at + len(before)] = before
        self._marked.clear()

    def tear(self, change: Callable[[], Any]) -> None:
        """Apply a change that was under way when its process ended: entirely, in part, or not at
        all.
        """
        drawn = self._rng.random()
        if drawn < _LATE_RATE + _TORN_RATE:
            self._tears = drawn < _TORN_RATE
            with suppress(OSError, _Ended):
                change()
            self._tears = False

    async def wait(self, bounds_s: tuple[float, float], least_s: float = 0.0) -> None:
        """Sleep a random time within the bounds, in seconds, but at least `least_s`."""
        await trio.sleep(max(least_s, self._rng.uniform(*bounds_s)))

    def sizes(self) -> dict[str, int]:
        """As `SpoolDisk.sizes`."""
        return {name: len(self.files[name]) for name in sorted(self.files)}

    def write(self, name: str, at: int, content: bytes, *, syncs: bool = True) -> None:
        """As `SpoolDisk.write`. A failed write may leave a part."""
        if at:
            self._file(name)
        file = self.files.setdefault(name, bytearray())
        self._synced.setdefault(name, 0)
        if self._tears or self.is_full or self.is_failing:
            part = content[: self._rng.randrange(len(content) + 1)]
            file[at : at + len(part)] = part
            self._check()
            raise _Ended
        file[at : at + len(content)] = content
        if syncs:
            self._synced[name] = len(file)

    def mark(self, name: str, places: Sequence[int], content: bytes) -> None:
        """As `SpoolDisk.mark`. Works on a full disk."""
        if self.is_failing:
            self._check()
        file = self.files.get(name, bytearray())
        for at in places if file else ():
            if self._tears and self._rng.random() < 0.5:
                raise _Ended
            self._marked.setdefault(name, []).append((at, bytes(file[at : at + len(content)])))
            file[at : at + len(content)] = content

    def truncate(self, name: str, size_bytes: int) -> None:
        """As `SpoolDisk.truncate`. Works on a full disk."""
        if self.is_failing:
            self._check()
        del self._file(name)[size_bytes:]
        self._synced[name] = min(self._synced[name], size_bytes)

    def read(self, name: str, at: int = 0, size_bytes: int = -1) -> bytes:
        """As `SpoolDisk.read`."""
        file = self._file(name)
        return bytes(file[at:] if size_bytes < 0 else file[at : at + size_bytes])

    def delete(self, name: str) -> None:
        """As `SpoolDisk.delete`. Works on a full disk."""
        if self.is_failing:
            self._check()
        self.files.pop(name, None)
        self._synced.pop(name, None)
        self._marked.pop(name, None)

    def close(self) -> None:
        """As `SpoolDisk.close`."""

    def _file(self, name: str) -> bytearray:
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return self.files[name]

    def _check(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device")
        if self.is_failing:
            raise OSError(errno.EIO, "input/output error")


class Mount:
    """The disk as one life of a node sees it. After the life's end nothing reaches the disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self._turn = trio.Lock()
        self._is_dead = False

    def die(self) -> None:
        """Cut the node off from its disk, which loses power."""
        self._is_dead = True
        self.disk.lose_power()

    async def write(self, change: Callable[[], Any]) -> Any:
        """Make a change, one at a time. If cancelled, it may still be made, entirely or in part."""
        async with self._turn:
            self._check_alive()
            try:
                await self.disk.wait(self.disk.write_s, self.disk.slow_s)
            except trio.Cancelled:
                self.disk.tear(change)
                raise
            self._check_alive()
            return change()

    async def read(self, look: Callable[[], Any]) -> Any:
        """Read after a moment."""
        await self.disk.wait(self.disk.read_s)
        return look()

    def _check_alive(self) -> None:
        if self._is_dead:
            raise OSError(errno.EIO, "the node is dead")


@asynccontextmanager
async def open_store_on(mount: Mount, disk_bytes_max: int) -> AsyncIterator[SegmentStore]:
    """The production store on a simulated disk, without a thread."""
    yield SegmentStore(mount.disk, disk_bytes_max, mount.write, mount.read)
