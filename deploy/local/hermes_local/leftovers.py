"""What a failed call has made below a folder is removed, and nothing that was there before."""

import contextlib
import shutil
from collections.abc import Collection
from pathlib import Path


class Leftovers:
    """Remembers what a folder and its subfolders hold when it is made: two levels of names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = set(_two_levels(folder))

    def remove(self, keep: Collection[Path] = ()) -> None:
        """Remove what is new on those two levels, but not what is in `keep`."""
        for each in _two_levels(self._folder):
            if each not in self._before:
                prune(each, keep)


def prune(path: Path, keep: Collection[Path] = ()) -> None:
    """Remove a file, or a folder with all that it holds, except what is in `keep`."""
    if path in keep:
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    elif any(path in each.parents and each.exists() for each in keep):
        for each in list(path.iterdir()):
            prune(each, keep)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _two_levels(folder: Path) -> list[Path]:
    found: list[Path] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for each in sorted(folder.iterdir()):
            found.append(each)
            if each.is_dir() and not each.is_symlink():
                found += sorted(each.iterdir())
    return found
