"""A folder to which one process writes: its lock, whether its files are still there, and syncing
it. Everything blocks.
"""

import fcntl
import os
from pathlib import Path


def take_lock(file: Path) -> int:
    """Lock this file, which is created if it does not exist, and return its descriptor; closing it
    releases the lock. Raises OSError; BlockingIOError if another process has the lock.
    """
    lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        os.close(lock)
        raise
    return lock


def holder_of(file: Path) -> str:
    """The pid of the process that has this lock now; empty string if none has."""
    try:
        with file.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().decode(errors="replace").strip() or "unknown"
    except FileNotFoundError:
        pass
    return ""


def sync_folder(folder: Path) -> None:
    """Sync the folder, so that created, renamed and deleted files in it are durable. Raises
    OSError.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class WatchedFiles:
    """Files that must not be deleted, moved or replaced while they are open: without a name, a file
    is lost when it is closed. `lost` may be called in another thread than the writer's, which calls
    `drop` before it deletes a file.
    """

    def __init__(self) -> None:
        self._had: dict[Path, tuple[int, int] | None] = {}

    def add(self, file: Path) -> None:
        """Watch this file; its device and inode identify it from now on."""
        self._had[file] = _identity(file)

    def drop(self, file: Path) -> None:
        """Stop watching the file, if it was watched."""
        self._had.pop(file, None)

    def lost(self) -> str:
        """The name of a file that is gone; empty string if all are there."""
        gone = [file.name for file, had in list(self._had.items()) if self._is_lost(file, had)]
        return gone[0] if gone else ""

    def _is_lost(self, file: Path, had: tuple[int, int] | None) -> bool:
        # It may have been dropped meanwhile, and deleted on purpose.
        return _identity(file) != had and self._had.get(file) == had


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
