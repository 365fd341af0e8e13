from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.kafka.batches import (
    NO_IDENTITY,
    SEQUENCE_MAX,
    BatchBounds,
    Identity,
    Numbering,
    encode,
)
from hermes_actors.model.record import Record

RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=20),
        value=st.binary(max_size=200),
        headers=st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=9)), max_size=3).map(
            tuple
        ),
        timestamp_ms=st.integers(0, 2**42),
    ),
    min_size=1,
    max_size=30,
)


def decoded(data):
    (batch,) = _batches(data)
    return [Record(r.key, r.value, tuple(r.headers), r.timestamp) for r in batch]


def _batches(data):
    memory = MemoryRecords(bytes(data))
    found = []
    while memory.has_next():
        found.append(memory.next_batch())
    return found


@given(RECORDS, st.integers(80, 2_000))
def test_batches_hold_all_records_once_in_order_and_within_the_bound(records, bytes_max):
    found = []
    start = 0
    while start < len(records):
        data, end = encode(records, start, len(records), bytes_max)
        part = decoded(data)
        assert len(part) == end - start > 0
        assert len(data) <= bytes_max or len(part) == 1
        found += part
        start = end
    assert found == records


def test_a_batch_carries_its_producer_id_and_its_first_number():
    records = [Record(None, b"v", (), 1)] * 3
    data, _ = encode(records, 1, 3, 1_000, Identity(77, 4), 12)
    (batch,) = _batches(data)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 4, 12)


def test_without_an_identity_a_batch_claims_none():
    data, _ = encode([Record(None, b"v", (), 1)], 0, 1, 1_000)
    (batch,) = _batches(data)
    assert (batch.producer_id, batch.producer_epoch) == (-1, -1)


def test_a_number_is_used_up_by_what_is_stored_and_by_nothing_else():
    numbering = Numbering()
    assert numbering.needs_identity(1)
    numbering.begin(Identity(1, 0))
    assert not numbering.needs_identity(10)
    numbering.stored(10)
    assert numbering.next == 10
    numbering.lose()
    assert numbering.needs_identity(1)
    assert numbering.identity is NO_IDENTITY
    numbering.begin(Identity(2, 0))
    assert numbering.next == 0


def test_numbers_that_would_not_fit_ask_for_another_identity():
    numbering = Numbering()
    numbering.begin(Identity(1, 0))
    numbering.stored(SEQUENCE_MAX - 5)
    assert not numbering.needs_identity(5)
    assert numbering.needs_identity(6)


def test_a_learned_bound_holds_for_its_topic_until_it_expires():
    bounds = BatchBounds(1_000_000, expires_s=60.0)
    bounds.learn("small", 5_000, now_s=10.0)
    assert bounds.of("small", 69.0) == 5_000
    assert bounds.of("other", 69.0) == 1_000_000
    assert bounds.of("small", 70.0) == 1_000_000
