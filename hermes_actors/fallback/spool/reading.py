"""Reads a spool's folder from outside, without changing it; the node may be running."""

from collections import Counter
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes_actors.fallback.spool.disk import LOCK_NAME, SpoolDisk
from hermes_actors.fallback.spool.store import SET_ASIDE, read_segments
from hermes_actors.log.folder import holder_of


class TopicSpooled(Struct, rename="camel"):
    """One topic's waiting entries. `oldest_ms` is when its oldest message arrived (Unix epoch)."""

    topic: str
    entries: int
    size_bytes: int
    oldest_ms: int


class SpoolContent(Struct, rename="camel"):
    """The content of a folder. `pid` is the process that uses it; empty string if none does.
    `set_aside` counts messages by reason; `damaged` counts unreadable places, each of at least one
    message; `unknown` counts messages that only a newer version can send.
    """

    folder: str
    pid: str
    entries: int
    size_bytes: int
    disk_bytes: int
    oldest_ms: int | None
    topics: list[TopicSpooled]
    set_aside: dict[str, int]
    damaged: int
    unknown: int = 0


def read_spool(folder: Path) -> SpoolContent:
    """Return the entries of this folder; none if it does not exist. Raises OSError."""
    disk = SpoolDisk(folder, None)
    topics: dict[str, TopicSpooled] = {}
    damaged = unknown = 0
    for _segment, scanned in read_segments(disk):
        damaged += scanned.damaged
        unknown += scanned.unknown
        for _at, size_bytes, entry in scanned.waiting:
            new = TopicSpooled(entry.topic, 0, 0, entry.spooled_at_ms)
            spooled = topics.setdefault(entry.topic, new)
            spooled.entries += 1
            spooled.size_bytes += size_bytes
            spooled.oldest_ms = min(spooled.oldest_ms, entry.spooled_at_ms)
    listed = sorted(topics.values(), key=lambda each: each.topic)
    return SpoolContent(
        folder=str(folder),
        pid=holder_of(folder / LOCK_NAME),
        entries=sum(each.entries for each in listed),
        size_bytes=sum(each.size_bytes for each in listed),
        disk_bytes=sum(disk.sizes().values()),
        oldest_ms=min((each.oldest_ms for each in listed), default=None),
        topics=listed,
        set_aside=_count_set_aside(folder),
        damaged=damaged,
        unknown=unknown,
    )


class _SetAside(Struct):
    reason: str


def _count_set_aside(folder: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    decoder = msgspec.json.Decoder(_SetAside)
    # Line by line: the file may be as large as the spool.
    with suppress(FileNotFoundError), (folder / SET_ASIDE).open("rb") as lines:
        for line in lines:
            # A crash may have cut a line short.
            with suppress(msgspec.DecodeError):
                counts[decoder.decode(line).reason] += 1
    return dict(sorted(counts.items()))
