"""Changing an archive so that readers of its folder see each record once, whenever it is killed.

A commit is some renames and the next manifest. They are written down first (the *intent*), then
carried out, then the manifest is replaced, each on the disk before the next. What is renamed was
made whole before, in a folder that no reader looks into. A process that dies before the intent has
left nothing but that folder's content, which the next one deletes; one that dies after it has its
commit carried out by the next one, which begins with that.
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
    """A file or folder that goes from `source` to `target`, both relative to the archive's folder.

    With a `mark` they are two folders that change places; only what is to be at the target has a
    file of that name.
    """

    source: str
    target: str
    mark: str = ""


class Intent(Struct, frozen=True):
    """A commit that has begun: the renames, and the manifest that holds after them."""

    moves: tuple[Move, ...]
    manifest: Manifest
    version: int = VERSION


class Archive:
    """An archive that this process alone may change; `open_archive` gives it."""

    def __init__(self, folder: Path, disk: Disk, manifest: Manifest, run: str) -> None:
        self.folder = folder
        self.manifest = manifest
        self._disk = disk
        self._staging = f"{STAGING}/{run}"
        self._staged = 0

    def staging(self) -> str:
        """The name, relative to the archive's folder, of what does not exist yet: to be made there
        and then moved by a commit. Whatever is left of it is deleted some time.
        """
        self._staged += 1
        return f"{self._staging}-{self._staged}"

    def commit(self, moves: Sequence[Move], manifest: Manifest) -> None:
        """Carry out the moves; the manifest is then this one, the next after the present one.

        Raises OSError; the commit is then carried out by whoever opens the archive next, or not at
        all.
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
        """Delete what was staged, unless a commit that was broken off still needs it."""
        if not self._disk.exists(INTENT):
            self._disk.remove_tree(STAGING)


def _carry_out(disk: Disk, moves: Sequence[Move], manifest: Manifest) -> None:
    """As far as that is not done yet."""
    for each in moves:
        if each.mark:
            if not disk.exists(f"{each.target}/{each.mark}"):
                disk.exchange(each.source, each.target)
        elif disk.exists(each.source):
            disk.rename(each.source, each.target)
        elif not disk.exists(each.target):
            raise LaunchFailed(
                f"{disk.folder / each.source} is missing, which a run that was interrupted had "
                "written; restore the archive's folder from a copy"
            )
    disk.sync_folders(name for each in moves for name in (each.source, each.target))
    disk.write(MANIFEST, _encoded(manifest))
    disk.remove(INTENT)


@contextmanager
def open_archive(folder: Path, now_ms: int, disk: Disk | None = None) -> Iterator[Archive]:
    """The archive in that folder, for this process alone; it is made if it is not there.

    A commit that was interrupted is carried out first. `now_ms` is the time, for the next one who
    finds it taken. Raises LaunchFailed when another process has it, or it is not whole, OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="utf-8") as lock:
        _take(folder, lock, now_ms)
        disk = disk or Disk(folder)
        manifest = _recovered(disk)
        # Another process of this id may have been killed, and its JVM still be writing.
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
            f"{folder}: the archive is being changed by {lock.read().strip() or 'another process'}"
            "; wait for its end"
        ) from error
    # The kernel gives the lock back with the process: what is written here is for people.
    lock.seek(0)
    lock.truncate()
    lock.write(f"process {os.getpid()} of {socket.gethostname()} since {iso_ms(now_ms)}\n")
    lock.flush()


def _recovered(disk: Disk) -> Manifest:
    """The manifest, after the commit that was interrupted, if one was."""
    if not disk.exists(MANIFEST):
        if disk.exists(RECORDS):
            raise LaunchFailed(
                f"{disk.folder} has records but no {MANIFEST}, so how far it goes is not known; "
                "restore that file, or name another folder"
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
            f"{disk.folder}: {INTENT} is of commit {intent.manifest.sequence}, but {MANIFEST} of "
            f"{manifest.sequence}; restore the archive's folder from a copy"
        )
    disk.remove(INTENT)
    return manifest


def load_manifest(folder: Path) -> Manifest:
    """The manifest of the archive in that folder, as of the last commit that is done.

    Raises LaunchFailed where there is none, or one that this version cannot read, OSError.
    """
    content = Disk(folder).read(MANIFEST)
    if content is None:
        raise LaunchFailed(
            f"there is no archive in {folder}; `hermes spark archive append` begins one"
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
