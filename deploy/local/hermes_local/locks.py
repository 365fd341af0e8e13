"""Locks by files that are there only while somebody holds them."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from hermes_local.failures import LaunchFailed

_ATTEMPTS = 100


@contextlib.contextmanager
def exclusive(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Hold the file's lock: one process at a time, and given back by the kernel at its end.

    The file and the folders that were made for it are removed afterwards; folders only when
    nothing else was put there, and nobody else waits for the lock. Raises BlockingIOError where it
    does not wait, and LaunchFailed where the file cannot be made.
    """
    made: list[Path] = []
    try:
        with _held(path, made, waits):
            try:
                yield
            finally:
                # While it is held, so that it is never somebody else's.
                path.unlink(missing_ok=True)
    finally:
        remove_empty(made)


def make_folders(folder: Path) -> list[Path]:
    """Make it with all above it; gives those that were not there, the outermost first.

    Raises LaunchFailed.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()][::-1]
    try:
        _make(folder)
    except OSError as error:
        raise LaunchFailed(
            f"{folder} cannot be made: {error.strerror}; choose another folder for the data"
        ) from error
    return missing


def _make(folder: Path) -> None:
    for _ in range(_ATTEMPTS):
        # Another process may just have removed what is above it, empty as it was.
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
            return
    folder.mkdir(parents=True, exist_ok=True)


def remove_empty(folders: list[Path]) -> None:
    """Remove those of them, given the outermost first, that hold nothing."""
    for each in reversed(folders):
        with contextlib.suppress(OSError):
            each.rmdir()


@contextlib.contextmanager
def _held(path: Path, made: list[Path], waits: bool) -> Iterator[None]:
    while True:
        made += make_folders(path.parent)
        try:
            file = path.open("a")
        except FileNotFoundError:
            # Who held it before has just removed the folder.
            continue
        except OSError as error:
            raise LaunchFailed(f"{path} cannot be written: {error.strerror}") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            if _is_at(path, file):
                yield
                return
        # Who held it before has removed it: a lock on that file keeps nobody out.


def _is_at(path: Path, file: IO[str]) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    return False
