"""A run of records is the same Kafka batch, the same rows and the same records as its records."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_actors.log.base import Stored, StoredRun, is_all_stored, stored_count
from hermes_actors.log.embedded.schema import decode_chunk, decode_entries, encode_chunk, encode_run
from hermes_actors.log.kafka.batches import Identity, encode
from hermes_actors.log.kafka.runs import varint
from hermes_actors.model.run import RecordRun, size_of

KEY = st.none() | st.binary(max_size=5) | st.binary(min_size=60, max_size=70)
VALUE = st.binary(max_size=20) | st.integers(0, 300).map(lambda size: b"x" * size)


@st.composite
def runs(draw, max_size=30):
    values = draw(st.lists(VALUE, min_size=1, max_size=max_size))
    keys = draw(KEY | st.lists(KEY, min_size=len(values), max_size=len(values)))
    headers = draw(
        st.lists(st.tuples(st.text("ab-é", max_size=5), st.binary(max_size=9)), max_size=20)
    )
    ids = [b"12345678-9abc-8def-8123-%012d" % number for number in range(len(values))]
    return RecordRun(values, ids, tuple(headers), draw(st.integers(0, 2**42)), keys)


def a_run_that_fits_exactly() -> tuple[RecordRun, int]:
    """A run, and the size of the batch of all its records."""
    run = RecordRun([b"a", b"b"], [b"12345678-9abc-8def-8123-%012d" % n for n in range(2)], (), 0)
    return run, len(encode(run, 0, 2, 1_000_000)[0])


@example(*a_run_that_fits_exactly())
@given(runs(), st.integers(80, 2_000) | st.just(1_000_000))
def test_a_run_is_the_batch_that_the_clients_encoder_makes_of_its_records(run, bytes_max) -> None:
    identity = Identity(77, 4)
    # The client's encoder leaves the last byte of its bound unused; a run fills it.
    expected = encode(list(run), 0, len(run), bytes_max + 1, identity, 12)
    data, end = encode(run, 0, len(run), bytes_max, identity, 12)
    assert (bytes(data), end) == (bytes(expected[0]), expected[1])
    assert len(data) <= bytes_max or end == 1


@given(runs(), st.data())
def test_a_part_of_a_run_is_the_batch_of_that_part(run, data) -> None:
    start = data.draw(st.integers(0, len(run) - 1))
    end = data.draw(st.integers(start + 1, len(run)))
    expected = encode(list(run), start, end, 1_000_000)
    found = encode(run, start, end, 1_000_000)
    assert (bytes(found[0]), found[1]) == (bytes(expected[0]), expected[1])


def test_offsets_that_take_two_and_three_bytes_are_written_as_the_client_does() -> None:
    count = 9_000
    ids = [b"12345678-9abc-8def-8123-%012d" % number for number in range(count)]
    run = RecordRun([b"v" * (number % 70) for number in range(count)], ids, (), 1)
    assert bytes(encode(run, 0, count, 10_000_000)[0]) == bytes(
        encode(list(run), 0, count, 10_000_000)[0]
    )
    assert varint(0) == b"\0"
    assert varint(64) == b"\x80\x01"


@given(runs())
def test_a_run_lies_in_the_embedded_log_as_its_records_do(run) -> None:
    checksum, content = encode_chunk([encode_run(run, run.timestamp_ms)], len(run))
    assert decode_chunk(len(run), checksum, content, decode_entries) == [
        (record.timestamp_ms, record.key, record.value, record.headers) for record in run
    ]


@given(runs(), st.data())
def test_a_run_is_a_sequence_of_records(run, data) -> None:
    records = list(run)
    assert len(records) == len(run)
    assert size_of(run) == size_of(records) == sum(record.size_bytes for record in records)
    assert run.largest_bytes == max(record.size_bytes for record in records)
    start, end = data.draw(st.tuples(st.integers(0, 30), st.integers(0, 30)))
    assert list(run[start:end]) == records[start:end]
    assert run[-1] == records[-1]
    with pytest.raises(IndexError):
        _ = run[len(run)]


@given(st.integers(0, 100), st.integers(0, 20), st.data())
def test_a_run_of_stored_is_a_sequence_of_outcomes(first, length, data) -> None:
    run = StoredRun(first, length)
    expected = [Stored(offset) for offset in range(first, first + length)]
    assert list(run) == expected
    part = data.draw(st.slices(length))
    assert list(run[part]) == expected[part]
    assert is_all_stored(run)
    assert stored_count(run) == stored_count(expected) == length
