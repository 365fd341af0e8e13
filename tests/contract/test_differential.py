"""Random operations on memory, embedded and Kafka logs give the same observable results."""

import math
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Commit,
    OffsetOutOfRange,
    RefusedRecord,
    TopicSettings,
    UnknownTopic,
)
from hermes_actors.model.record import Record, StoredRecord
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest

names = st.sampled_from(["a", "b"])
partitions = st.integers(0, 3)
topic_settings = st.builds(
    TopicSettings,
    partitions=st.integers(1, 3),
    retention_ms=st.sampled_from([None, 0, 50, 500]),
    record_bytes_max=st.sampled_from([5, 1_000]),
    log_append_time=st.booleans(),
)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=3),
    value=st.binary(max_size=6),
    headers=st.lists(st.tuples(st.text("hé", max_size=2), st.binary(max_size=2)), max_size=2).map(
        tuple
    ),
    timestamp_ms=st.integers(0, 1_000),
)
appends = st.tuples(
    st.just("append"), names, partitions, st.lists(records, max_size=5), st.integers(0, 1_000)
)
operations = st.one_of(
    st.tuples(st.just("create"), names, topic_settings),
    appends,
    appends,
    appends,
    st.tuples(st.just("alter"), names, topic_settings),
    st.tuples(st.just("delete"), names),
    st.tuples(
        st.just("commit"),
        st.sampled_from(["g", "h"]),
        names,
        st.dictionaries(
            partitions, st.builds(Commit, st.integers(-1, 9), st.text(max_size=3)), max_size=2
        ),
    ),
    st.tuples(st.just("expire"), st.integers(0, 1_500)),
    st.tuples(st.just("positions"), names, st.integers(0, 1_001)),
    st.tuples(
        st.just("read"),
        names,
        st.dictionaries(st.integers(0, 2), st.integers(0, 12), min_size=1, max_size=3),
        st.integers(1, 6),
        st.integers(0, 20),
    ),
    st.tuples(st.just("reopen")),
)
scripts = st.lists(operations, min_size=5, max_size=40).map(
    lambda script: [("create", "a", TopicSettings(2, 500, 1_000)), *script]
)


async def play(under_test, script):
    """What a caller sees of each operation, and the whole state after the last."""
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(under_test.open())
        seen = []
        for operation in [*script, ("reopen",)]:
            if operation[0] == "reopen":
                await stack.aclose()
                log = await stack.enter_async_context(under_test.open())
                seen.append(await everything(log))
                continue
            try:
                seen.append(await step(under_test, log, *operation))
            except (UnknownTopic, ValueError) as error:
                seen.append(type(error))
            except OffsetOutOfRange as error:
                seen.append((error.partition, error.position, error.start, error.end))
        return seen


async def step(under_test, log, kind, *rest):
    match kind:
        case "create":
            return await log.topics.create(*rest)
        case "alter":
            return await log.topics.alter(*rest)
        case "delete":
            return await log.topics.delete(*rest)
        case "append":
            topic, partition, batch, under_test.clock.wall_ms = rest
            return await log.append(topic, partition, batch, Ack.ALL)
        case "commit":
            return await log.commit(*rest)
        case "expire":
            (under_test.clock.wall_ms,) = rest
            return await under_test.expire(log)
        case "positions":
            return await log.positions(*rest)
        case "read":
            return await read(log, *rest)
    raise AssertionError(kind)


async def read(log, topic, positions, records_max, bytes_max):
    """Batches until nothing is left to read; the same batches, not only the same records."""
    batches = []
    ends = await log.positions(topic, LATEST)
    behind = [ends.get(n, 0) - position for n, position in positions.items()]
    # What lies beyond an end is refused, sooner or later.
    left = math.inf if min(behind) < 0 else sum(behind)
    async with log.reader(topic, positions) as reader:
        while True:
            with trio.move_on_after(10 if left > 0 else 0):
                batch = await reader.next_batch(records_max, bytes_max)
                left -= len(batch)
                batches.append(batch)
                continue
            return batches


async def everything(log):
    state = []
    for topic in await log.topics.names():
        starts, ends = await log.positions(topic, EARLIEST), await log.positions(topic, LATEST)
        state.append((topic, await log.topics.describe(topic), starts, ends))
        state.append([await log.committed(group, topic) for group in ("g", "h")])
        state.append([await log.positions(topic, ms) for ms in range(0, 1_001, 250)])
        state.append(await read(log, topic, starts, 100, 10_000))
    return state


@settings(deadline=None)
@given(script=scripts)
def test_memory_and_embedded_cannot_be_told_apart(make_log_under_test, script):
    with tempfile.TemporaryDirectory() as directory:
        seen = {
            kind: trio.run(play, make_log_under_test(kind, Path(directory) / kind), script)
            for kind in ("memory", "embedded")
        }
    assert seen["memory"] == seen["embedded"]


# A broker stamps by its own clock, so no topic here has it stamp; and a change of a topic takes it
# some 50 ms, so the scripts are fewer, shorter, and begin with something to look at.
some_records = st.lists(records, min_size=1, max_size=5)
kafka_scripts = st.tuples(
    some_records,
    some_records,
    st.lists(
        st.one_of(appends, appends, operations).map(
            lambda operation: tuple(without_log_append_time(part) for part in operation)
        ),
        min_size=8,
        max_size=25,
    ),
).map(
    lambda drawn: [
        ("create", "a", TopicSettings(2, 500, 1_000)),
        ("create", "b", TopicSettings(3, None, 1_000)),
        ("append", "a", 1, drawn[0], 0),
        ("append", "b", 0, drawn[1], 0),
        *drawn[2],
    ]
)


def without_log_append_time(part):
    """Nor with a limit of a few bytes: a broker bounds batches."""
    if isinstance(part, TopicSettings):
        return TopicSettings(part.partitions, part.retention_ms, 1_000)
    return part


def plain(script, seen):
    """What a caller may rely on: in Kafka the batches of several partitions mix as they come in,
    each partition in its order; a reader of several may be told first of any that it cannot read;
    and the words of a refusal are each log's own.
    """
    operations = [*script, ("reopen",)]
    results = []
    for operation, result in zip(operations, seen, strict=True):
        is_error = isinstance(result, type | tuple)
        if operation[0] == "read" and len(operation[2]) > 1 and is_error:
            result = "cannot be read"
        results.append(unmixed(result))
    return results


def unmixed(result):
    if isinstance(result, RefusedRecord):
        return RefusedRecord
    if not isinstance(result, list | tuple):
        return result
    if result and all(isinstance(batch, list) and is_batch(batch) for batch in result):
        records = sorted(
            (record for batch in result for record in batch), key=lambda r: r.partition
        )
        # Only the topics of Kafka have a prefix.
        return [(record.partition, replace(record, origin="")) for record in records]
    return [unmixed(part) for part in result]


def is_batch(batch):
    return bool(batch) and all(isinstance(record, StoredRecord) for record in batch)


# Not shrunk: on a real broker that takes minutes, and a script is short as it is.
@pytest.mark.kafka
@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(script=kafka_scripts)
def test_kafka_cannot_be_told_apart_from_the_others(
    make_log_under_test, make_kafka_under_test, script
):
    with tempfile.TemporaryDirectory() as directory:
        memory, embedded = (
            trio.run(play, make_log_under_test(kind, Path(directory) / kind), script)
            for kind in ("memory", "embedded")
        )
    kafka = guest.run(play, make_kafka_under_test(), script)
    assert plain(script, kafka) == plain(script, memory) == plain(script, embedded)
