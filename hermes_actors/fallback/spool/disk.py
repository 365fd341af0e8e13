"""The folder of a spool on a real disk: one process writes, anybody may read.

All methods block and raise OSError; they run in a thread.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from hermes_actors.errors import StartupError

LOCK_NAME = "lock"
SET_ASIDE = "set-aside"

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
# Where it is there, it writes the file's size but not its times.
_sync = getattr(os, "fdatasync", os.fsync)


class FolderTaken(StartupError):
    """Another process has the folder, perhaps only for the moment in which it looks who has it."""


class Disk(Protocol):
    """The disk as the spool's store needs it: named files that grow at their ends."""

    def names(self, folder: str = "") -> list[tuple[str, int]]:
        """(name, size in bytes) of each file of the folder, sorted by name."""

    def create(self, name: str, content: bytes) -> None:
        """A new file with this content; both are on the disk when this returns."""

    def append(self, name: str, content: bytes, *, syncs: bool) -> None:
        """Add to the end of a file, which is made when it is not there."""

    def write_at(self, name: str, at: int, content: bytes, *, syncs: bool) -> None:
        """Write over a part of a file, or behind its end; it is made when it is not there."""

    def truncate(self, name: str, size_bytes: int) -> None:
        """Cut the file off behind that many bytes."""

    def read(self, name: str, at: int = 0, size_bytes: int = -1) -> bytes:
        """Return that part of a file, by default all; shorter where the file ends."""

    def delete(self, name: str) -> None:
        """Delete the file, if it is there."""

    def release(self, name: str) -> None:
        """Let go of a file that is not written any more."""

    def lost_file(self) -> str:
        """The name of a file that others have deleted, moved or replaced; "" when all are here."""

    def close(self) -> None:
        """Give the disk up, so that another process may use it."""


class FolderDisk:
    """Satisfies `Disk`. `holder` is an open file that holds the folder's lock, None for reading."""

    def __init__(self, folder: Path, holder: int | None) -> None:
        self.folder = folder
        self._holder = holder
        self._open: dict[str, int] = {}
        # By name, of what must not be lost: which file it is.
        self._files: dict[str, int] = {}
        self._is_looked_at = False

    def names(self, folder: str = "") -> list[tuple[str, int]]:
        """As `Disk.names`."""
        found = []
        with suppress(FileNotFoundError):
            for path in (self.folder / folder).iterdir():
                # A running node may delete a segment meanwhile.
                with suppress(FileNotFoundError):
                    if path.is_file():
                        found.append((path.name, path.stat().st_size))
        return sorted(found)

    def create(self, name: str, content: bytes) -> None:
        """As `Disk.create`."""
        path = self.folder / name
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _FILE_MODE)
        try:
            _write(file, content)
            os.fsync(file)
            _sync_folder(path.parent)
        except OSError:
            os.close(file)
            with suppress(OSError):
                path.unlink()
            raise
        self._keep(name, file)

    def write_at(self, name: str, at: int, content: bytes, *, syncs: bool) -> None:
        """As `Disk.write_at`."""
        file = self._open.get(name)
        is_new = False
        if file is None:
            is_new = not (self.folder / name).exists()
            file = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, _FILE_MODE)
            self._keep(name, file)
        rest = memoryview(content)
        while rest:
            written = os.pwrite(file, rest, at)
            rest, at = rest[written:], at + written
        if syncs or is_new:
            os.fsync(file)
        if is_new:
            _sync_folder(self.folder)

    def _keep(self, name: str, file: int) -> None:
        self._open[name] = file
        self._files[name] = os.fstat(file).st_ino

    def append(self, name: str, content: bytes, *, syncs: bool) -> None:
        """As `Disk.append`."""
        file = self._open.get(name)
        if file is not None:
            _write(file, content)
            if syncs:
                _sync(file)
            return
        path = self.folder / name
        is_new = not path.exists()
        if is_new and path.parent != self.folder:
            path.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            _sync_folder(self.folder)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE_MODE)
        try:
            _write(file, content)
            if syncs:
                _sync(file)
                if is_new:
                    _sync_folder(path.parent)
        finally:
            os.close(file)

    def truncate(self, name: str, size_bytes: int) -> None:
        """As `Disk.truncate`."""
        os.truncate(self.folder / name, size_bytes)

    def read(self, name: str, at: int = 0, size_bytes: int = -1) -> bytes:
        """As `Disk.read`."""
        with (self.folder / name).open("rb") as file:
            file.seek(at)
            return file.read(size_bytes)

    def delete(self, name: str) -> None:
        """As `Disk.delete`."""
        self.release(name)
        self._files.pop(name, None)
        (self.folder / name).unlink(missing_ok=True)

    def release(self, name: str) -> None:
        """As `Disk.release`."""
        file = self._open.pop(name, None)
        if file is not None:
            os.close(file)

    def lost_file(self) -> str:
        """As `Disk.lost_file`."""
        try:
            with os.scandir(self.folder) as found:
                here = {each.name: each.inode() for each in found}
        except FileNotFoundError:
            return self.folder.name
        if not self._is_looked_at:
            self._is_looked_at = True
            self._files = {
                name: inode
                for name, inode in here.items()
                if name == LOCK_NAME or name.endswith(".spool")
            } | self._files
        return next((name for name, had in self._files.items() if here.get(name) != had), "")

    def close(self) -> None:
        """As `Disk.close`."""
        for name in list(self._open):
            self.release(name)
        if self._holder is not None:
            os.close(self._holder)
            self._holder = None


def open_folder(folder: Path) -> FolderDisk:
    """The folder for writing; made when it is not there.

    Raises StartupError when it cannot be made, FolderTaken when another process has it.
    """
    way_out = "or do without: spool.enabled = false (messages that no log takes are then refused)"
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        _sync_folder(folder.parent)
        holder = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, _FILE_MODE)
    except OSError as error:
        raise StartupError(
            f"spool.directory: {folder} cannot be written: {error.strerror}; "
            f"name a directory that this user can write to, {way_out}"
        ) from error
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(holder, 0)
        os.pwrite(holder, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        owner = holder_of(folder) or "unknown"
        os.close(holder)
        raise FolderTaken(
            f"spool.directory: {folder} is used by another process (pid {owner}); stop that one, "
            f"give this node a name or a directory of its own, {way_out}"
        ) from error
    except OSError as error:
        os.close(holder)
        raise StartupError(
            f"spool.directory: {folder} cannot be written: {error.strerror}; make room, {way_out}"
        ) from error
    return FolderDisk(folder, holder)


def holder_of(folder: Path) -> str:
    """The pid of the process that has the folder now; "" when none has."""
    try:
        with (folder / LOCK_NAME).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().decode(errors="replace").strip() or "unknown"
    except FileNotFoundError:
        pass
    return ""


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
