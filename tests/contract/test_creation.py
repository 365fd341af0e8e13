"""The ends of a topic when a subscription is created, as every log tells them."""

import pytest
import trio

from hermes_actors.log.base import TopicSettings, UnknownTopic
from hermes_actors.log.commits import LastRead
from hermes_actors.metadata.creation import read_creation
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack


def records(now_ms, *ids):
    return [Record(None, b"body", (("id", each),), now_ms) for each in ids]


async def test_the_ends_are_read_with_the_records_before_them(under_test):
    async with under_test.open() as log:
        await log.topics.create("t", TopicSettings(partitions=3))
        now_ms = under_test.now_ms()
        await log.append("t", 0, records(now_ms, b"a", b"b", b"c"), Ack.LEADER)
        await log.append("t", 2, records(now_ms, b"d"), Ack.LEADER)
        with trio.fail_after(60):
            creation = await read_creation(log, "t")
        assert (creation.dc, creation.ends) == (log.dc, {0: 3, 1: 0, 2: 1})
        assert sorted(creation.last_records) == [0, 2]
        async with log.reader("t", {0: 2}) as reader:
            (last,) = await reader.next_batch(1, 1)
        assert creation.last_records[0] == LastRead.of(
            2, last.timestamp_ms, last.headers, len(last.value)
        )


async def test_a_topic_that_is_not_there_has_no_ends(under_test):
    async with under_test.open() as log:
        with pytest.raises(UnknownTopic):
            await read_creation(log, "t")
