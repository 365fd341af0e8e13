"""How an owner after a lost one looks at messages, and what its successor sets aside: pure."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.offsets.progress import CONDEMNED_MAX
from hermes_actors.consumer.reading.care import (
    CARE_FOR_S,
    FEW,
    ONE_BY_ONE_MAX,
    SUSPECTS_MAX,
    Care,
    is_under_way,
)
from hermes_actors.log.base import Commit
from hermes_actors.log.commits import CommitOwner, decode, encode
from hermes_actors.model.record import StoredRecord

OURS = CommitOwner(1, 2, 30)


def record(partition, offset):
    return StoredRecord(partition, offset, 0, None, b"", ())


def partition(position=0, recovered=(), suspects_end=0, condemned=()):
    offsets = PartitionOffsets(position, recovered)
    offsets.suspects_end = suspects_end
    offsets.condemned = frozenset(condemned)
    return offsets


def look(care, batch, partitions, now_s=0.0):
    """Take in the whole batch as the intake does; what was marked before each look."""
    marked = []
    while batch:
        count = care.take(batch, partitions, now_s)
        if not count:
            return marked, batch
        marked.append([(p, each) for p, o in partitions.items() for each in o.marked])
        for each in batch[:count]:
            offsets = partitions[each.partition]
            if offsets.begin(each.offset):
                offsets.settle(each.offset)
        batch = batch[count:]
    return marked, batch


def test_few_suspects_are_looked_at_one_by_one_and_what_came_later_at_once():
    partitions = {0: partition(suspects_end=5)}
    marked, rest = look(Care(0.0), [record(0, n) for n in range(9)], partitions)
    assert marked == [[(0, n)] for n in range(5)]
    # Those that are no suspects came with the last one.
    assert rest == []


def test_of_many_suspects_a_few_are_looked_at_together():
    partitions = {0: partition(suspects_end=1_000)}
    marked, rest = look(Care(0.0), [record(0, n) for n in range(1_000)], partitions)
    assert {len(each) for each in marked} == {FEW}
    assert sum(len(each) for each in marked) == SUSPECTS_MAX
    assert len(rest) == 1_000 - SUSPECTS_MAX


def test_care_ends_after_its_time_and_leaves_nothing_marked():
    partitions = {0: partition(suspects_end=9)}
    care = Care(0.0)
    batch = [record(0, n) for n in range(9)]
    assert care.take(batch, partitions, 0.0) == 1
    assert care.take(batch[1:], partitions, CARE_FOR_S) == 0
    assert partitions[0].marks == ()


def test_settled_and_condemned_messages_are_no_suspects():
    partitions = {0: partition(2, [(3, 5)], suspects_end=7, condemned=[2])}
    marked, _ = look(Care(0.0), [record(0, n) for n in range(2, 7)], partitions)
    assert marked == [[(0, 5)], [(0, 6)]]


def test_what_is_condemned_stays_marked_until_it_is_settled():
    offsets = partition(2, suspects_end=7, condemned=[2, 4])
    assert offsets.marks == (2, 4)
    offsets.begin(2)
    offsets.begin(3)
    offsets.settle(2)
    assert offsets.marks == (4,)
    assert not is_under_way({0: offsets})


@given(
    position=st.integers(min_value=0, max_value=2**40),
    gaps=st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 1_000)), max_size=2_000),
    marks=st.lists(st.integers(min_value=1, max_value=2**20), max_size=CONDEMNED_MAX),
)
def test_marks_are_read_as_they_were_written_whatever_else_a_commit_says(position, gaps, marks):
    intervals, at = [], position
    for gap, length in gaps:
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    marked, at = [], position - 1
    for step in marks:
        at += step
        marked.append(at)
    metadata = encode(position, intervals, OURS, marked=marked)
    assert len(metadata) <= 4_000
    progress = decode(Commit(position, metadata))
    assert progress.marked == tuple(marked)
    assert progress.ownership == OURS
    assert list(progress.intervals) == intervals[: len(progress.intervals)]
    assert progress.intervals or not intervals


@given(
    sizes=st.lists(st.integers(min_value=0, max_value=60), min_size=1, max_size=4),
    poison=st.integers(min_value=0, max_value=239),
    batch_max=st.integers(min_value=1, max_value=50),
)
def test_whoever_is_lost_while_looking_with_care_has_marked_the_cause_among_a_few(
    sizes, poison, batch_max
):
    partitions = {p: partition(suspects_end=size) for p, size in enumerate(sizes)}
    records = [record(p, n) for p, size in enumerate(sizes) for n in range(size)]
    is_few = len(records) <= ONE_BY_ONE_MAX
    cause = records[poison % len(records)] if records else None
    care = Care(0.0)
    for at in range(0, len(records), batch_max):
        batch = records[at : at + batch_max]
        while batch:
            count = care.take(batch, partitions, 0.0)
            assert count > 0
            marked = {p: decode(_committed(o)).marked for p, o in partitions.items()}
            assert sum(map(len, marked.values())) <= (1 if is_few else FEW)
            if cause in batch[:count]:
                # Its owner is lost here: its successor knows it.
                assert cause.offset in marked[cause.partition]
                return
            for each in batch[:count]:
                partitions[each.partition].begin(each.offset)
                partitions[each.partition].settle(each.offset)
            batch = batch[count:]
    assert cause is None


def _committed(offsets):
    metadata = encode(offsets.position, offsets.intervals(), OURS, marked=offsets.marks)
    return Commit(offsets.position, metadata)
