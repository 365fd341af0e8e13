"""The file operations of an archive, each atomic."""

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from hermes_actors.log.folder import sync_folder
from hermes_spark.archive.layout import STAGING

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


class Disk:
    """The archive's folder; all names are relative to it. All methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self, name: str) -> bool:
        """True for a file or folder."""
        return (self.folder / name).exists()

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if it does not exist."""
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace a file's content atomically, and sync it."""
        begun = self.folder / STAGING / name
        begun.parent.mkdir(exist_ok=True)
        with begun.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        begun.replace(self.folder / name)
        sync_folder(self.folder)

    def sync(self, name: str) -> None:
        """Sync a file, or a folder with everything in it, and its parent folders."""
        path = self.folder / name
        for each in (path, *(path.rglob("*") if path.is_dir() else ())):
            descriptor = os.open(each, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self.sync_folders([name])

    def sync_folders(self, names: Iterable[str]) -> None:
        """Sync all folders that contain these files, up to the archive's folder."""
        above = {parent for name in names for parent in Path(name).parents}
        for each in sorted(above, reverse=True):
            if (self.folder / each).is_dir():
                sync_folder(self.folder / each)

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; creates the parent folders."""
        path = self.folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / source).rename(path)

    def exchange(self, one: str, other: str) -> None:
        """Exchange two folders, atomically if the system can.

        Otherwise the first replaces the second, which is missing for an instant. If the process
        dies in that instant, it is missing until this is called again.
        """
        if not self.exists(other):
            self.rename(one, other)
            return
        try:
            self.exchange_at_once(one, other)
        except OSError as error:
            if error.errno not in _CANNOT_EXCHANGE:
                raise
            self.rename(other, f"{one}.old")
            self.rename(one, other)

    def exchange_at_once(self, one: str, other: str) -> None:
        """As `exchange`, but raises if the system or its file system cannot do it; Linux can."""
        rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if rename is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        paths = [os.fsencode(self.folder / each) for each in (one, other)]
        if rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fsdecode(paths[0]), None, other)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        (self.folder / name).unlink(missing_ok=True)

    def remove_tree(self, name: str) -> None:
        """Delete a folder and everything in it, as far as possible."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
