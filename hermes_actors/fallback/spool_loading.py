"""What an earlier process left in a spool: entries that are not done, and damage, set aside.

All of it blocks, and runs in a thread.
"""

import logging

from msgspec import Struct, field

from hermes_actors.errors import StartupError
from hermes_actors.fallback.spool_disk import SET_ASIDE, Disk
from hermes_actors.fallback.spool_format import (
    FRAME_OVERHEAD_BYTES,
    HEADER_BYTES,
    Frame,
    Kind,
    SegmentName,
    UndecodableEntry,
    UnknownVersion,
    check_header,
    decode_done,
    decode_entry,
    parse_name,
    scan,
)
from hermes_actors.fallback.spool_index import Place

_logger = logging.getLogger(__name__)


class Found(Struct, frozen=True, gc=False):
    """An entry that an earlier process left, without its body."""

    place: Place
    sequence: int
    topic: str
    log_topic: str
    incarnation: int
    spooled_at_ms: int
    key: bytes | None


class Loaded(Struct):
    """What was found, entries in the order in which they came; and how many ranges were corrupt,
    torn, or whole but no entries.

    `segments` are the files with their sizes, `last` the highest number ever seen. What was damaged
    in a `retained` one could not be set aside, so that file is left for the next start.
    """

    entries: list[Found] = field(default_factory=list)
    segments: dict[SegmentName, int] = field(default_factory=dict)
    last: int = 0
    retained: set[int] = field(default_factory=set)
    set_aside_bytes: int = 0
    corrupt: int = 0
    torn: int = 0
    undecodable: int = 0


def load(disk: Disk) -> Loaded:
    """Read everything. Raises StartupError for what cannot be read, and for a newer version."""
    loaded = Loaded()
    try:
        loaded.set_aside_bytes = sum(size for _name, size in disk.names(SET_ASIDE))
        kinds: dict[SegmentName, set[str]] = {}
        for file, _size in disk.names():
            parsed = parse_name(file)
            if parsed is not None:
                kinds.setdefault(parsed[0], set()).add(parsed[1])
        for name in sorted(kinds):
            loaded.last = max(loaded.last, name.number)
            if "spool" in kinds[name]:
                _load_segment(disk, name, "done" in kinds[name], loaded)
            else:
                # A crash came between the two deletions.
                disk.delete(name.done)
    except OSError as error:
        raise StartupError(
            f"spool.directory: what an earlier run left cannot be read: {error}; repair the "
            "disk, or move the folder away and start without it"
        ) from error
    # Segments that were copied together hold an entry twice until the old one is deleted.
    by_sequence = {each.sequence: each for each in loaded.entries}
    loaded.entries = [by_sequence[sequence] for sequence in sorted(by_sequence)]
    return loaded


def keep_aside(disk: Disk, name: SegmentName, at: int, content: bytes, reason: str) -> int:
    """Set bytes of a segment aside; how many, 0 if that was done at an earlier start.

    Raises OSError.
    """
    file = f"{reason}-{name.number:010}-{at}.bin"
    if dict(disk.names(SET_ASIDE)).get(file, -1) >= len(content):
        return 0
    disk.append(f"{SET_ASIDE}/{file}", content, syncs=True)
    return len(content)


def _load_segment(disk: Disk, name: SegmentName, has_marks: bool, loaded: Loaded) -> None:
    data = disk.read(name.entries)
    loaded.segments[name] = len(data)
    try:
        is_whole = check_header(data) or len(data) < HEADER_BYTES
    except UnknownVersion as error:
        raise StartupError(
            f"spool.directory: {name.entries} has {error}; start the newer version until the "
            "spool is empty, or move the file away"
        ) from error
    if not is_whole:
        _set_aside(disk, name, 0, data[:HEADER_BYTES], "corrupt", loaded)
    done = _done_in(disk, name) if has_marks else set()
    found, damages = scan(data, name.salt)
    for frame in found:
        if frame.kind == Kind.ENTRY and frame.at not in done:
            _take(disk, name, frame, loaded)
    for damage in damages:
        if not damage.is_torn:
            _set_aside(disk, name, damage.at, data[damage.at : damage.end], "corrupt", loaded)
            continue
        loaded.torn += 1
        _logger.warning(
            "spool: the last %d bytes of %s were not written whole when the node stopped; none of "
            "them was acknowledged",
            damage.end - damage.at,
            name.entries,
        )


def _done_in(disk: Disk, name: SegmentName) -> set[int]:
    done: set[int] = set()
    for mark in scan(disk.read(name.done), name.salt)[0]:
        if mark.kind == Kind.DONE:
            done.update(decode_done(mark.payload))
    return done


def _take(disk: Disk, name: SegmentName, frame: Frame, loaded: Loaded) -> None:
    try:
        sequence, entry = decode_entry(frame.payload)
    except UndecodableEntry:
        _set_aside(disk, name, frame.at, frame.payload, "undecodable", loaded)
        return
    loaded.entries.append(
        Found(
            Place(name.number, frame.at, FRAME_OVERHEAD_BYTES + len(frame.payload)),
            sequence,
            entry.topic,
            entry.log_topic,
            entry.incarnation,
            entry.spooled_at_ms,
            entry.message.key,
        )
    )


def _set_aside(
    disk: Disk, name: SegmentName, at: int, content: bytes, reason: str, loaded: Loaded
) -> None:
    _logger.error(
        "spool: %d bytes of %s at %d are %s; set aside", len(content), name.entries, at, reason
    )
    try:
        kept_bytes = keep_aside(disk, name, at, content, reason)
    except OSError as error:
        _logger.error("spool: they could not be set aside yet: %s", error)
        loaded.retained.add(name.number)
        return
    loaded.set_aside_bytes += kept_bytes
    if kept_bytes and reason == "corrupt":
        loaded.corrupt += 1
    elif kept_bytes:
        loaded.undecodable += 1
