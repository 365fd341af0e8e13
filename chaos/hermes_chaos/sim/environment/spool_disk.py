"""A spool's disk in memory, for the simulation: what was synced survives a crash, and only that.

The production store runs over it, with its own bytes: torn tails and a full disk are met there too.
"""

import errno
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from hermes_actors.fallback.spool.store import SegmentStore
from hermes_actors.runtime.clock import IdSource


class _File:
    __slots__ = ("content", "synced", "undo")

    def __init__(self) -> None:
        self.content = bytearray()
        self.synced = 0
        self.undo: list[tuple[int, bytes]] = []


class MemoryDisk:
    """One machine's disk; it outlives the processes that mount it.

    `is_full` and `is_failing` refuse writes; a full disk takes what there is room for first, as
    real ones do. `delay_s` is how long a write takes.
    """

    def __init__(self, *, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.is_full = False
        self.is_failing = False
        self.files: dict[str, _File] = {}

    def mount(self, rng: random.Random) -> "MountedDisk":
        """The disk as one process has it."""
        return MountedDisk(self, rng)


class MountedDisk:
    """Satisfies `Disk`, until the process `die`s."""

    def __init__(self, disk: MemoryDisk, rng: random.Random) -> None:
        self.disk = disk
        self._rng = rng
        self._is_dead = False

    def die(self) -> None:
        """The process is killed, and the machine with it: of what was not synced a part is left."""
        if self._is_dead:
            return
        self._is_dead = True
        for name in sorted(self.disk.files):
            file = self.disk.files[name]
            unsynced = len(file.content) - file.synced
            del file.content[file.synced + self._rng.randint(0, unsynced) :]
            file.synced = len(file.content)
            undone = self._rng.randint(0, len(file.undo))
            for at, before in reversed(file.undo[len(file.undo) - undone :]):
                file.content[at : at + len(before)] = before
            file.undo.clear()

    def names(self, folder: str = "") -> list[tuple[str, int]]:
        """As `Disk.names`."""
        prefix = f"{folder}/" if folder else ""
        return [
            (name.removeprefix(prefix), len(self.disk.files[name].content))
            for name in sorted(self.disk.files)
            if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
        ]

    def create(self, name: str, content: bytes) -> None:
        """As `Disk.create`."""
        self._check()
        if name in self.disk.files:
            raise FileExistsError(errno.EEXIST, "it is there already", name)
        self._refuse_if_full(name)
        self.append(name, content, syncs=True)

    def append(self, name: str, content: bytes, *, syncs: bool) -> None:
        """As `Disk.append`."""
        self._check()
        file = self.disk.files.setdefault(name, _File())
        if self.disk.is_full:
            file.content += content[: self._rng.randint(0, len(content) - 1)]
        self._refuse_if_full(name)
        file.content += content
        if syncs:
            file.synced = len(file.content)

    def write_at(self, name: str, at: int, content: bytes, *, syncs: bool) -> None:
        """As `Disk.write_at`. A crash may undo what was not synced, the last writes first."""
        self._check()
        if at + len(content) > len(self.read(name) if name in self.disk.files else b""):
            self._refuse_if_full(name)
        file = self.disk.files.setdefault(name, _File())
        file.content += bytes(max(at + len(content) - len(file.content), 0))
        if syncs:
            file.undo.clear()
        else:
            file.undo.append((at, bytes(file.content[at : at + len(content)])))
        file.content[at : at + len(content)] = content
        file.synced = len(file.content)

    def truncate(self, name: str, size_bytes: int) -> None:
        """As `Disk.truncate`."""
        self._check()
        file = self.disk.files[name]
        del file.content[size_bytes:]
        file.synced = min(file.synced, len(file.content))

    def read(self, name: str, at: int = 0, size_bytes: int = -1) -> bytes:
        """As `Disk.read`."""
        file = self.disk.files.get(name)
        if self._is_dead or file is None:
            raise FileNotFoundError(errno.ENOENT, "it is not there", name)
        return bytes(file.content[at : len(file.content) if size_bytes < 0 else at + size_bytes])

    def delete(self, name: str) -> None:
        """As `Disk.delete`."""
        self._check()
        self.disk.files.pop(name, None)

    def release(self, name: str) -> None:
        """As `Disk.release`."""

    def lost_file(self) -> str:
        """As `Disk.lost_file`."""
        return ""

    def close(self) -> None:
        """As `Disk.close`."""

    def _check(self) -> None:
        if self._is_dead:
            raise OSError(errno.EIO, "the process is dead")
        if self.disk.is_failing:
            raise OSError(errno.EIO, "input/output error")

    def _refuse_if_full(self, name: str) -> None:
        if self.disk.is_full:
            raise OSError(errno.ENOSPC, "no space left on device", name)


@asynccontextmanager
async def open_memory_store(
    mounted: MountedDisk, ids: IdSource, *, segment_bytes_max: int, accepts_damage: bool = False
) -> AsyncIterator[SegmentStore]:
    """The production store on a simulated disk: no thread, writes take the disk's `delay_s`."""
    turn = trio.Lock()

    async def write(work: Callable[[], Any]) -> Any:
        async with turn:
            await trio.sleep(mounted.disk.delay_s)
            return work()

    async def read(work: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return work()

    yield SegmentStore(
        mounted,
        ids,
        segment_bytes_max=segment_bytes_max,
        write=write,
        read=read,
        accepts_damage=accepts_damage,
    )
