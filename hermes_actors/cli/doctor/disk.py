"""The folders that a node writes to, and how many files it may have open."""

import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from hermes_actors.cli.doctor.diagnosis import Diagnosis, fine, odd, size_of, span_of, wrong
from hermes_actors.config import Config
from hermes_actors.fallback.spool.opening import spool_folder
from hermes_actors.runtime.clock import Clock

CHECK = "disk"

_FREE_BYTES_MIN = 67_108_864
_FREE_SHARE_MIN = 0.02
_INODES_MIN = 1_000
_SYNCS = 3
_BLOCK = bytes(4_096)
_OTHER_FILES = 500
"""Of a node: its logs, its libraries, its connections to brokers."""


class Folder(Struct, frozen=True):
    """A folder that a node writes to. `grows_bytes` is how large it may become, 0 where nothing
    bounds it but the disk; a write that takes longer than `sync_max_ms` has the `effect`.
    """

    setting: str
    path: Path
    grows_bytes: int
    sync_max_ms: int
    effect: str


class FolderSeen(Struct, frozen=True, kw_only=True):
    """The state of a folder's place, or of the nearest one above that is there.

    `trouble` is why nothing can be written there, "" when something can. `sync_ms` is the median
    time of writing 4 KiB to the disk, None where that cannot be measured without making a file.
    """

    is_there: bool
    nearest: str
    trouble: str = ""
    total_bytes: int = 0
    free_bytes: int = 0
    used_bytes: int = 0
    inodes_free: int | None = None
    sync_ms: float | None = None


def folders(config: Config) -> Iterator[Folder]:
    """The folders of a node with this configuration."""
    if "frontend" in config.roles and config.spool.enabled:
        yield Folder(
            "spool.directory",
            spool_folder(config),
            config.spool.disk_bytes_max,
            config.spool.reserve_ms,
            "publishes that only the spool can still save come too late (spool.reserve_ms)",
        )
    if not config.kafka.clusters:
        yield Folder(
            "log.directory",
            Path(config.log.directory),
            0,
            config.frontend.idle_timeout_ms,
            "publishes are answered 202 in place of 201 (frontend.idle_timeout_ms)",
        )
    if "management" in config.roles and config.tracking.index_directory:
        yield Folder(
            "tracking.index_directory",
            Path(config.tracking.index_directory) / f"{config.dc}.{config.node}",
            config.tracking.index_bytes_max,
            1_000,
            "the index of tracked messages falls behind",
        )


def look_at_folder(folder: Folder, clock: Clock) -> FolderSeen:
    """Look, and write to no file that has a name. Blocks."""
    place = folder.path.absolute()
    is_there = place.is_dir()
    while not place.exists() and place != place.parent:
        place = place.parent
    nearest = str(place)
    if not place.is_dir():
        return FolderSeen(is_there=False, nearest=nearest, trouble="is no folder")
    disk = os.statvfs(place)
    if disk.f_flag & os.ST_RDONLY:
        return FolderSeen(is_there=is_there, nearest=nearest, trouble="is mounted read-only")
    if not os.access(place, os.W_OK | os.X_OK):
        return FolderSeen(is_there=is_there, nearest=nearest, trouble="cannot be written to")
    sync_ms, trouble = _sync_ms(place, clock)
    return FolderSeen(
        is_there=is_there,
        nearest=nearest,
        trouble=trouble,
        total_bytes=disk.f_blocks * disk.f_frsize,
        free_bytes=disk.f_bavail * disk.f_frsize,
        used_bytes=_size_of_files(folder.path) if is_there and folder.grows_bytes else 0,
        # File systems without a fixed number say 0 of 0.
        inodes_free=disk.f_favail if disk.f_files else None,
        sync_ms=sync_ms,
    )


def judge_folder(folder: Folder, seen: FolderSeen) -> Diagnosis:
    """One line for one folder: the worst that is to be said of it."""
    about = f"{folder.setting}: {folder.path}"
    where = "" if seen.is_there else f"not there yet, a start makes it; {seen.nearest}: "
    # A full disk takes no write either, and it is room that it lacks.
    is_full = seen.total_bytes > 0 and seen.free_bytes < _FREE_BYTES_MIN
    if seen.trouble and not is_full:
        return wrong(
            CHECK,
            about,
            f"{seen.nearest} {seen.trouble}",
            f"let the node's user write there, or name another folder in {folder.setting}",
        )
    share = seen.free_bytes / max(seen.total_bytes, 1)
    room = f"{size_of(seen.free_bytes)} free of {size_of(seen.total_bytes)}"
    if is_full:
        return wrong(CHECK, about, where + room, "make room, or name a folder on another disk")
    if seen.inodes_free is not None and seen.inodes_free < _INODES_MIN:
        text = f"{where}{room}, but only {seen.inodes_free} inodes"
        return wrong(CHECK, about, text, "delete small files, or name a folder on another disk")
    if seen.sync_ms is not None:
        room += f", a write is on the disk after {span_of(seen.sync_ms)}"
    wanted_bytes = folder.grows_bytes - seen.used_bytes
    if wanted_bytes > seen.free_bytes:
        text = f"{where}{room}; it may grow by {size_of(wanted_bytes)}"
        return odd(CHECK, about, text, "make room, or lower its limit in the configuration")
    if share < _FREE_SHARE_MIN:
        return odd(CHECK, about, where + room, "make room")
    if seen.sync_ms is not None and seen.sync_ms > folder.sync_max_ms:
        text = f"{where}{room}: {folder.effect}"
        return odd(
            CHECK, about, text, "look at what else writes to this disk, or take a faster one"
        )
    return fine(CHECK, about, where + room)


class FilesLimit(Struct, frozen=True):
    """How many files a process may have open, and has. `whose` says which process that is."""

    whose: str
    most: int
    is_open: int


def files_wanted(config: Config) -> int:
    """How many files a node with this configuration has open when all its connections are."""
    wanted = _OTHER_FILES
    if "frontend" in config.roles:
        wanted += config.frontend.connections_max
    if "management" in config.roles:
        wanted += config.management.connections_max
    if "consumers" in config.roles:
        wanted += config.consumers.connections_per_host_max
    return wanted


def look_at_limit(pids: Iterable[int]) -> FilesLimit:
    """Of these processes the one with the most, else this command's own. Blocks."""
    found = [limit for pid in pids if (limit := _limit_of(pid)) is not None]
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    shell = FilesLimit("this shell", soft_limit, 0)
    return max(found, key=lambda each: each.is_open, default=shell)


def _limit_of(pid: int) -> FilesLimit | None:
    try:
        lines = Path(f"/proc/{pid}/limits").read_text(encoding="utf-8").splitlines()
        (soft,) = (each.split()[3] for each in lines if each.startswith("Max open files"))
        count = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, ValueError):
        # It is another user's, or has just ended.
        return None
    most = int(soft) if soft.isdigit() else resource.RLIM_INFINITY
    return FilesLimit(f"process {pid}", most, count)


def judge_limit(limit: FilesLimit, wanted: int) -> Diagnosis:
    """Whether connections may be refused for want of files."""
    about = "open files (ulimit -n)"
    if limit.most == resource.RLIM_INFINITY:
        return fine(CHECK, about, f"{limit.whose} has no limit")
    seen = f"{limit.whose} may have {limit.most} open"
    if limit.is_open:
        seen += f" and has {limit.is_open}"
    way_out = f"raise it for the node to {wanted} (ulimit -n, systemd's LimitNOFILE)"
    if limit.is_open > 0.9 * limit.most:
        return wrong(CHECK, about, seen, way_out)
    if limit.most < wanted:
        text = f"{seen}; all connections that the configuration allows need {wanted}"
        return odd(CHECK, about, text, f"{way_out}, or lower connections_max")
    return fine(CHECK, about, seen)


def newest_ms(folder: Path) -> list[float]:
    """The times of the last writes to the files of a folder, Unix epoch; none without one."""
    try:
        return [path.stat().st_mtime * 1_000 for path in folder.iterdir()]
    except OSError:
        # A running node deletes files meanwhile: the next look tells.
        return []


def _size_of_files(folder: Path) -> int:
    size_bytes = 0
    for path in folder.rglob("*"):
        try:
            size_bytes += path.stat().st_size
        except OSError:
            continue
    return size_bytes


def _sync_ms(folder: Path, clock: Clock) -> tuple[float | None, str]:
    """(how long a write takes, why it fails), by a file without a name, which ends with us."""
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is None:
        return None, ""
    try:
        file = os.open(folder, os.O_RDWR | unnamed, 0o600)
    except OSError:
        # Not every file system has them.
        return None, ""
    try:
        times = []
        for _ in range(_SYNCS):
            began_s = clock.monotonic_s()
            os.pwrite(file, _BLOCK, 0)
            os.fsync(file)
            times.append(1_000 * (clock.monotonic_s() - began_s))
        return sorted(times)[_SYNCS // 2], ""
    except OSError as error:
        return None, f"takes no write: {error.strerror}"
    finally:
        os.close(file)
