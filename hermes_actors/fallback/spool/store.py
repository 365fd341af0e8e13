"""Where the spool's entries lie: what `append` has returned for is found by every later `load`.

Segments are written by one process and never written again by another one: a process that starts
begins a segment of its own. A segment is deleted when none of its entries is needed.
"""

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from hermes_actors.errors import Unavailable
from hermes_actors.fallback.spool.acknowledged import (
    FREE,
    PLACE_BYTES,
    TABLE_NAME,
    Claim,
    encode_claim,
)
from hermes_actors.fallback.spool.disk import (
    SET_ASIDE,
    Disk,
    FolderDisk,
    FolderTaken,
    open_folder,
)
from hermes_actors.fallback.spool.format import (
    FRAME_OVERHEAD_BYTES,
    HEADER_BYTES,
    Kind,
    SegmentName,
    SpoolEntry,
    encode_done,
    frame,
    frames,
    header,
    read_frame,
)
from hermes_actors.fallback.spool.index import Place
from hermes_actors.fallback.spool.loading import Loaded, keep_aside, load
from hermes_actors.runtime.clock import IdSource

_logger = logging.getLogger(__name__)

_CLOSE_GRACE_S = 5.0
_GAP_BYTES_MAX = 16_384
_STRETCH_BYTES_MAX = 4_194_304
_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.1


class SpoolUnavailable(Unavailable):
    """The spool did not take it; `reason` is `full`, `disk`, `slow` or `closed`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SpoolStore(Protocol):
    """Keeps entries. All methods but the properties wait; calls may overlap."""

    @property
    def size_bytes(self) -> int:
        """What it takes on the disk, with what was set aside."""

    async def load(self) -> Loaded:
        """What an earlier process left. Call it once, first. Raises StartupError, DamageFound."""

    async def append(self, payloads: Sequence[bytes]) -> list[Place]:
        """Keep all of these, or raise SpoolUnavailable; then, or when cancelled, some may be there.

        When this returns they are on the disk (fsync).
        """

    async def read(self, places: Sequence[Place]) -> list[bytes | None]:
        """What lies there; None for what the disk does not give back as it was written.

        Raises SpoolUnavailable when it may give it back another time.
        """

    async def copy_aside(self, place: Place) -> None:
        """Keep, for people, what can be read of a damaged entry. Raises SpoolUnavailable."""

    async def mark_done(self, places: Sequence[Place]) -> None:
        """`load` need not find these any more. A crash may undo it. Raises SpoolUnavailable."""

    async def set_aside(self, reason: str, lines: bytes) -> None:
        """Keep these lines for people. On the disk when this returns. Raises SpoolUnavailable."""

    def sealed(self) -> list[tuple[int, int]]:
        """(number, size in bytes) of each segment to which nothing is added any more."""

    async def seal(self) -> None:
        """Begin another segment at the next append."""

    async def prepare(self) -> None:
        """Begin a segment now, if need be, not at the next append. Raises SpoolUnavailable."""

    async def delete(self, segment: int) -> None:
        """Delete a sealed segment. Raises SpoolUnavailable."""

    async def lost(self) -> str:
        """Why nothing is kept any more: others took its files away; "" while they are there."""


Blocking = Callable[[Callable[[], Any]], Awaitable[Any]]
"""How to run what blocks: in a thread, or, on a simulated disk, at once."""


class SegmentStore:
    """Satisfies `SpoolStore`, in segments on a disk.

    `write` runs what changes the disk, one at a time; `read` what reads it. A segment ends at the
    first batch that makes it longer than `segment_bytes_max`.
    """

    def __init__(
        self,
        disk: Disk,
        ids: IdSource,
        *,
        segment_bytes_max: int,
        write: Blocking,
        read: Blocking,
        accepts_damage: bool = False,
    ) -> None:
        self._disk = disk
        self._accepts_damage = accepts_damage
        self._ids = ids
        self._segment_bytes_max = segment_bytes_max
        self._write = write
        self._read = read
        self._names: dict[int, SegmentName] = {}
        self._sizes: dict[int, int] = {}
        self._active: int | None = None
        self._last = 0
        self._retained: set[int] = set()
        self._beside_bytes = 0
        # Of each segment that is listed: its place, and what it claims there.
        self._places: dict[int, int] = {}
        self._claims: dict[int, Claim] = {}
        self._lost = ""

    @property
    def size_bytes(self) -> int:
        """As `SpoolStore.size_bytes`."""
        return sum(self._sizes.values()) + self._beside_bytes

    async def load(self) -> Loaded:
        """As `SpoolStore.load`."""
        loaded: Loaded = await self._write(
            partial(load, self._disk, accepts_damage=self._accepts_damage)
        )
        for place, claim in loaded.claims.items():
            self._places[claim.name.number] = place
            self._claims[claim.name.number] = claim
        for name, size_bytes in loaded.segments.items():
            self._names[name.number] = name
            self._sizes[name.number] = size_bytes
        self._last = loaded.last
        self._retained = loaded.retained
        self._beside_bytes = loaded.set_aside_bytes
        return loaded

    async def append(self, payloads: Sequence[bytes]) -> list[Place]:
        """As `SpoolStore.append`."""
        if self._lost:
            raise SpoolUnavailable("disk", self._lost)
        number = self._active
        if number is None or self._sizes[number] >= self._segment_bytes_max:
            number = await self._begin()
        name, at = self._names[number], self._sizes[number]
        content, starts = frames(Kind.ENTRY, payloads, at, name.salt)
        # Should it be cut short, or fail, nobody knows what the file holds: nothing follows there.
        self._active = None
        self._sizes[number] = at + len(content)
        before, place = self._claims[number], self._places[number]
        claim = Claim(name, at + len(content), before.entries + len(payloads))
        try:
            await self._write(
                partial(self._append, name.entries, at, content, place, encode_claim(claim))
            )
        except OSError as error:
            raise _unavailable(error) from error
        self._claims[number] = claim
        self._active = number
        return [
            Place(number, start, FRAME_OVERHEAD_BYTES + len(payload))
            for start, payload in zip(starts, payloads, strict=True)
        ]

    async def read(self, places: Sequence[Place]) -> list[bytes | None]:
        """As `SpoolStore.read`."""
        known = [self._names.get(place.segment) for place in places]
        try:
            read: list[bytes | None] = await self._read(partial(self._read_all, places, known))
        except OSError as error:
            raise _unavailable(error) from error
        return read

    async def copy_aside(self, place: Place) -> None:
        """As `SpoolStore.copy_aside`."""
        name = self._names.get(place.segment)
        if name is None:
            return

        def copy() -> None:
            try:
                content = self._disk.read(name.entries, place.at, place.size_bytes)
            except OSError as error:
                content = b""
                _logger.error("spool: %s at %d is lost: %s", name.entries, place.at, error)
            self._beside_bytes += keep_aside(self._disk, name, place.at, content, "unreadable")

        try:
            await self._write(copy)
        except OSError as error:
            raise _unavailable(error) from error

    async def mark_done(self, places: Sequence[Place]) -> None:
        """As `SpoolStore.mark_done`."""
        by_segment: dict[int, list[int]] = {}
        for place in places:
            if place.segment in self._names:
                by_segment.setdefault(place.segment, []).append(place.at)
        marks = [(self._names[number], starts) for number, starts in by_segment.items()]
        try:
            await self._write(partial(self._mark_done, marks))
        except OSError as error:
            raise _unavailable(error) from error

    async def set_aside(self, reason: str, lines: bytes) -> None:
        """As `SpoolStore.set_aside`."""
        try:
            await self._write(partial(self._add_lines, f"{reason}.jsonl", lines))
        except OSError as error:
            raise _unavailable(error) from error

    def sealed(self) -> list[tuple[int, int]]:
        """As `SpoolStore.sealed`."""
        kept = {self._active} | self._retained
        return [(number, size) for number, size in self._sizes.items() if number not in kept]

    async def seal(self) -> None:
        """As `SpoolStore.seal`."""
        number, self._active = self._active, None
        if number is not None:
            await self._write(partial(self._disk.release, self._names[number].entries))

    async def prepare(self) -> None:
        """As `SpoolStore.prepare`."""
        if self._active is None:
            await self._begin()

    async def delete(self, segment: int) -> None:
        """As `SpoolStore.delete`."""
        assert segment != self._active, "a segment is sealed first"
        name = self._names[segment]
        place = self._places.get(segment)

        def delete() -> None:
            if place is not None:
                # First: what is not there is not missed.
                self._disk.write_at(TABLE_NAME, place * PLACE_BYTES, FREE, syncs=True)
            # The marks last: without them the entries would be sent again.
            self._disk.delete(name.entries)
            self._disk.delete(name.done)

        try:
            await self._write(delete)
        except OSError as error:
            raise _unavailable(error) from error
        for known in (self._names, self._sizes, self._places, self._claims):
            known.pop(segment, None)

    async def lost(self) -> str:
        """As `SpoolStore.lost`."""
        if not self._lost:
            name = await self._read(self._disk.lost_file)
            if name:
                self._lost = (
                    f"the spool's {name} was deleted, moved or replaced while the node ran: "
                    "nothing more is kept; start the node again, which says what is missing"
                )
        return self._lost

    async def _begin(self) -> int:
        await self.seal()
        self._last += 1
        number = self._last
        name = SegmentName(number, self._ids.message_id().replace("-", "")[:16])
        claim = Claim(name, HEADER_BYTES, 0)
        taken = set(self._places.values())
        place = next(each for each in range(len(taken) + 1) if each not in taken)

        def begin() -> None:
            # Listed first: a segment that says that it is listed is.
            self._disk.write_at(TABLE_NAME, place * PLACE_BYTES, encode_claim(claim), syncs=True)
            self._disk.create(name.entries, header(name.salt, is_listed=True))

        try:
            await self._write(begin)
        except OSError as error:
            raise _unavailable(error) from error
        self._places[number], self._claims[number] = place, claim
        self._names[number] = name
        self._sizes[number] = HEADER_BYTES
        self._active = number
        return number

    # What follows blocks, and runs by `write` or `read`.

    def _append(self, name: str, at: int, content: bytes, place: int, claim: bytes) -> None:
        try:
            self._disk.append(name, content, syncs=True)
        except OSError:
            # What was refused should not be sent. If this fails too, it will be, after a restart:
            # its publisher was told that it may be stored.
            try:
                self._disk.truncate(name, at)
            except OSError as error:
                _logger.warning("spool: %s could not be cut at %d: %s", name, at, error)
            self._disk.release(name)
            raise
        # Should it fail, less is claimed than is there.
        with suppress(OSError):
            self._disk.write_at(TABLE_NAME, place * PLACE_BYTES, claim, syncs=False)

    def _add_lines(self, file: str, lines: bytes) -> None:
        name = f"{SET_ASIDE}/{file}"
        size_bytes = dict(self._disk.names(SET_ASIDE)).get(file, 0)
        if size_bytes and self._disk.read(name, size_bytes - 1) != b"\n":
            # Its last line was cut short, by a crash or a full disk.
            lines = b"\n" + lines
        self._disk.append(name, lines, syncs=True)
        self._beside_bytes += len(lines)

    def _mark_done(self, marks: list[tuple[SegmentName, list[int]]]) -> None:
        sizes = dict(self._disk.names())
        for name, starts in marks:
            at = sizes.get(name.done, 0)
            start = b""
            if at == 0:
                start = header(name.salt)
                at = HEADER_BYTES
            mark = frame(Kind.DONE, encode_done(starts), at, name.salt)
            self._disk.append(name.done, start + mark, syncs=False)

    def _read_all(
        self, places: Sequence[Place], names: Sequence[SegmentName | None]
    ) -> list[bytes | None]:
        found: list[bytes | None] = []
        for begin, end in _stretches(places):
            stretch, name = places[begin:end], names[begin]
            found += [None] * len(stretch) if name is None else self._read_stretch(stretch, name)
        return found

    def _read_stretch(self, places: Sequence[Place], name: SegmentName) -> list[bytes | None]:
        """With one read, though a little of what lies between may not be wanted."""
        start, last = places[0].at, places[-1]
        try:
            data = self._disk.read(name.entries, start, last.at + last.size_bytes - start)
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
            frame = read_frame(data[at : at + place.size_bytes], place.at, name.salt)
            found.append(None if frame is None else frame.payload)
        return found


def _stretches(places: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """Which of them (from, to) lie so near behind each other that one read gets them all."""
    begin = 0
    for number in range(1, len(places) + 1):
        if number < len(places):
            first, before, place = places[begin], places[number - 1], places[number]
            gap_bytes = place.at - before.at - before.size_bytes
            if (
                place.segment == first.segment
                and 0 <= gap_bytes <= _GAP_BYTES_MAX
                and place.at + place.size_bytes - first.at <= _STRETCH_BYTES_MAX
            ):
                continue
        yield begin, number
        begin = number


def _unavailable(error: OSError) -> SpoolUnavailable:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return SpoolUnavailable("full" if is_full else "disk", f"the spool's disk: {error}")


def set_aside_line(reason: str, at_ms: int, entry: SpoolEntry) -> bytes:
    """An entry as a line of JSON; key and body in Base64."""
    line = {
        "reason": reason,
        "setAsideAt": at_ms,
        "topic": entry.topic,
        "logTopic": entry.log_topic,
        "spooledAt": entry.spooled_at_ms,
        "message": entry.message,
    }
    return msgspec.json.encode(line) + b"\n"


async def _open_folder(folder: Path) -> FolderDisk:
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
    reading_threads: int = 2,
    accepts_damage: bool = False,
) -> AsyncIterator[SpoolStore]:
    """The spool kept in a folder, which is made when it is not there.

    `accepts_damage`: loaded although acknowledged messages are missing. Raises StartupError when
    the folder cannot be used or another process uses it.
    """
    disk = await _open_folder(folder)
    writing, reading = trio.CapacityLimiter(1), trio.CapacityLimiter(reading_threads)

    def in_thread(limiter: trio.CapacityLimiter) -> Blocking:
        # A hung disk must not keep a process from ending. The next write waits for an abandoned
        # one all the same: its thread still has the limiter's token.
        return partial(trio.to_thread.run_sync, abandon_on_cancel=True, limiter=limiter)

    try:
        yield SegmentStore(
            disk,
            ids,
            segment_bytes_max=segment_bytes_max,
            write=in_thread(writing),
            read=in_thread(reading),
            accepts_damage=accepts_damage,
        )
    finally:
        # Files that a hung write may still use stay open: the process ends.
        with trio.move_on_after(_CLOSE_GRACE_S, shield=True):
            await in_thread(writing)(disk.close)


async def append_within(
    store: SpoolStore, payloads: Sequence[bytes], timeout_s: float
) -> list[Place] | None:
    """`store.append`; None when that takes too long. That the process stood still is not that."""
    places: list[Place] | None = None
    failure: SpoolUnavailable | None = None

    async def give_up(scope: trio.CancelScope) -> None:
        # In two halves: a pause of the process ends only one of them, and a disk that works has
        # the other.
        for _half in range(2):
            await trio.sleep(timeout_s / 2)
        scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up, nursery.cancel_scope)
        try:
            places = await store.append(payloads)
        except SpoolUnavailable as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return places
