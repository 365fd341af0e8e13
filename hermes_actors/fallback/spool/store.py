"""Stores entries in segments on a disk: after `append` returns, every later `load` finds them.

A segment is written by one process, up to a size limit, and is deleted when all its entries are
done. A write that fails or is abandoned ends its segment, because the bytes after it are unknown.
"""

import errno
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Struct, field

from hermes_actors.errors import StartupError, Unavailable
from hermes_actors.fallback.spool.disk import SpoolDisk
from hermes_actors.fallback.spool.format import (
    DONE,
    Scanned,
    SpoolEntry,
    decode_entry,
    scan,
)

_logger = logging.getLogger(__name__)

SET_ASIDE = "set-aside.jsonl"

_SEGMENT = re.compile(r"(\d{10})\.spool")
_PROBE = "probe"
_SEGMENT_BYTES_MAX = 16 * 1024 * 1024
_SEGMENTS_MIN = 64
_ROLL_BYTES = 1024 * 1024
"""Minimum size before an unneeded segment is deleted, so that not every message begins a new one.
"""


class SpoolUnavailable(Unavailable):
    """The spool did not accept it; `reason` is `full`, `disk`, `slow` or `closed`. `may_be_kept`:
    it may be on the disk nevertheless, and the next start would find it.
    """

    def __init__(self, reason: str, message: str, *, may_be_kept: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.may_be_kept = may_be_kept


Blocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs blocking code: in a thread, or immediately on a simulated disk."""


class Segment(Struct, eq=False):
    """A segment's file. `waiting` counts the entries that are needed; `done` has the offsets of the
    others that are still to be marked.
    """

    number: int
    size_bytes: int = 0
    waiting: int = 0
    done: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.number:010}.spool"


class Place(Struct, frozen=True):
    """The position of an entry."""

    segment: Segment
    at: int
    size_bytes: int


@dataclass(eq=False)
class SegmentStore:
    """The segments of one folder. `run_write` runs changes to the disk, one at a time; `run_read`
    runs reads.
    """

    disk: SpoolDisk
    disk_bytes_max: int
    run_write: Blocking
    run_read: Blocking

    def __post_init__(self) -> None:
        self._segment_bytes_max = min(_SEGMENT_BYTES_MAX, self.disk_bytes_max // _SEGMENTS_MIN)
        self._segments: list[Segment] = []
        self._active: Segment | None = None
        self._aside_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The size on the disk, including messages set aside."""
        return sum([each.size_bytes for each in self._segments]) + self._aside_bytes

    async def load(self) -> tuple[list[tuple[Place, SpoolEntry]], int]:
        """Return the entries of an earlier process, without their bodies, in order of arrival, and
        the number of unreadable places. Must be called once, before anything else. Raises
        StartupError.
        """
        try:
            read, sizes = await self.run_write(
                lambda: (read_segments(self.disk), self.disk.sizes())
            )
        except OSError as error:
            raise StartupError(
                f"spool.directory: what an earlier run left cannot be read: {error}; repair the "
                "disk, or move the folder away and start without it"
            ) from error
        self._aside_bytes = sizes.get(SET_ASIDE, 0)
        self._segments = [segment for segment, _scanned in read]
        entries = []
        for segment, scanned in read:
            # A segment with entries of a newer version stays for that version.
            segment.waiting = len(scanned.waiting) + scanned.unknown
            if scanned.unknown:
                _logger.error(
                    "spool: %d messages in %s are of a newer version, which must send them",
                    scanned.unknown,
                    segment.name,
                )
            entries += [(Place(segment, at, size), entry) for at, size, entry in scanned.waiting]
            if rest := segment.size_bytes - scanned.end:
                _logger.warning(
                    "spool: the last %d bytes of %s are no messages", rest, segment.name
                )
        return entries, sum(scanned.damaged for _segment, scanned in read)

    async def append(self, encoded: Sequence[bytes]) -> list[Place]:
        """Store all of these. When this returns they are on the disk (fsync).

        Raises SpoolUnavailable. If that is raised, or this is cancelled, some may be stored
        nevertheless.
        """
        segment = self._active
        if segment is None or segment.size_bytes >= self._segment_bytes_max:
            last = self._segments[-1].number if self._segments else 0
            segment = Segment(last + 1)
            self._segments.append(segment)
        places, at = [], segment.size_bytes
        for each in encoded:
            places.append(Place(segment, segment.size_bytes, len(each)))
            segment.size_bytes += len(each)
        self._active = None
        try:
            await self._change(partial(self._append, segment.name, at, b"".join(encoded)))
        except SpoolUnavailable as error:
            if not error.may_be_kept:
                segment.size_bytes = at
            raise
        self._active = segment
        segment.waiting += len(places)
        return places

    async def read(self, places: Sequence[Place]) -> list[SpoolEntry | None]:
        """Return the entry at each place; None if it is damaged or gone.

        Raises SpoolUnavailable if a later attempt may succeed.
        """

        def read(place: Place) -> SpoolEntry | None:
            try:
                return decode_entry(self.disk.read(place.segment.name, place.at, place.size_bytes))
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EIO):
                    raise  # For example too many open files: nothing is wrong with the entry.
                return None

        try:
            entries: list[SpoolEntry | None] = await self.run_read(
                lambda: [read(place) for place in places]
            )
        except OSError as error:
            raise _unavailable(error) from error
        return entries

    def settle(self, place: Place) -> None:
        """Mark the entry as no longer needed; `tidy` writes that to the disk."""
        place.segment.waiting -= 1
        place.segment.done.append(place.at)

    async def tidy(self, *, at_end: bool = False) -> None:
        """Delete unneeded segments, and mark entries that are done. Raises SpoolUnavailable."""
        active, roll_bytes = self._active, min(_ROLL_BYTES, self._segment_bytes_max)
        if active and not active.waiting and (at_end or active.size_bytes >= roll_bytes):
            self._active = None
        gone = [each for each in self._segments if not each.waiting and each is not self._active]
        marks = [(each, each.done.copy()) for each in self._segments if each.waiting and each.done]
        if not gone and not marks:
            return

        def tidy() -> None:
            for segment in gone:
                self.disk.delete(segment.name)
            for segment, done in marks:
                self.disk.mark(segment.name, done, DONE)

        await self._change(tidy)
        self._segments = [each for each in self._segments if each not in gone]
        for segment, done in marks:
            del segment.done[: len(done)]

    async def set_aside(self, lines: bytes) -> None:
        """Append these lines to the file for operators (fsync). Raises SpoolUnavailable."""

        def write() -> None:
            # Read the size here, where writes are serialised: others may set aside at the same
            # time, and an operator may have deleted the file.
            at = self.disk.sizes().get(SET_ASIDE, 0)
            # A crash may have cut the last line short.
            content = b"\n" + lines if at else lines
            self._append(SET_ASIDE, at, content)
            self._aside_bytes = at + len(content)

        await self._change(write)

    async def probe(self) -> None:
        """Check whether the disk accepts writes. Raises SpoolUnavailable."""

        def write() -> None:
            self.disk.write(_PROBE, 0, bytes(4_096))
            self.disk.delete(_PROBE)

        await self._change(write)

    async def _change(self, work: Callable[[], None]) -> None:
        try:
            await self.run_write(work)
        except OSError as error:
            raise _unavailable(error) from error

    def _append(self, name: str, at: int, content: bytes) -> None:
        try:
            self.disk.write(name, at, content)
        except OSError as error:
            # Remove what was refused, so that it is not sent. If this fails too, it is sent after a
            # restart; the publisher's answer says that it may be stored.
            try:
                if at:
                    self.disk.truncate(name, at)
                else:
                    self.disk.delete(name)
            except OSError as uncut:
                _logger.warning("spool: %s could not be cut at %d: %s", name, at, uncut)
                raise _unavailable(error, may_be_kept=True) from error
            raise


def read_segments(disk: SpoolDisk) -> list[tuple[Segment, Scanned]]:
    """Return all existing segments in order, with their contents. Raises OSError."""
    read = []
    for name in disk.sizes():
        if found := _SEGMENT.fullmatch(name):
            # A running node may delete a segment while another process reads the folder.
            with suppress(FileNotFoundError):
                data = disk.read(name)
                read.append((Segment(int(found[1]), len(data)), scan(data)))
    return read


def _unavailable(error: OSError, *, may_be_kept: bool = False) -> SpoolUnavailable:
    reason = "full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk"
    return SpoolUnavailable(reason, f"the spool's disk: {error}", may_be_kept=may_be_kept)
