import base64
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.log.base import COMMIT_METADATA_BYTES_MAX, Commit
from hermes_actors.log.commits import CommitOwner, LastRead, Progress, decode, encode

OURS = CommitOwner(topic_incarnation=3, incarnation=12, epoch=5, seek=1)


class Naive:
    """Every offset that holds a record, and whether it is settled, written out."""

    def __init__(self, position):
        self.start = position
        self.settled = set()
        self.read_end = position

    def position(self):
        at = self.start
        while at in self.settled:
            at += 1
        return at

    def intervals(self):
        position = self.position()
        above = sorted(offset for offset in self.settled if offset > position)
        found = []
        for offset in above:
            if found and found[-1][1] == offset:
                found[-1][1] = offset + 1
            else:
                found.append([offset, offset + 1])
        return [tuple(interval) for interval in found]


# Each step reads on (over a gap of some width) or settles one of what is unsettled.
steps = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), max_size=150)


@given(start=st.integers(0, 10**12), steps=steps)
def test_position_and_intervals_are_those_of_the_naive_set(start, steps):
    offsets, naive = PartitionOffsets(start), Naive(start)
    unsettled = []
    for kind, where in steps:
        if kind <= 1 or not unsettled:
            gap = 0 if kind else int(where * 3)
            offset = naive.read_end + gap
            naive.settled.update(range(naive.read_end, offset))
            naive.read_end = offset + 1
            assert offsets.begin(offset)
            unsettled.append(offset)
        else:
            offset = unsettled.pop(int(where * (len(unsettled) - 1)))
            offsets.settle(offset)
            naive.settled.add(offset)
        assert offsets.position == naive.position()
        assert list(offsets.intervals()) == naive.intervals()
        assert offsets.unsettled == len(unsettled)
        # What is unsettled and what is not read yet, however the two lie.
        assert naive.read_end + 5 - offsets.reached == len(unsettled) + 5
        # The promise: a commit never passes an unsettled offset.
        assert all(offset >= offsets.position for offset in unsettled)
        for low, high in offsets.intervals():
            assert not any(low <= offset < high for offset in unsettled)


@given(
    read=st.integers(1, 300),
    holes=st.sets(st.integers(0, 299), max_size=40),
    read_again=st.integers(0, 300),
)
def test_a_restart_from_a_commit_reads_again_only_what_was_not_settled(read, holes, read_again):
    first = PartitionOffsets(0)
    for offset in range(read):
        assert first.begin(offset)
    unsettled = {offset for offset in holes if offset < read}
    for offset in range(read):
        if offset not in unsettled:
            first.settle(offset)
    metadata = encode(first.position, first.intervals(), OURS)
    progress = decode(Commit(first.position, metadata))
    assert progress == Progress(first.position, tuple(first.intervals()), OURS)

    second = PartitionOffsets(progress.position, progress.intervals)
    assert read - second.reached == len(unsettled)
    started = [offset for offset in range(progress.position, read) if second.begin(offset)]
    assert read - second.reached == len(unsettled)
    assert started == sorted(unsettled)
    for offset in started:
        second.settle(offset)
    assert second.position == read

    # A second crash half-way through reading again forgets nothing.
    third = PartitionOffsets(progress.position, progress.intervals)
    for offset in range(progress.position, min(read, max(read_again, progress.position))):
        third.begin(offset)
    assert third.position == first.position
    assert read - third.reached == len(unsettled)
    assert list(third.intervals()) == list(first.intervals())


@given(
    position=st.integers(0, 2**60),
    pairs=st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=2_000),
    bytes_max=st.integers(80, COMMIT_METADATA_BYTES_MAX),
)
def test_metadata_fits_and_keeps_the_nearest_intervals(position, pairs, bytes_max):
    intervals, at = [], position
    for gap, length in pairs:
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    metadata = encode(position, intervals, OURS, bytes_max)
    assert len(metadata.encode()) <= bytes_max
    progress = decode(Commit(position, metadata))
    assert progress.ownership == OURS
    kept = list(progress.intervals)
    assert kept == intervals[: len(kept)]
    if len(kept) < len(intervals):
        # Nothing that would have fitted was left out: less than one more interval of room.
        assert bytes_max - len(metadata) < 16


def test_ten_thousand_holes_still_fit_by_leaving_out_the_farthest():
    offsets = PartitionOffsets(0)
    for offset in range(20_000):
        offsets.begin(offset)
        if offset % 2:
            offsets.settle(offset)
    metadata = encode(offsets.position, offsets.intervals(), OURS)
    assert 3_900 < len(metadata) <= COMMIT_METADATA_BYTES_MAX
    kept = decode(Commit(0, metadata)).intervals
    assert len(kept) > 1_400
    assert kept[0] == (1, 2)


@given(st.text(max_size=200))
def test_foreign_metadata_never_raises_and_its_position_counts(text):
    progress = decode(Commit(41, text))
    assert progress.position == 41
    assert all(start > 41 for start, _ in progress.intervals)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x81", "torn number"),
        (b"\x01", "a gap without a length"),
        (b"\x00\x01", "a gap of nothing"),
    ],
)
def test_broken_intervals_are_dropped_and_the_position_counts(raw, why):
    metadata = "h1:3:12:5:1:" + base64.urlsafe_b64encode(raw).decode()
    assert decode(Commit(41, metadata)).intervals == (), why
    assert decode(Commit(41, metadata)).position == 41


@given(
    st.integers(0, 10**12),
    st.integers(0, 10**15),
    st.integers(0, 2**32 - 1),
    st.sampled_from([(), ((3, 5),), ((3, 5), (8, 9))]),
)
def test_the_record_that_was_read_last_survives_a_commit(offset, timestamp_ms, digest, intervals):
    last = LastRead(offset, timestamp_ms, digest)
    metadata = encode(2, intervals, OURS, last_read=last)
    progress = decode(Commit(2, metadata))
    assert (progress.last_read, progress.intervals) == (last, intervals)
    assert decode(Commit(2, metadata.rpartition(":")[0])).last_read is None


@pytest.mark.parametrize("text", ["", "1", "1.2", "x.1.2", "1.2.3.4"])
def test_a_last_record_that_cannot_be_read_leaves_the_position(text):
    assert decode(Commit(41, f"h1:3:12:5:1::{text}")) == Progress(41)


def test_what_retention_took_counts_without_what_was_settled_already():
    offsets = PartitionOffsets(10, [(15, 20)])
    offsets.begin(10)
    assert offsets.skip_to(30) == 14  # 11…29 without 15…19
    assert offsets.position == 10
    assert list(offsets.intervals()) == [(11, 30)]
    offsets.settle(10)
    assert offsets.position == 30
    assert offsets.skip_to(20) == 0


def test_what_the_log_does_not_hold_does_not_widen_the_span():
    offsets = PartitionOffsets(0)
    offsets.begin(0)
    assert offsets.skip_to(1_000_000) == 999_999
    assert offsets.span == 1
    offsets.begin(2_000_000)
    assert offsets.span == 2
    offsets.settle(0)
    assert offsets.span == 1


def test_the_span_reaches_from_the_lowest_unsettled_to_the_last_read():
    offsets = PartitionOffsets(100)
    assert offsets.span == 0
    for offset in range(100, 150):
        offsets.begin(offset)
    offsets.settle(100)
    assert offsets.span == 49


@given(st.lists(st.sampled_from(["settle", "filter", "keep"]), max_size=60), st.data())
def test_what_is_filtered_out_is_settled_and_does_not_widen_the_span(fates, data):
    offsets = PartitionOffsets(0)
    kept, filtered = [], set()
    for offset, fate in enumerate(fates):
        assert offsets.begin(offset)
        if fate == "filter":
            offsets.filter_out(offset)
            filtered.add(offset)
        elif fate == "settle":
            offsets.settle(offset)
        else:
            kept.append(offset)
    while True:
        first = kept[0] if kept else len(fates)
        assert offsets.position == first
        beyond = [offset for offset in range(first, len(fates)) if offset not in filtered]
        assert offsets.span == (len(beyond) if kept else 0)
        if not kept:
            return
        gone = data.draw(st.sampled_from(kept))
        kept.remove(gone)
        offsets.settle(gone)


def test_what_was_settled_before_a_restart_does_not_widen_the_span_after_it():
    offsets = PartitionOffsets(0, [(1, 50), (60, 1_000)])
    for offset in range(1_000):
        if offsets.begin(offset) and offset != 0:
            offsets.filter_out(offset)
    assert (offsets.position, offsets.span, offsets.read_end) == (0, 1, 1_000)


def test_millions_may_be_filtered_while_one_message_waits():
    offsets = PartitionOffsets(0)
    offsets.begin(0)
    for offset in range(1, 100_000):
        offsets.begin(offset)
        offsets.filter_out(offset)
    assert (offsets.position, offsets.span, offsets.unsettled) == (0, 1, 1)
    assert list(offsets.intervals()) == [(1, 100_000)]
    assert sys.getsizeof(offsets._unsettled) < 1_000


def test_what_a_log_lost_after_it_was_filtered_out_does_not_make_the_span_smaller():
    offsets = PartitionOffsets(0)
    offsets.begin(0)
    for _ in range(3):
        for offset in range(1, 10):
            if offset >= offsets.read_end:
                offsets.begin(offset)
                offsets.filter_out(offset)
        assert offsets.span == 1
        offsets.cut(5)
        assert offsets.span == 1


@given(
    kinds=st.lists(st.sampled_from(("filtered", "settled", "waiting")), max_size=30),
    cuts=st.lists(st.floats(0, 1), max_size=4),
)
def test_the_span_after_a_cut_is_short_by_no_more_than_was_cut(kinds, cuts):
    offsets = PartitionOffsets(0)
    now: dict[int, str] = {}
    short = 0
    for cut in [*cuts, 1.0]:
        for offset in range(offsets.read_end, len(kinds)):
            now[offset] = kinds[offset]
            offsets.begin(offset)
            if kinds[offset] == "filtered":
                offsets.filter_out(offset)
            elif kinds[offset] == "settled":
                offsets.settle(offset)
        at, was = int(cut * len(kinds)), offsets.read_end
        offsets.cut(at)
        short += was - at
        first = next((each for each in range(at) if kinds[each] == "waiting"), at)
        span = sum(kinds[each] != "filtered" for each in range(first, at))
        assert span - short <= offsets.span <= span
