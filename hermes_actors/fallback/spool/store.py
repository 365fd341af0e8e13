"""Where the spool's entries lie: what `append` has returned for is found by every later `load`.

Segments are written by one process and never written again by another one: a process that starts
begins a segment of its own. A segment is deleted when none of its entries is needed.
"""

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from hermes_actors.errors import Unavailable
from hermes_actors.fallback.spool.disk import (
    SET_ASIDE,
    FolderTaken,
    SpoolDisk,
    open_folder,
)
from hermes_actors.fallback.spool.format import (
    CLAIM_BYTES,
    FRAME_OVERHEAD_BYTES,
    HEADER_BYTES,
    NO_CLAIM,
    TABLE_NAME,
    Claim,
    Kind,
    SegmentName,
    encode_claim,
    encode_done,
    frames,
    header,
    read_frame,
)
from hermes_actors.fallback.spool.index import Place
from hermes_actors.fallback.spool.loading import Loaded, SegmentFile, keep_aside, load
from hermes_actors.runtime.clock import IdSource

_logger = logging.getLogger(__name__)

_CLOSE_GRACE_S = 5.0
_GAP_BYTES_MAX = 16_384
_STRETCH_BYTES_MAX = 4_194_304
_READING_THREADS = 2
_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.1


class SpoolUnavailable(Unavailable):
    """The spool did not take it; `reason` is `full`, `disk`, `slow` or `closed`. `may_be_kept`: the
    disk may have it all the same, and the next start would find it.
    """

    def __init__(self, reason: str, message: str, *, may_be_kept: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.may_be_kept = may_be_kept


Blocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""How to run what blocks: in a thread, or, on a simulated disk, at once."""


@dataclass(eq=False)
class SegmentStore:
    """Keeps entries in segments on a disk. Calls may overlap.

    `run_write` runs what changes the disk, one at a time; `run_read` what reads it. A segment ends
    at the first batch that makes it longer than `segment_bytes_max`.
    """

    disk: SpoolDisk
    ids: IdSource
    segment_bytes_max: int
    run_write: Blocking
    run_read: Blocking
    accepts_damage: bool = False

    def __post_init__(self) -> None:
        self._segments: dict[int, SegmentFile] = {}
        self._active: SegmentFile | None = None
        self._last = 0
        self._beside_bytes = 0
        self._lost = ""

    @property
    def size_bytes(self) -> int:
        """The bytes that it takes on the disk, with what was set aside."""
        return sum([each.size_bytes for each in self._segments.values()]) + self._beside_bytes

    async def load(self) -> Loaded:
        """Load what an earlier process left. Call once, first. Raises StartupError, DamageFound."""
        loaded: Loaded = await self.run_write(
            partial(load, self.disk, accepts_damage=self.accepts_damage)
        )
        self._segments = loaded.segments
        self._last = loaded.last
        self._beside_bytes = loaded.set_aside_bytes
        return loaded

    async def append(self, payloads: Sequence[bytes]) -> list[Place]:
        """Keep all of these, or raise SpoolUnavailable; then, or when cancelled, some may be there.

        When this returns they are on the disk (fsync).
        """
        if self._lost:
            raise SpoolUnavailable("disk", self._lost)
        segment = self._active
        if segment is None or segment.size_bytes >= self.segment_bytes_max:
            segment = await self._begin()
        name, at = segment.name, segment.size_bytes
        content, starts = frames(Kind.ENTRY, payloads, at, name.salt)
        # Should it be cut short, or fail, nobody knows what the file holds: nothing follows there.
        self._active = None
        segment.size_bytes += len(content)
        entries = segment.entries + len(payloads)
        claim = Claim(name, segment.size_bytes, entries)
        await self._change(partial(self._append, segment, at, content, claim))
        segment.entries = entries
        self._active = segment
        return [
            Place(name.number, start, FRAME_OVERHEAD_BYTES + len(payload))
            for start, payload in zip(starts, payloads, strict=True)
        ]

    async def read(self, places: Sequence[Place]) -> list[bytes | None]:
        """Return the bytes at each place; None for what the disk does not give back as it was
        written.

        Raises SpoolUnavailable when it may give it back another time.
        """
        # As they are now: a segment may be deleted while this runs.
        names = {number: segment.name for number, segment in self._segments.items()}
        read: list[bytes | None] = await _done(
            self.run_read, partial(self._read_all, places, names)
        )
        return read

    async def copy_aside(self, place: Place) -> None:
        """Keep, for people, what can be read of a damaged entry. Raises SpoolUnavailable."""
        segment = self._segments.get(place.segment)
        if segment is None:
            return
        name = segment.name

        def copy() -> None:
            try:
                content = self.disk.read(name.entries, place.at, place.size_bytes)
            except OSError as error:
                content = b""
                _logger.error("spool: %s at %d is lost: %s", name.entries, place.at, error)
            self._beside_bytes += keep_aside(self.disk, name, place.at, content, "unreadable")

        await self._change(copy)

    async def mark_done(self, places: Sequence[Place]) -> None:
        """Mark entries that `load` need not find any more. A crash may undo it. Raises
        SpoolUnavailable.
        """
        marks: dict[SegmentName, list[int]] = {}
        for place in places:
            if segment := self._segments.get(place.segment):
                marks.setdefault(segment.name, []).append(place.at)
        await self._change(partial(self._mark_done, marks))

    async def set_aside(self, reason: str, lines: bytes) -> None:
        """Keep these lines for people. On the disk when this returns. Raises SpoolUnavailable."""
        await self._change(partial(self._add_lines, f"{reason}.jsonl", lines))

    def sealed(self) -> list[tuple[int, int]]:
        """(number, size in bytes) of each segment to which nothing is added any more."""
        return [
            (number, segment.size_bytes)
            for number, segment in self._segments.items()
            if segment is not self._active and not segment.is_retained
        ]

    async def seal(self) -> None:
        """Begin another segment at the next append."""
        segment, self._active = self._active, None
        if segment is not None:
            await self.run_write(partial(self.disk.release, segment.name.entries))

    async def prepare(self) -> None:
        """Begin a segment now, if need be, not at the next append. Raises SpoolUnavailable."""
        if self._active is None:
            await self._begin()

    async def delete(self, number: int) -> None:
        """Delete a sealed segment. Raises SpoolUnavailable."""
        segment = self._segments[number]
        assert segment is not self._active, "a segment is sealed first"

        def delete() -> None:
            if segment.listed is not None:
                # First: what is not there is not missed.
                self._list(segment.listed, None)
            # The marks last: without them the entries would be sent again.
            self.disk.delete(segment.name.entries)
            self.disk.delete(segment.name.done)

        await self._change(delete)
        del self._segments[number]

    async def lost(self) -> str:
        """Why nothing is kept any more: others took its files away; "" while they are there."""
        if not self._lost:
            name = await self.run_read(self.disk.lost_file)
            if name:
                self._lost = (
                    f"the spool's {name} was deleted, moved or replaced while the node ran: "
                    "nothing more is kept; start the node again, which says what is missing"
                )
        return self._lost

    async def _begin(self) -> SegmentFile:
        await self.seal()
        self._last += 1
        name = SegmentName(self._last, self.ids.message_id().replace("-", "")[:16])
        taken = {each.listed for each in self._segments.values()}
        listed = next(each for each in range(len(taken) + 1) if each not in taken)

        def begin() -> None:
            # Listed first: a segment that says that it is listed is.
            self._list(listed, Claim(name, HEADER_BYTES, 0))
            self.disk.create(name.entries, header(name.salt, is_listed=True))

        await self._change(begin)
        segment = self._segments[name.number] = SegmentFile(name, HEADER_BYTES, listed)
        self._active = segment
        return segment

    async def _change(self, work: Callable[[], None]) -> None:
        await _done(self.run_write, work)

    # What follows blocks, and runs by `run_write` or `run_read`.

    def _list(self, listed: int, claim: Claim | None, *, syncs: bool = True) -> None:
        content = NO_CLAIM if claim is None else encode_claim(claim)
        self.disk.write_at(TABLE_NAME, listed * CLAIM_BYTES, content, syncs=syncs)

    def _append(self, segment: SegmentFile, at: int, content: bytes, claim: Claim) -> None:
        name = segment.name.entries
        try:
            self.disk.append(name, content, syncs=True)
        except OSError as error:
            # What was refused should not be sent. If this fails too, it will be, after a restart:
            # its publisher is told that it may be stored.
            try:
                self.disk.truncate(name, at)
            except OSError as uncut:
                _logger.warning("spool: %s could not be cut at %d: %s", name, at, uncut)
                raise _unavailable(error, may_be_kept=True) from error
            finally:
                self.disk.release(name)
            raise
        # Should it fail, less is claimed than is there.
        assert segment.listed is not None, "begun by this process"
        with suppress(OSError):
            self._list(segment.listed, claim, syncs=False)

    def _add_lines(self, file: str, lines: bytes) -> None:
        name = f"{SET_ASIDE}/{file}"
        size_bytes = dict(self.disk.names(SET_ASIDE)).get(file, 0)
        if size_bytes and self.disk.read(name, size_bytes - 1) != b"\n":
            # Its last line was cut short, by a crash or a full disk.
            lines = b"\n" + lines
        self.disk.append(name, lines, syncs=True)
        self._beside_bytes += len(lines)

    def _mark_done(self, marks: dict[SegmentName, list[int]]) -> None:
        sizes = dict(self.disk.names())
        for name, starts in marks.items():
            at = sizes.get(name.done, 0)
            # Of a header that was cut short the rest.
            start = header(name.salt)[at:]
            at = max(at, HEADER_BYTES)
            mark, _places = frames(Kind.DONE, [encode_done(starts)], at, name.salt)
            self.disk.append(name.done, start + mark, syncs=False)

    def _read_all(
        self, places: Sequence[Place], names: Mapping[int, SegmentName]
    ) -> list[bytes | None]:
        found: list[bytes | None] = []
        for stretch in _stretches(places):
            name = names.get(stretch[0].segment)
            found += [None] * len(stretch) if name is None else self._read_stretch(stretch, name)
        return found

    def _read_stretch(self, places: Sequence[Place], name: SegmentName) -> list[bytes | None]:
        """Read the places at once, though a little of what lies between may not be wanted."""
        start, last = places[0].at, places[-1]
        try:
            data = self.disk.read(name.entries, start, last.at + last.size_bytes - start)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EIO):
                raise  # Too many open files, say: nothing is wrong with the entries.
            if len(places) > 1:
                return [each for place in places for each in self._read_stretch([place], name)]
            _logger.warning("spool: %s at %d cannot be read: %s", name.entries, start, error)
            return [None]
        found: list[bytes | None] = []
        for place in places:
            at = place.at - start
            found.append(read_frame(data[at : at + place.size_bytes], place.at, name.salt))
        return found


def _stretches(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Give the places in groups that lie so near behind each other that one read gets them all."""
    stretch: list[Place] = []
    for place in places:
        if stretch:
            first, last = stretch[0], stretch[-1]
            gap_bytes = place.at - last.at - last.size_bytes
            if (
                place.segment != first.segment
                or not 0 <= gap_bytes <= _GAP_BYTES_MAX
                or place.at + place.size_bytes - first.at > _STRETCH_BYTES_MAX
            ):
                yield stretch
                stretch = []
        stretch.append(place)
    if stretch:
        yield stretch


async def _done(run: Blocking, work: Callable[[], Any]) -> Any:
    """Return the result of this work. Raises SpoolUnavailable when the disk fails."""
    try:
        return await run(work)
    except OSError as error:
        raise _unavailable(error) from error


def _unavailable(error: OSError, *, may_be_kept: bool = False) -> SpoolUnavailable:
    reason = "full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk"
    return SpoolUnavailable(reason, f"the spool's disk: {error}", may_be_kept=may_be_kept)


async def _open_folder(folder: Path) -> SpoolDisk:
    tries = _LOCK_TRIES
    while True:
        try:
            return await trio.to_thread.run_sync(open_folder, folder)
        except FolderTaken:
            tries -= 1
            if not tries:
                raise
            await trio.sleep(_LOCK_PAUSE_S)


@asynccontextmanager
async def open_segment_store(
    folder: Path,
    ids: IdSource,
    *,
    segment_bytes_max: int,
    accepts_damage: bool = False,
) -> AsyncIterator[SegmentStore]:
    """The spool kept in a folder, which is made when it is not there.

    `accepts_damage`: loaded although acknowledged messages are missing. Raises StartupError when
    the folder cannot be used or another process uses it.
    """
    disk = await _open_folder(folder)
    writing, reading = trio.CapacityLimiter(1), trio.CapacityLimiter(_READING_THREADS)

    def in_thread(limiter: trio.CapacityLimiter) -> Blocking:
        # A hung disk must not keep a process from ending. The next write waits for an abandoned
        # one all the same: its thread still has the limiter's token.
        return partial(trio.to_thread.run_sync, abandon_on_cancel=True, limiter=limiter)

    try:
        yield SegmentStore(
            disk,
            ids,
            segment_bytes_max=segment_bytes_max,
            run_write=in_thread(writing),
            run_read=in_thread(reading),
            accepts_damage=accepts_damage,
        )
    finally:
        # Files that a hung write may still use stay open: the process ends.
        with trio.move_on_after(_CLOSE_GRACE_S, shield=True):
            await in_thread(writing)(disk.close)
