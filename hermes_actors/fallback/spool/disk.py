"""The folder of a spool on a real disk: one process writes, any may read.

All methods block and raise OSError. They run in a thread.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hermes_actors.errors import StartupError
from hermes_actors.log.folder import holder_of, sync_folder, take_lock

LOCK_NAME = "lock"

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
# Where available, it syncs the file's size but not its times.
_sync = getattr(os, "fdatasync", os.fsync)


class SpoolDisk:
    """Named files that grow at their ends. `lock` is an open file that holds the folder's lock;
    None for reading.
    """

    def __init__(self, folder: Path, lock: int | None) -> None:
        self.folder = folder
        self._lock = lock

    def sizes(self) -> dict[str, int]:
        """Return the size of each file in bytes, sorted by name."""
        found = {}
        with suppress(FileNotFoundError):
            for path in sorted(self.folder.iterdir()):
                # A running node may delete a segment meanwhile.
                with suppress(FileNotFoundError):
                    found[path.name] = path.stat().st_size
        return found

    def write(self, name: str, at: int, content: bytes, *, syncs: bool = True) -> None:
        """Write at this offset of a file. Offset 0 may create the file; otherwise it must exist."""
        path = self.folder / name
        file = os.open(path, os.O_WRONLY | (0 if at else os.O_CREAT), _FILE_MODE)
        try:
            rest, place = memoryview(content), at
            while rest:
                written = os.pwrite(file, rest, place)
                rest, place = rest[written:], place + written
            if syncs:
                _sync(file)
        finally:
            os.close(file)
        if syncs and not at:
            sync_folder(self.folder)

    def mark(self, name: str, places: Sequence[int], content: bytes) -> None:
        """Overwrite each of these places with the same bytes, if the file exists. A crash may undo
        it.
        """
        try:
            file = os.open(self.folder / name, os.O_WRONLY)
        except FileNotFoundError:
            return
        try:
            for place in places:
                os.pwrite(file, content, place)
        finally:
            os.close(file)

    def read(self, name: str, at: int = 0, size_bytes: int = -1) -> bytes:
        """Return that part of a file, by default all of it; shorter if the file ends."""
        with (self.folder / name).open("rb") as file:
            file.seek(at)
            return file.read(size_bytes)

    def truncate(self, name: str, size_bytes: int) -> None:
        """Cut the file off after that many bytes."""
        os.truncate(self.folder / name, size_bytes)

    def delete(self, name: str) -> None:
        """Delete the file if it exists."""
        (self.folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the folder's lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_folder(folder: Path) -> SpoolDisk:
    """Open the folder for writing; create it if it does not exist.

    Raises StartupError if it cannot be written, or another process uses it.
    """
    way_out = "or do without: spool.enabled = false (messages that no log takes are then refused)"
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        sync_folder(folder.parent)
        return SpoolDisk(folder, take_lock(folder / LOCK_NAME))
    except BlockingIOError as error:
        owner = holder_of(folder / LOCK_NAME) or "unknown"
        raise StartupError(
            f"spool.directory: {folder} is used by another process (pid {owner}); stop it, give "
            f"this node its own name or directory, {way_out}"
        ) from error
    except OSError as error:
        raise StartupError(
            f"spool.directory: {folder} cannot be written: {error.strerror}; make room, "
            f"or name a directory that this user can write to, {way_out}"
        ) from error
