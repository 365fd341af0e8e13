"""The manifest: how far each partition is archived, and what was missed or deleted. Pure.

Its size depends on the number of partitions and topics, not of records or runs.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from hermes_spark.snapshot import PartitionRange, Snapshot

VERSION = 1
GAPS_MAX = 100
"""How many gaps of a partition are kept, the newest; older ones are only summed up."""

Ranges = dict[str, dict[str, list[PartitionRange]]]
"""Offsets by datacentre and topic, as in a snapshot, one range for each partition."""


class Gap(Struct, frozen=True):
    """Offsets from `start` up to below `end` that the log no longer had when they were to be
    archived: retention was faster.
    """

    start: int
    end: int
    found_at_ms: int


class ArchivedPartition(Struct, frozen=True):
    """The offsets from `start` up to below `end`, except gaps. `older_gap_offsets` is the sum of
    the gaps that are not kept.
    """

    partition: int
    start: int
    end: int
    gaps: tuple[Gap, ...] = ()
    older_gap_offsets: int = 0

    @property
    def gap_offsets(self) -> int:
        """The number of offsets in all gaps."""
        return self.older_gap_offsets + sum(each.end - each.start for each in self.gaps)

    def with_gap(self, gap: Gap) -> "ArchivedPartition":
        """The partition, continued behind the gap."""
        gaps = (*self.gaps, gap)
        older = sum(each.end - each.start for each in gaps[:-GAPS_MAX])
        return msgspec.structs.replace(
            self,
            end=gap.end,
            gaps=gaps[-GAPS_MAX:],
            older_gap_offsets=self.older_gap_offsets + older,
        )


class ArchivedTopic(Struct, frozen=True):
    """A topic of one datacentre. `records` were archived in total, including deleted ones."""

    records: int = 0
    partitions: tuple[ArchivedPartition, ...] = ()


class Expired(Struct, frozen=True):
    """What was deleted of a topic: all hours before `before` (such as 2030-01-31T12), and the total
    number of hours and records.
    """

    before: str
    hours: int
    records: int


class Manifest(Struct, frozen=True):
    """The state of an archive after commit number `sequence`. `taken_at_ms` is the time of the
    newest archived snapshot; `topics` are by datacentre and name, `expired` by name.
    """

    version: int = VERSION
    sequence: int = 0
    taken_at_ms: int = 0
    topics: dict[str, dict[str, ArchivedTopic]] = {}
    expired: dict[str, Expired] = {}

    def next(self) -> "Manifest":
        """The same manifest with the next commit's number."""
        return msgspec.structs.replace(self, sequence=self.sequence + 1)

    def partition(self, dc: str, topic: str, number: int) -> ArchivedPartition | None:
        """How far that partition is archived; None if it is unknown."""
        held = self.topics.get(dc, {}).get(topic, ArchivedTopic())
        return next((each for each in held.partitions if each.partition == number), None)

    def with_batch(self, batch: Ranges, records: Mapping[tuple[str, str], int]) -> "Manifest":
        """The next manifest, with these ranges archived, each of which must begin at its
        partition's end. `records` is the number of their records, by datacentre and topic.
        """
        topics = {dc: dict(held) for dc, held in self.topics.items()}
        for dc, ranges_by_topic in batch.items():
            for topic, ranges in ranges_by_topic.items():
                held = topics[dc][topic]
                ends = {each.partition: each for each in ranges}
                topics[dc][topic] = ArchivedTopic(
                    held.records + records.get((dc, topic), 0),
                    tuple(_extended(each, ends.get(each.partition)) for each in held.partitions),
                )
        return msgspec.structs.replace(self.next(), topics=topics)

    def with_expired(self, topic: str, before: str, hours: int, records: int) -> "Manifest":
        """The next manifest, with so many hours and records of a topic deleted."""
        held = self.expired.get(topic, Expired("", 0, 0))
        now = Expired(max(held.before, before), held.hours + hours, held.records + records)
        return msgspec.structs.replace(self.next(), expired=self.expired | {topic: now})


def _extended(held: ArchivedPartition, read: PartitionRange | None) -> ArchivedPartition:
    if read is None:
        return held
    assert held.end == read.start, "a batch begins where the manifest ends"
    return msgspec.structs.replace(held, end=read.end)


class FoundGap(NamedTuple):
    """A gap and its place."""

    dc: str
    topic: str
    partition: int
    gap: Gap


class ShorterLog(NamedTuple):
    """A partition whose log ends before the archived end."""

    dc: str
    topic: str
    partition: int
    archived_end: int
    log_end: int


class Faced(NamedTuple):
    """A manifest compared with a snapshot. The partitions in `shorter` are not read: the topic was
    deleted and created again, or its log was truncated.
    """

    manifest: Manifest
    gaps: list[FoundGap]
    shorter: list[ShorterLog]


def faced(manifest: Manifest, snapshot: Snapshot) -> Faced:
    """The next manifest: new partitions start where their log starts, and a partition whose log
    starts behind the archived end gets a gap.

    With a snapshot older than the archive no log counts as shorter.
    """
    is_older = snapshot.taken_at_ms < manifest.taken_at_ms
    gaps: list[FoundGap] = []
    shorter: list[ShorterLog] = []
    topics = {dc: dict(held) for dc, held in manifest.topics.items()}
    for dc, topic, each in _places(snapshot):
        held = manifest.partition(dc, topic, each.partition)
        if held is None:
            known = topics.setdefault(dc, {}).get(topic, ArchivedTopic())
            begun = ArchivedPartition(each.partition, each.start, each.start)
            topics[dc][topic] = _with_partition(known, begun)
        elif held.end > each.end:
            if not is_older:
                shorter.append(ShorterLog(dc, topic, each.partition, held.end, each.end))
        elif held.end < each.start:
            gap = Gap(held.end, each.start, snapshot.taken_at_ms)
            gaps.append(FoundGap(dc, topic, each.partition, gap))
            topics[dc][topic] = _with_partition(topics[dc][topic], held.with_gap(gap))
    following = msgspec.structs.replace(
        manifest.next(),
        topics=topics,
        taken_at_ms=max(manifest.taken_at_ms, snapshot.taken_at_ms),
    )
    return Faced(following, gaps, shorter)


def _with_partition(topic: ArchivedTopic, partition: ArchivedPartition) -> ArchivedTopic:
    others = [each for each in topic.partitions if each.partition != partition.partition]
    partitions = sorted([*others, partition], key=lambda each: each.partition)
    return msgspec.structs.replace(topic, partitions=tuple(partitions))


def unarchived(manifest: Manifest, snapshot: Snapshot) -> Ranges:
    """The snapshot's ranges behind the manifest's ends."""
    found: Ranges = {}
    for dc, topic, each in _places(snapshot):
        held = manifest.partition(dc, topic, each.partition)
        if held is not None and each.start <= held.end < each.end:
            ranges = found.setdefault(dc, {}).setdefault(topic, [])
            ranges.append(PartitionRange(each.partition, held.end, each.end))
    return found


def _places(snapshot: Snapshot) -> Iterator[tuple[str, str, PartitionRange]]:
    for dc, datacentre in sorted(snapshot.datacentres.items()):
        for topic, ranges in sorted(datacentre.topics.items()):
            for each in ranges:
                yield dc, topic, each


def batches(ranges: Ranges, offsets_max: int) -> Iterator[Ranges]:
    """The same offsets in order, in batches of at most so many, none empty."""
    batch: Ranges = {}
    room = offsets_max
    for dc, topics in ranges.items():
        for topic, whole in topics.items():
            for each in whole:
                at = each.start
                while at < each.end:
                    end = min(each.end, at + room)
                    pieces = batch.setdefault(dc, {}).setdefault(topic, [])
                    pieces.append(PartitionRange(each.partition, at, end))
                    room -= end - at
                    at = end
                    if not room:
                        yield batch
                        batch, room = {}, offsets_max
    if batch:
        yield batch
