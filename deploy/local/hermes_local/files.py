"""Files of the launchers: private files, locks, and cleaning up after a failed start."""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hermes_local.failures import LaunchFailed


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock: one process at a time, released by the kernel when the process ends.

    The file stays.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_of(folder: Path) -> Path:
    """A folder's lock file. It is outside the folder, so that the folder may be deleted."""
    key = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"hermes-{os.getuid()}-{key}.lock")


def make_folder(folder: Path) -> None:
    """Create a folder with its parents. Raises LaunchFailed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchFailed(
            f"{folder} cannot be made: {error.strerror}; choose another folder for the data"
        ) from error


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only, because it may contain a password.

    Raises LaunchFailed.
    """
    partial = path.with_name(f"{path.name}.partial")
    make_folder(path.parent)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        partial.rename(path)
    except OSError as error:
        raise LaunchFailed(f"{path} cannot be written: {error.strerror}") from error


def remove_empty(folders: list[Path]) -> None:
    """Remove those of the folders, innermost first, that are empty."""
    for each in folders:
        with contextlib.suppress(OSError):
            each.rmdir()


def remove(path: Path, unless_in: str = "") -> None:
    """Remove a file, or a folder with its content, except files named in this text."""
    if path.is_dir() and not path.is_symlink():
        for each in list(path.iterdir()):
            remove(each, unless_in)
        remove_empty([path])
    elif str(path) not in unless_in:
        path.unlink(missing_ok=True)
