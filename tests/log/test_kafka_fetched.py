"""What a fetch brought is handed out whole and in order, whatever batches and gaps it has."""

import aiokafka.errors as kafka_errors
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_actors.log.kafka.fetched import Fetched
from hermes_actors.model.record import StoredRecord

ATTRIBUTES_AT, CRC_AT, CONTROL = 22, 17, 0x20


def batch_of(first, values, *, last=None, headers=(), producer=-1):
    """A batch as a broker sends it; `last`: its last offset, where compaction took some. With a
    `producer` it belongs to a transaction.
    """
    builder = DefaultRecordBatchBuilder(2, 0, producer >= 0, producer, 0, 0, 1_000_000)
    for n, value in enumerate(values):
        builder.append(n, 7, b"k", value, list(headers))
    if last is not None and last >= first + len(values):
        builder.append(last - first, 7, b"k", b"last", [])
    data = bytearray(builder.build())
    data[0:8] = first.to_bytes(8, "big")
    return bytes(data)


def mark_of(offset, producer):
    """The control batch that ends a transaction."""
    data = bytearray(batch_of(offset, [b"mark"], producer=producer))
    data[ATTRIBUTES_AT] |= CONTROL
    data[CRC_AT : CRC_AT + 4] = calc_crc32c(data[CRC_AT + 4 :]).to_bytes(4, "big")
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


steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["write", "commit", "abort"])), max_size=25
)


@given(steps=steps, skipped=st.integers(0, 8), start=st.integers(0, 30))
@example([(1, "write"), (1, "abort"), (1, "write"), (1, "commit")], 0, 0)
@example([(1, "write"), (2, "write"), (1, "abort"), (2, "write"), (2, "abort")], 0, 0)
@example([(1, "write"), (2, "write"), (1, "write"), (1, "abort"), (2, "commit")], 2, 2)
def test_of_producers_in_turns_what_was_committed_comes_and_no_more(steps, skipped, start):
    """Producer 0 uses no transactions; what is open when the log ends is aborted there."""
    batches, open_since, aborted, written = [], {}, [], []
    for producer, step in [*steps, *((producer, "abort") for producer in (1, 2, 3))]:
        offset = len(batches)
        if step == "write":
            if producer:
                open_since.setdefault(producer, offset)
            batches.append(batch_of(offset, [b"%d" % offset], producer=producer or -1))
            written.append((offset, producer))
        elif producer in open_since:
            first = open_since.pop(producer)
            if step == "abort":
                aborted.append((producer, first, offset))
            batches.append(mark_of(offset, producer))
    lost = {
        at for who, first, end in aborted for at, by in written if by == who and first <= at < end
    }
    # A fetch begins in the middle of transactions too: the broker names those that reach into it.
    skipped = min(skipped, start, len(batches))
    fetched = Fetched(0, start)
    has_any = fetched.fill(
        b"".join(batches[skipped:]),
        [(who, first) for who, first, end in aborted if end >= skipped][::-1],
    )
    expected = [at for at, _ in written if at not in lost and at >= start]
    assert [record.offset for record in all_of(fetched)] == expected
    if has_any:
        assert fetched.fetch_from == max(start, len(batches))
    assert fetched.is_taken
