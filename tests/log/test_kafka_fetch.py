"""Fetch requests and answers: aiokafka's own structures read and write the same bytes."""

import io

import pytest
from aiokafka.protocol import fetch as theirs
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.kafka import fetch

VERSIONS = range(fetch.VERSION_MIN, fetch.VERSION_MAX + 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
OFFSETS = st.integers(0, 2**63 - 1)
ABORTED = st.lists(st.tuples(OFFSETS, OFFSETS), max_size=3)
FETCHES = st.builds(fetch.Fetch, st.integers(0, 2**31 - 1), OFFSETS, st.integers(0, 2**31 - 1))
ANSWERS = st.tuples(
    st.builds(
        fetch.FetchedPartition,
        st.integers(0, 2**31 - 1),
        st.integers(-1, 100),
        st.binary(max_size=40),
        ABORTED.map(tuple),
    ),
    OFFSETS,
    st.booleans(),
)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    NAMES,
    st.lists(FETCHES, max_size=4),
    st.integers(0, 9_999),
    st.integers(0, 2**31 - 1),
    st.sampled_from(sorted(fetch.ISOLATION_LEVELS.values())),
)
def test_a_request_is_the_one_that_aiokafka_reads(
    version, topic, fetches, wait_ms, bytes_max, isolation
):
    body = fetch.encode(
        version, topic, fetches, wait_ms=wait_ms, bytes_max=bytes_max, isolation=isolation
    )
    read = getattr(theirs, f"FetchRequest_v{version}").decode(io.BytesIO(body))
    assert read.encode() == body
    assert (read.max_wait_time, read.min_bytes, read.max_bytes) == (wait_ms, 1, bytes_max)
    assert read.isolation_level == isolation
    ((name, partitions),) = read.topics
    assert name == topic
    at = 2 if version >= 9 else 1
    assert [fetch.Fetch(each[0], each[at], each[-1]) for each in partitions] == fetches


@pytest.mark.parametrize("version", VERSIONS)
@given(st.lists(st.tuples(NAMES, st.lists(ANSWERS, max_size=3)), max_size=3))
def test_an_answer_is_read_as_aiokafka_writes_it(version, topics):
    starts = (0,) if version >= 5 else ()
    rows = [
        (
            topic,
            [
                (
                    *(each.partition, each.code, end, end, *starts),
                    None if is_null and not each.aborted else list(each.aborted),
                    each.records,
                )
                for each, end, is_null in parts
            ],
        )
        for topic, parts in topics
    ]
    sessions = {"error_code": 0, "session_id": 0} if version >= 7 else {}
    structure = getattr(theirs, f"FetchResponse_v{version}")
    answer = structure(throttle_time_ms=0, topics=rows, **sessions).encode()
    assert fetch.decode(answer, version) == [each for _, parts in topics for each, *_ in parts]
