"""Changes an archive so that readers see each record once, even if the process is killed.

A commit consists of renames and the next manifest. They are written down first (the *intent*), then
carried out, then the manifest is replaced; each step is synced before the next. Renamed files were
completed before, in a folder that no reader opens. If a process dies before the intent, it leaves
only that folder, which the next process deletes. If it dies later, the next process completes the
commit.
"""

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from msgspec import Struct

from hermes_actors.model.moments import iso_ms
from hermes_local.failures import LaunchFailed
from hermes_spark.archive.disk import Disk
from hermes_spark.archive.layout import INTENT, LOCK, MANIFEST, RECORDS, STAGING
from hermes_spark.archive.manifest import VERSION, Manifest


class Move(Struct, frozen=True):
    """A file or folder that is renamed from `source` to `target`, relative to the archive's folder.

    With a `mark`, two folders are exchanged; only the new folder contains a file with that name.
    """

    source: str
    target: str
    mark: str = ""


class Intent(Struct, frozen=True):
    """A commit under way: its renames, and the manifest afterwards."""

    moves: tuple[Move, ...]
    manifest: Manifest
    version: int = VERSION


class Archive:
    """An archive that only this process may change; `open_archive` returns it."""

    def __init__(self, folder: Path, disk: Disk, manifest: Manifest, run: str) -> None:
        self.folder = folder
        self.manifest = manifest
        self._disk = disk
        self._staging = f"{STAGING}/{run}"
        self._staged = 0

    def staging(self) -> str:
        """A new name, relative to the archive's folder, for a file or folder to create and then
        move by a commit. Leftovers are deleted later.
        """
        self._staged += 1
        return f"{self._staging}-{self._staged}"

    def commit(self, moves: Sequence[Move], manifest: Manifest) -> None:
        """Carry out the moves, and make this the manifest, whose number must be the next one.

        Raises OSError; then the next process that opens the archive completes the commit, or drops
        it.
        """
        assert manifest.sequence == self.manifest.sequence + 1, "commits come one after another"
        for each in moves:
            if each.source.startswith(STAGING):
                self._disk.sync(each.source)
        self._disk.write(INTENT, _encoded(Intent(tuple(moves), manifest)))
        _carry_out(self._disk, moves, manifest)
        self.manifest = manifest
        self.clear()

    def clear(self) -> None:
        """Delete staged files, unless an interrupted commit still needs them."""
        if not self._disk.exists(INTENT):
            self._disk.remove_tree(STAGING)


def _carry_out(disk: Disk, moves: Sequence[Move], manifest: Manifest) -> None:
    """Carry out the steps that are not done yet."""
    for each in moves:
        if each.mark:
            if not disk.exists(f"{each.target}/{each.mark}"):
                disk.exchange(each.source, each.target)
        elif disk.exists(each.source):
            disk.rename(each.source, each.target)
        elif not disk.exists(each.target):
            raise LaunchFailed(
                f"{disk.folder / each.source} is missing, which an interrupted run had written; "
                "restore the archive's folder from a copy"
            )
    disk.sync_folders(name for each in moves for name in (each.source, each.target))
    disk.write(MANIFEST, _encoded(manifest))
    disk.remove(INTENT)


@contextmanager
def open_archive(folder: Path, now_ms: int, disk: Disk | None = None) -> Iterator[Archive]:
    """Open the archive in that folder for this process alone; creates it if necessary.

    Completes an interrupted commit first. `now_ms` is shown to another process that finds the
    archive taken. Raises LaunchFailed if another process has it or it is incomplete, and OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="utf-8") as lock:
        _take(folder, lock, now_ms)
        disk = disk or Disk(folder)
        manifest = _recovered(disk)
        # A killed process may have had the same id, and its JVM may still be writing.
        archive = Archive(folder, disk, manifest, f"{now_ms}-{os.getpid()}")
        archive.clear()
        (folder / RECORDS).mkdir(exist_ok=True)
        try:
            yield archive
        finally:
            archive.clear()


def _take(folder: Path, lock: IO[str], now_ms: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        raise LaunchFailed(
            f"{folder}: the archive is in use by {lock.read().strip() or 'another process'}"
            "; wait until it ends"
        ) from error
    # The kernel releases the lock with the process; the text is for people.
    lock.seek(0)
    lock.truncate()
    lock.write(f"process {os.getpid()} of {socket.gethostname()} since {iso_ms(now_ms)}\n")
    lock.flush()


def _recovered(disk: Disk) -> Manifest:
    """The manifest, after completing an interrupted commit."""
    if not disk.exists(MANIFEST):
        if disk.exists(RECORDS):
            raise LaunchFailed(
                f"{disk.folder} has records but no {MANIFEST}, so its end is unknown; restore "
                "that file, or use another folder"
            )
        disk.write(MANIFEST, _encoded(Manifest()))
    manifest = load_manifest(disk.folder)
    content = disk.read(INTENT)
    if content is None:
        return manifest
    intent = _decoded(disk.folder / INTENT, content, Intent)
    if intent.manifest.sequence == manifest.sequence + 1:
        _carry_out(disk, intent.moves, intent.manifest)
        return intent.manifest
    if intent.manifest.sequence != manifest.sequence:
        raise LaunchFailed(
            f"{disk.folder}: {INTENT} belongs to commit {intent.manifest.sequence}, but "
            f"{MANIFEST} to {manifest.sequence}; restore the archive's folder from a copy"
        )
    disk.remove(INTENT)
    return manifest


def load_manifest(folder: Path) -> Manifest:
    """The manifest of the archive in that folder, as of the last complete commit.

    Raises LaunchFailed if there is none or this version cannot read it, and OSError.
    """
    content = Disk(folder).read(MANIFEST)
    if content is None:
        raise LaunchFailed(
            f"there is no archive in {folder}; `hermes spark archive append` creates one"
        )
    return _decoded(folder / MANIFEST, content, Manifest)


def _encoded(value: Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1)


class _Versioned(Struct):
    version: int


T = TypeVar("T", bound=Struct)


def _decoded(path: Path, content: bytes, kind: type[T]) -> T:
    try:
        version = msgspec.json.decode(content, type=_Versioned).version
        if version == VERSION:
            return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LaunchFailed(
            f"{path} is damaged: {error}; restore the archive's folder from a copy"
        ) from error
    raise LaunchFailed(
        f"{path} has version {version}, this program reads {VERSION}; use the one that wrote it"
    )
