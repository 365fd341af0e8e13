"""What lies in a spool's folder, read from outside: the node may run, and nothing is changed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from hermes_actors.fallback.spool_disk import SET_ASIDE, FolderDisk, holder_of
from hermes_actors.fallback.spool_format import (
    FRAME_OVERHEAD_BYTES,
    Kind,
    SegmentName,
    UndecodableEntry,
    decode_done,
    decode_entry,
    parse_name,
    scan,
)


class TopicSpooled(Struct, rename="camel"):
    """What waits of one topic. `oldest_ms` is when its oldest message came, Unix epoch."""

    topic: str
    entries: int
    size_bytes: int
    oldest_ms: int


class SpoolContent(Struct, rename="camel"):
    """A folder. `pid` is the process that has it, "" when none has. `set_aside`: by reason.

    `damaged_ranges` are those that the next start sets aside, if it has not yet.
    """

    folder: str
    pid: str
    entries: int
    size_bytes: int
    disk_bytes: int
    oldest_ms: int | None
    topics: list[TopicSpooled]
    set_aside: dict[str, int]
    damaged_ranges: int


def read_spool(folder: Path) -> SpoolContent:
    """What waits there; nothing where there is no such folder. Raises OSError."""
    disk = FolderDisk(folder, None)
    topics: dict[str, TopicSpooled] = {}
    seen: set[int] = set()
    damaged = 0
    names = disk.names()
    for file, _size in names:
        parsed = parse_name(file)
        if parsed is None or parsed[1] != "spool":
            continue
        found, damages = _read_segment(disk, parsed[0])
        damaged += damages
        for sequence, topic, spooled_at_ms, size_bytes in found:
            if sequence not in seen:
                seen.add(sequence)
                _count(topics, topic, spooled_at_ms, size_bytes)
    beside = disk.names(SET_ASIDE)
    listed = sorted(topics.values(), key=lambda each: each.topic)
    return SpoolContent(
        folder=str(folder),
        pid=holder_of(folder),
        entries=len(seen),
        size_bytes=sum(each.size_bytes for each in listed),
        disk_bytes=sum(size for _name, size in names + beside),
        oldest_ms=min((each.oldest_ms for each in listed), default=None),
        topics=listed,
        set_aside=_count_set_aside(disk, [name for name, _size in beside]),
        damaged_ranges=damaged,
    )


def _read_segment(
    disk: FolderDisk, name: SegmentName
) -> tuple[Iterator[tuple[int, str, int, int]], int]:
    """(sequence, topic, time, bytes) of what waits in it, and how many ranges are damaged."""
    try:
        data = disk.read(name.entries)
    except FileNotFoundError:
        return iter(()), 0  # The node has just deleted it: nothing in it waits.
    done: set[int] = set()
    try:
        marks = disk.read(name.done)
    except FileNotFoundError:
        marks = b""
    for frame in scan(marks, name.salt)[0]:
        if frame.kind == Kind.DONE:
            done.update(decode_done(frame.payload))
    frames, damages = scan(data, name.salt)

    def waiting() -> Iterator[tuple[int, str, int, int]]:
        for frame in frames:
            if frame.kind == Kind.ENTRY and frame.at not in done:
                try:
                    sequence, entry = decode_entry(frame.payload)
                except UndecodableEntry:
                    continue
                size_bytes = FRAME_OVERHEAD_BYTES + len(frame.payload)
                yield sequence, entry.topic, entry.spooled_at_ms, size_bytes

    return waiting(), sum(not damage.is_torn for damage in damages)


def _count(
    topics: dict[str, TopicSpooled], topic: str, spooled_at_ms: int, size_bytes: int
) -> None:
    spooled = topics.setdefault(topic, TopicSpooled(topic, 0, 0, spooled_at_ms))
    spooled.entries += 1
    spooled.size_bytes += size_bytes
    spooled.oldest_ms = min(spooled.oldest_ms, spooled_at_ms)


def _count_set_aside(disk: FolderDisk, names: list[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if suffix == "jsonl":
            counts[stem] += disk.read(f"{SET_ASIDE}/{name}").count(b"\n")
        else:
            counts[stem.partition("-")[0]] += 1
    return dict(sorted(counts.items()))
