"""Produce requests and answers: aiokafka's own structures read and write the same bytes."""

import io

import pytest
from aiokafka.protocol import produce as theirs
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.kafka import produce

VERSIONS = range(produce.VERSION_MIN, produce.VERSION_MAX + 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def by_topic(parts):
    return st.dictionaries(NAMES, st.lists(parts, max_size=4), max_size=4).map(
        lambda topics: list(topics.items())
    )


BATCHES = by_topic(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=50)))
PARTITIONS = st.tuples(
    st.integers(0, 2**31 - 1), st.integers(-1, 100), st.integers(-1, 2**63 - 1), st.just(-1)
)


@pytest.mark.parametrize("version", VERSIONS)
@given(st.sampled_from([-1, 0, 1]), st.integers(0, 2**31 - 1), BATCHES)
def test_a_request_is_the_one_that_aiokafka_reads(version, acks, timeout_ms, topics):
    body = produce.encode(acks, timeout_ms, topics)
    structure = getattr(theirs, f"ProduceRequest_v{version}")
    assert body == structure(None, acks, timeout_ms, topics).encode()
    read = structure.decode(io.BytesIO(body))
    assert (read.required_acks, read.timeout) == (acks, timeout_ms)


@pytest.mark.parametrize("version", VERSIONS)
@given(by_topic(PARTITIONS))
def test_an_answer_is_read_as_aiokafka_writes_it(version, topics):
    rows = [
        (topic, [(*part, 0) if version >= 5 else part for part in parts]) for topic, parts in topics
    ]
    structure = getattr(theirs, f"ProduceResponse_v{version}")
    answer = structure(topics=rows, throttle_time_ms=0).encode()
    assert produce.decode(answer, version) == {
        (topic, number): (code, offset)
        for topic, parts in topics
        for number, code, offset, _ in parts
    }
