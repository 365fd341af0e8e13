"""How far an archive goes: nothing is read twice, and nothing is missed without being recorded."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_spark.archive.manifest import (
    GAPS_MAX,
    ArchivedPartition,
    Gap,
    Manifest,
    batches,
    faced,
    unarchived,
)
from hermes_spark.snapshot import Datacentre, EmbeddedLog, PartitionRange, Snapshot

LOG = EmbeddedLog("nowhere")


def snapshot_of(ranges, taken_at_ms=0):
    return Snapshot(taken_at_ms, {dc: Datacentre(LOG, topics=ranges[dc]) for dc in ranges})


def offsets(ranges):
    return [
        (dc, topic, each.partition, offset)
        for dc, topics in ranges.items()
        for topic, pieces in topics.items()
        for each in pieces
        for offset in range(each.start, each.end)
    ]


ranges_of_topic = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=3
).map(lambda some: [PartitionRange(at, start, start + n) for at, (start, n) in enumerate(some)])
some_ranges = st.dictionaries(
    st.sampled_from(["dc1", "dc2"]),
    st.dictionaries(st.sampled_from(["a.x", "a.y"]), ranges_of_topic, min_size=1),
)


@given(some_ranges, st.integers(1, 20))
def test_batches_are_all_offsets_once_in_their_order_and_no_larger_than_asked(ranges, most):
    cut = list(batches(ranges, most))
    assert [each for batch in cut for each in offsets(batch)] == offsets(ranges)
    sizes = [len(offsets(batch)) for batch in cut]
    assert all(size == most for size in sizes[:-1])
    assert all(0 < size <= most for size in sizes[-1:])
    for batch in cut:
        places = [
            (dc, topic, each.partition)
            for dc, topics in batch.items()
            for topic, pieces in topics.items()
            for each in pieces
        ]
        assert len(places) == len(set(places))


@st.composite
def histories(draw):
    """Steps of a partition's log, and runs that are cut off after some batches."""
    kinds = st.sampled_from(["publish", "retention", "run"])
    return draw(st.lists(st.tuples(kinds, st.integers(0, 12), st.integers(1, 5)), max_size=20))


@given(histories())
def test_what_was_ever_published_is_archived_once_or_in_a_recorded_gap(steps):
    start = end = 0
    manifest, archived = Manifest(), []
    for at, (kind, number, size) in enumerate(steps):
        if kind == "publish":
            end += number
        elif kind == "retention":
            start = min(end, start + number)
        else:
            snapshot = snapshot_of({"dc1": {"a.x": [PartitionRange(0, start, end)]}}, at)
            found = faced(manifest, snapshot)
            assert found.shorter == []
            manifest = found.manifest
            # `number` batches, then it is killed.
            todo = list(batches(unarchived(manifest, snapshot), size))[:number]
            for batch in todo:
                archived += [offset for *_, offset in offsets(batch)]
                manifest = manifest.with_batch(batch, {("dc1", "a.x"): len(offsets(batch))})
    held = manifest.partition("dc1", "a.x", 0)
    if held is None:
        assert archived == []
        return
    missed = [offset for gap in held.gaps for offset in range(gap.start, gap.end)]
    assert sorted(archived + missed) == list(range(held.start, held.end))
    assert manifest.topics["dc1"]["a.x"].records == len(archived)
    assert held.gap_offsets == len(missed)


def test_a_partition_that_comes_later_is_archived_from_where_its_log_begins():
    one = snapshot_of({"dc1": {"a.x": [PartitionRange(0, 4, 4)]}})
    manifest = faced(Manifest(), one).manifest
    assert manifest.partition("dc1", "a.x", 0) == ArchivedPartition(0, 4, 4)
    two = snapshot_of({"dc1": {"a.x": [PartitionRange(0, 6, 9), PartitionRange(1, 2, 3)]}}, 7)
    found = faced(manifest, two)
    assert [tuple(each) for each in found.gaps] == [("dc1", "a.x", 0, Gap(4, 6, 7))]
    assert unarchived(found.manifest, two) == {
        "dc1": {"a.x": [PartitionRange(0, 6, 9), PartitionRange(1, 2, 3)]}
    }


def test_a_log_that_ends_before_the_archive_is_told_and_left_alone():
    before = snapshot_of({"dc1": {"a.x": [PartitionRange(0, 0, 9)]}}, 5)
    manifest = faced(Manifest(), before).manifest
    manifest = manifest.with_batch({"dc1": {"a.x": [PartitionRange(0, 0, 9)]}}, {})
    anew = snapshot_of({"dc1": {"a.x": [PartitionRange(0, 0, 3)]}}, 6)
    found = faced(manifest, anew)
    assert [tuple(each) for each in found.shorter] == [("dc1", "a.x", 0, 9, 3)]
    assert unarchived(found.manifest, anew) == {}


def test_an_older_snapshot_has_nothing_to_add_and_says_no_log_is_shorter():
    new, old = (snapshot_of({"dc1": {"a.x": [PartitionRange(0, 0, end)]}}, end) for end in (9, 3))
    manifest = faced(Manifest(), new).manifest
    manifest = manifest.with_batch({"dc1": {"a.x": [PartitionRange(0, 0, 9)]}}, {})
    found = faced(manifest, old)
    assert (found.gaps, found.shorter) == ([], [])
    assert found.manifest.taken_at_ms == 9
    assert unarchived(found.manifest, old) == {}


def test_gaps_are_bounded_and_their_sum_is_kept():
    held = ArchivedPartition(0, 0, 0)
    for number in range(GAPS_MAX + 50):
        held = held.with_gap(Gap(number * 10, number * 10 + 3, number))
    assert len(held.gaps) == GAPS_MAX
    assert held.gaps[0].found_at_ms == 50
    assert held.gap_offsets == (GAPS_MAX + 50) * 3


def test_what_expired_is_added_up_by_topic():
    manifest = Manifest().with_expired("a.x", "2030-01-01T05", 2, 30)
    manifest = manifest.with_expired("a.x", "2030-01-02T05", 1, 4)
    expired = manifest.expired["a.x"]
    assert (expired.before, expired.hours, expired.records) == ("2030-01-02T05", 3, 34)
    assert manifest.sequence == 2
