import pytest

from hermes_actors.log.base import TopicSettings
from hermes_actors.log.cursor import Room
from hermes_actors.log.embedded.schema import PartitionRow, TopicRow
from hermes_actors.log.embedded.view import Run, View
from hermes_actors.model.record import Record


def view_of(tail_bytes_max=1_000_000):
    rows = [PartitionRow(1, 0, 0, 5, 0), PartitionRow(2, 1, 0, 0, 0)]
    return View([TopicRow(1, "t", TopicSettings(2), rows)], tail_bytes_max)


def stored(first, *values, partition=0, stamp_ms=None):
    records = [Record(None, value, (), 7) for value in values]
    return "t", partition, Run(first, records, stamp_ms, 100 * len(records))


def tail(view, position, partition=0):
    found = view.topics["t"].partitions[partition].read_tail(position, Room(100, 10_000))
    return None if found is None else [(r.offset, r.value) for r in found]


@pytest.fixture
async def view():
    return view_of()


async def test_what_was_appended_is_read_from_any_position_in_it(view):
    view.appended(*stored(5, b"a", b"b"))
    view.appended(*stored(7, b"c"))
    assert tail(view, 5) == [(5, b"a"), (6, b"b"), (7, b"c")]
    assert tail(view, 6) == [(6, b"b"), (7, b"c")]
    assert tail(view, 7) == [(7, b"c")]
    assert view.topics["t"].partitions[0].row.end == 8


async def test_what_lies_before_the_cache_is_not_in_it(view):
    assert tail(view, 4) is None
    view.appended(*stored(5, b"a"))
    assert tail(view, 4) is None


async def test_after_a_gap_only_what_follows_it_is_cached(view):
    view.appended(*stored(5, b"a"))
    view.appended(*stored(9, b"z"))
    assert tail(view, 5) is None
    assert tail(view, 8) is None
    assert tail(view, 9) == [(9, b"z")]


async def test_the_oldest_run_of_all_partitions_goes_first():
    one_run = stored(0, b"x")[2].size_bytes
    view = view_of(tail_bytes_max=2 * one_run)
    view.appended(*stored(5, b"a"))
    view.appended(*stored(0, b"b", partition=1))
    view.appended(*stored(6, b"c"))
    assert tail(view, 5) is None
    assert tail(view, 6) == [(6, b"c")]
    assert tail(view, 0, partition=1) == [(0, b"b")]


async def test_a_run_stamped_by_the_log_has_the_logs_time(view):
    view.appended(*stored(5, b"a", stamp_ms=99))
    found = view.topics["t"].partitions[0].read_tail(5, Room(1, 1))
    assert [r.timestamp_ms for r in found] == [99]


async def test_a_deleted_topic_gives_its_share_of_the_cache_back():
    one_run = stored(0, b"x")[2].size_bytes
    view = view_of(tail_bytes_max=one_run)
    for _ in range(3):
        view.appended(*stored(5, b"a"))
        view.remove("t")
        view.topics |= view_of().topics
    view.appended(*stored(5, b"a"))
    assert tail(view, 5) == [(5, b"a")]
