"""What a fetch brought is handed out whole and in order, whatever batches and gaps it has."""

import aiokafka.errors as kafka_errors
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.kafka.fetched import Fetched
from hermes_actors.model.record import StoredRecord


def batch_of(first, values, *, last=None, headers=()):
    """A batch as a broker sends it; `last`: its last offset, where compaction took some."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for n, value in enumerate(values):
        builder.append(n, 7, b"k", value, list(headers))
    if last is not None and last >= first + len(values):
        builder.append(last - first, 7, b"k", b"last", [])
    data = bytearray(builder.build())
    data[0:8] = first.to_bytes(8, "big")
    return bytes(data)


def all_of(fetched):
    taken = []
    while (record := fetched.take()) is not None:
        taken.append(record)
    return taken


def test_a_batch_that_begins_before_the_position_gives_only_what_lies_from_there_on():
    fetched = Fetched(3, 12)
    assert fetched.fill(batch_of(10, [b"a", b"b", b"c", b"d"]))
    assert [(r.partition, r.offset, r.value) for r in all_of(fetched)] == [
        (3, 12, b"c"),
        (3, 13, b"d"),
    ]
    assert fetched.fetch_from == 14


def test_no_value_is_a_tombstone_and_a_header_without_one_is_empty():
    fetched = Fetched(0, 0, "dc1:t")
    fetched.fill(batch_of(0, [None, b""], headers=[("h", None), ("i", b"1")]))
    headers = (("h", b""), ("i", b"1"))
    assert all_of(fetched) == [
        StoredRecord(0, 0, 7, b"k", b"", headers, "dc1:t", is_tombstone=True),
        StoredRecord(0, 1, 7, b"k", b"", headers, "dc1:t"),
    ]


def test_nothing_and_a_part_of_a_batch_bring_nothing():
    fetched = Fetched(0, 0)
    assert not fetched.fill(b"")
    assert not fetched.fill(batch_of(0, [b"a"])[:-1])
    assert fetched.is_wanted


def test_damage_is_told_after_what_lies_before_it():
    damaged = bytearray(batch_of(1, [b"b"]))
    damaged[-2] ^= 1
    fetched = Fetched(0, 0)
    fetched.fill(batch_of(0, [b"a"]) + bytes(damaged))
    record = fetched.take()
    assert record is not None
    assert record.value == b"a"
    with pytest.raises(kafka_errors.CorruptRecordException):
        fetched.take()


def test_a_restart_drops_what_was_fetched_and_what_is_on_its_way():
    fetched = Fetched(0, 0)
    fetched.fill(batch_of(0, [b"a", b"b"]))
    fetched.head = fetched.take()
    fetched.flight = object()
    fetched.restart(1)
    assert fetched.is_wanted
    assert fetched.take() is None
    assert fetched.fetch_from == 1


runs = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=6)


@given(runs=runs, start=st.integers(0, 20))
def test_gaps_are_stepped_over_and_nothing_comes_twice(runs, start):
    data, offset, expected = b"", 0, []
    for gap, count in runs:
        offset += gap
        data += batch_of(offset, [b"%d" % n for n in range(offset, offset + count)])
        expected += [n for n in range(offset, offset + count) if n >= start]
        offset += count
    fetched = Fetched(0, start)
    fetched.fill(data)
    taken = all_of(fetched)
    assert [r.offset for r in taken] == expected
    assert [r.value for r in taken] == [b"%d" % n for n in expected]
    assert fetched.fetch_from == max(start, offset)
    assert fetched.is_wanted
