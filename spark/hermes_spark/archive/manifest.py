"""How far each partition is archived, what was missed and what was deleted: values and folds. Pure.

A manifest grows with partitions and topics, never with records or runs.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from hermes_spark.snapshot import PartitionRange, Snapshot

VERSION = 1
GAPS_MAX = 100
"""So many gaps of a partition are kept one by one, the newest; older ones are added up."""

Ranges = dict[str, dict[str, list[PartitionRange]]]
"""Offsets by datacentre and topic, as in a snapshot; of a partition one range."""


class Gap(Struct, frozen=True):
    """Offsets from `start` up to below `end` that the log had no longer when a run came for them:
    retention was faster.
    """

    start: int
    end: int
    found_at_ms: int


class ArchivedPartition(Struct, frozen=True):
    """The offsets from `start` up to below `end`, but those in gaps. `older_gap_offsets` is the sum
    of the gaps that are not kept one by one.
    """

    partition: int
    start: int
    end: int
    gaps: tuple[Gap, ...] = ()
    older_gap_offsets: int = 0

    @property
    def gap_offsets(self) -> int:
        """How many offsets all gaps have together."""
        return self.older_gap_offsets + sum(each.end - each.start for each in self.gaps)

    def with_gap(self, gap: Gap) -> "ArchivedPartition":
        """The same, going on behind the gap."""
        gaps = (*self.gaps, gap)
        older = sum(each.end - each.start for each in gaps[:-GAPS_MAX])
        return msgspec.structs.replace(
            self,
            end=gap.end,
            gaps=gaps[-GAPS_MAX:],
            older_gap_offsets=self.older_gap_offsets + older,
        )


class ArchivedTopic(Struct, frozen=True):
    """A topic of one datacentre. `records` were archived ever, those deleted since among them."""

    records: int = 0
    partitions: tuple[ArchivedPartition, ...] = ()


class Expired(Struct, frozen=True):
    """The part of a topic that was deleted: all its hours before `before` (such as 2030-01-31T12),
    and how many hours and records that were in all.
    """

    before: str
    hours: int
    records: int


class Manifest(Struct, frozen=True):
    """The state of an archive as of its commit number `sequence`. `taken_at_ms` is the time of the
    newest snapshot that was archived; `topics` are by datacentre and name, `expired` by name.
    """

    version: int = VERSION
    sequence: int = 0
    taken_at_ms: int = 0
    topics: dict[str, dict[str, ArchivedTopic]] = {}
    expired: dict[str, Expired] = {}

    def next(self) -> "Manifest":
        """The same as of the next commit."""
        return msgspec.structs.replace(self, sequence=self.sequence + 1)

    def partition(self, dc: str, topic: str, number: int) -> ArchivedPartition | None:
        """How far that partition is archived; None for one that was never seen."""
        held = self.topics.get(dc, {}).get(topic, ArchivedTopic())
        return next((each for each in held.partitions if each.partition == number), None)

    def with_batch(self, batch: Ranges, records: Mapping[tuple[str, str], int]) -> "Manifest":
        """The next manifest, with these ranges archived, each of which begins where its partition
        ended. `records` is how many they had, by datacentre and topic.
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
    """A gap, and where it is."""

    dc: str
    topic: str
    partition: int
    gap: Gap


class ShorterLog(NamedTuple):
    """A partition whose log ends before what is archived of it."""

    dc: str
    topic: str
    partition: int
    archived_end: int
    log_end: int


class Faced(NamedTuple):
    """A manifest brought face to face with a snapshot. `shorter` are left out of any reading: the
    topic was deleted and made again, or its log has lost its end.
    """

    manifest: Manifest
    gaps: list[FoundGap]
    shorter: list[ShorterLog]


def faced(manifest: Manifest, snapshot: Snapshot) -> Faced:
    """The next manifest, in which partitions seen for the first time begin where their log begins,
    and those whose log begins behind what is archived have a gap.

    Of a snapshot older than what is archived no log is shorter: it had not come so far.
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
    """The ranges of a snapshot that lie behind the manifest's ends, and what is missing there."""
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
    """The same offsets in their order, in batches of at most so many, none empty."""
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
