"""Reads a spool's folder from outside: the node may run, and nothing is changed."""

from collections import Counter
from pathlib import Path

from msgspec import Struct

from hermes_actors.fallback.spool.disk import LOCK_NAME, SET_ASIDE, SpoolDisk
from hermes_actors.fallback.spool.format import TABLE_NAME
from hermes_actors.fallback.spool.loading import (
    aside_name,
    find_losses,
    read_if_there,
    read_segments,
)
from hermes_actors.log.folder import holder_of


class TopicSpooled(Struct, rename="camel"):
    """One topic's waiting entries. `oldest_ms` is when its oldest message came, Unix epoch."""

    topic: str
    entries: int
    size_bytes: int
    oldest_ms: int


class SpoolContent(Struct, rename="camel"):
    """A folder. `pid` is the process that has it, "" when none has. `set_aside`: by reason.

    `damaged_ranges` are those that no start has set aside yet. `losses`, in words, are what refuses
    the next start, and `missing` the messages that it is about.
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
    missing: int
    losses: list[str]

    @property
    def damage(self) -> str:
        """The reason why the next start is refused, and the way out; "" when it is not."""
        if not self.losses:
            return ""
        lost = "1 message" if self.missing == 1 else f"{self.missing} messages"
        return (
            f"damaged: {lost if self.missing else f'the list {TABLE_NAME}, and no message'}. The "
            "node will not start: restore the folder from a copy, or start once with "
            "--accept-damage"
        )


def read_spool(folder: Path) -> SpoolContent:
    """Return what waits in this folder; nothing where there is no such folder.

    Raises OSError, and StartupError for what a newer version has written.
    """
    disk = SpoolDisk(folder, None)
    topics: dict[str, TopicSpooled] = {}
    seen: set[int] = set()
    table = read_if_there(disk, TABLE_NAME)
    read = read_segments(disk)
    losses = find_losses(disk, table, read, read_if_there(disk, TABLE_NAME))
    for segment in read.values():
        for found in segment.waiting:
            if found.sequence in seen:
                continue
            seen.add(found.sequence)
            spooled = topics.setdefault(
                found.topic, TopicSpooled(found.topic, 0, 0, found.spooled_at_ms)
            )
            spooled.entries += 1
            spooled.size_bytes += found.place.size_bytes
            spooled.oldest_ms = min(spooled.oldest_ms, found.spooled_at_ms)
    names, beside = disk.names(), disk.names(SET_ASIDE)
    listed = sorted(topics.values(), key=lambda each: each.topic)
    return SpoolContent(
        folder=str(folder),
        pid=holder_of(folder / LOCK_NAME),
        entries=len(seen),
        size_bytes=sum(each.size_bytes for each in listed),
        disk_bytes=sum(size for _name, size in names + beside),
        oldest_ms=min((each.oldest_ms for each in listed), default=None),
        topics=listed,
        set_aside=_count_set_aside(disk, [name for name, _size in beside]),
        damaged_ranges=sum(
            aside_name(name, at, reason) not in dict(beside)
            for name, segment in read.items()
            for at, _end, reason in segment.spoilt
        ),
        missing=losses.missing,
        losses=losses.reasons,
    )


def _count_set_aside(disk: SpoolDisk, names: list[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if suffix == "jsonl":
            counts[stem] += disk.read(f"{SET_ASIDE}/{name}").count(b"\n")
        else:
            counts[stem.partition("-")[0]] += 1
    return dict(sorted(counts.items()))
