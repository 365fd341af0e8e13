"""The folder of a spool on a real disk: one process writes, anybody may read.

All methods block and raise OSError; they run in a thread.
"""

import os
from contextlib import suppress
from pathlib import Path

from hermes_actors.errors import StartupError
from hermes_actors.log.folder import WatchedFiles, holder_of, sync_folder, take_lock

LOCK_NAME = "lock"
SET_ASIDE = "set-aside"

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
# Where it is there, it writes the file's size but not its times.
_sync = getattr(os, "fdatasync", os.fsync)


class FolderTaken(StartupError):
    """Another process has the folder, perhaps only for the moment in which it looks who has it."""


class SpoolDisk:
    """The disk as the spool's store needs it: named files that grow at their ends.

    `lock` is an open file that holds the folder's lock, None for reading.
    """

    def __init__(self, folder: Path, lock: int | None) -> None:
        self.folder = folder
        self._lock = lock
        self._open: dict[str, int] = {}
        self._watched = WatchedFiles()
        if lock is not None:
            for name, _size in self.names():
                if name == LOCK_NAME or name.endswith(".spool"):
                    self._watched.add(folder / name)

    def names(self, folder: str = "") -> list[tuple[str, int]]:
        """(name, size in bytes) of each file of the folder, sorted by name."""
        found = []
        with suppress(FileNotFoundError):
            for path in (self.folder / folder).iterdir():
                # A running node may delete a segment meanwhile.
                with suppress(FileNotFoundError):
                    if path.is_file():
                        found.append((path.name, path.stat().st_size))
        return sorted(found)

    def create(self, name: str, content: bytes) -> None:
        """A new file with this content; both are on the disk when this returns."""
        path = self.folder / name
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _FILE_MODE)
        try:
            _write(file, content)
            os.fsync(file)
            sync_folder(path.parent)
        except OSError:
            os.close(file)
            with suppress(OSError):
                path.unlink()
            raise
        self._keep(name, file)

    def write_at(self, name: str, at: int, content: bytes, *, syncs: bool) -> None:
        """Write over a part of a file, or behind its end; it is made when it is not there."""
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
            sync_folder(self.folder)

    def _keep(self, name: str, file: int) -> None:
        self._open[name] = file
        self._watched.add(self.folder / name)

    def append(self, name: str, content: bytes, *, syncs: bool) -> None:
        """Add to the end of a file, which is made when it is not there."""
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
            sync_folder(self.folder)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _FILE_MODE)
        try:
            _write(file, content)
            if syncs:
                _sync(file)
                if is_new:
                    sync_folder(path.parent)
        finally:
            os.close(file)

    def truncate(self, name: str, size_bytes: int) -> None:
        """Cut the file off behind that many bytes."""
        os.truncate(self.folder / name, size_bytes)

    def read(self, name: str, at: int = 0, size_bytes: int = -1) -> bytes:
        """Return that part of a file, by default all; shorter where the file ends."""
        with (self.folder / name).open("rb") as file:
            file.seek(at)
            return file.read(size_bytes)

    def delete(self, name: str) -> None:
        """Delete the file, if it is there."""
        self.release(name)
        self._watched.drop(self.folder / name)
        (self.folder / name).unlink(missing_ok=True)

    def release(self, name: str) -> None:
        """Let go of a file that is not written any more."""
        file = self._open.pop(name, None)
        if file is not None:
            os.close(file)

    def lost_file(self) -> str:
        """The name of a file that others have deleted, moved or replaced; "" when all are here."""
        return self._watched.lost()

    def close(self) -> None:
        """Give the disk up, so that another process may use it."""
        for name in list(self._open):
            self.release(name)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_folder(folder: Path) -> SpoolDisk:
    """The folder for writing; made when it is not there.

    Raises StartupError when it cannot be made, FolderTaken when another process has it.
    """
    way_out = "or do without: spool.enabled = false (messages that no log takes are then refused)"
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        sync_folder(folder.parent)
        lock = take_lock(folder / LOCK_NAME)
    except BlockingIOError as error:
        owner = holder_of(folder / LOCK_NAME) or "unknown"
        raise FolderTaken(
            f"spool.directory: {folder} is used by another process (pid {owner}); stop that one, "
            f"give this node a name or a directory of its own, {way_out}"
        ) from error
    except OSError as error:
        raise StartupError(
            f"spool.directory: {folder} cannot be written: {error.strerror}; make room, "
            f"or name a directory that this user can write to, {way_out}"
        ) from error
    return SpoolDisk(folder, lock)


def _write(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]
