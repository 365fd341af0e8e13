import random

import pytest
import trio

from hermes_actors.consumer.offsets.progress import TopicProgress
from hermes_actors.coordination.owned import Owned
from hermes_actors.log.base import Commit, LogUnavailable, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_chaos.sim.environment.clock import EPOCH_MS
from tests.values import a_subscription

RECORDS = [Record(None, b"", (), EPOCH_MS)] * 12
NAME = SubscriptionName.parse("shop.orders$push")
GROUP = NAME.consumer_group("")
SEEK = Seek(2, SeekBody(7, 0, time_ms=0))


class SlowFirstCommit(MemoryLog):
    delays_s = (5.0, 0.0)

    async def commit(self, group, topic, commits):
        delay_s, *self.delays_s = self.delays_s
        await trio.sleep(delay_s)
        await super().commit(group, topic, commits)


def progress_of(log, owned=None):
    subscription = a_subscription(topic="shop.orders", created_at=0)
    live = LiveSubscription(NAME, subscription, 0, 7, 1, seek=SEEK)
    return TopicProgress(live, log, "t", "", owned or Owned(), 0)


async def test_a_slow_commit_never_lands_on_top_of_a_later_one(trio_clock, autojump_clock):
    log = SlowFirstCommit("dc1", trio_clock)
    await log.topics.create("t", TopicSettings())
    progress = progress_of(log)
    await progress.load()
    offsets = progress.partitions[0]
    async with trio.open_nursery() as nursery:
        for offset in range(2):
            offsets.begin(offset)
            offsets.settle(offset)
            nursery.start_soon(progress.commit, 0.0)
            await trio.sleep(1)
    assert (await log.committed(GROUP, "t"))[0].position == 2


async def test_nothing_new_is_not_committed_again_but_after_an_hour(trio_clock):
    log = MemoryLog("dc1", trio_clock)
    await log.topics.create("t", TopicSettings(partitions=2))
    progress = progress_of(log)
    await progress.load()
    assert await progress.commit(0.0)
    assert not await progress.commit(1.0)
    progress.partitions[1].begin(0)
    assert not await progress.commit(2.0)
    progress.partitions[1].settle(0)
    assert await progress.commit(3.0)
    assert await progress.commit(3_600.0)


async def test_a_commit_from_before_a_retransmission_is_ignored_one_of_it_counts(trio_clock):
    log = MemoryLog("dc1", trio_clock)
    await log.topics.create("t", TopicSettings())
    await log.append("t", 0, RECORDS, Ack.ALL)
    for seek, position in ((1, 0), (2, 5), (3, 5)):
        metadata = f"h1:0:7:9:{seek}:"
        await log.commit(GROUP, "t", {0: Commit(5, metadata)})
        progress = progress_of(log)
        await progress.load()
        assert progress.partitions[0].position == position


async def test_loading_again_finds_only_new_partitions(trio_clock):
    log = MemoryLog("dc1", trio_clock)
    await log.topics.create("t", TopicSettings(partitions=2))
    progress = progress_of(log)
    assert await progress.load()
    first = dict(progress.partitions)
    assert not await progress.load()
    await log.topics.alter("t", TopicSettings(partitions=3))
    assert await progress.load()
    assert sorted(progress.partitions) == [0, 1, 2]
    assert all(progress.partitions[number] is first[number] for number in first)


class AnswerLost(MemoryLog):
    """Stores a commit and says that it could not."""

    async def commit(self, group, topic, commits):
        await super().commit(group, topic, commits)
        raise LogUnavailable("the answer was lost")


async def test_many_that_begin_together_do_not_look_at_their_commits_together(
    trio_clock, autojump_clock
):
    log = MemoryLog("dc1", trio_clock)
    await log.topics.create("t", TopicSettings())
    looks, committed, rng = [], log.committed, random.Random(1)

    async def counted(group, topic):
        looks.append(int(trio.current_time()))
        return await committed(group, topic)

    progresses = [progress_of(log) for _ in range(300)]
    for progress in progresses:
        await progress.load()
    log.committed = counted
    began_s = int(trio.current_time())
    async with trio.open_nursery() as nursery:
        for progress in progresses:
            nursery.start_soon(progress.keep_committed, lambda: None, rng)
    assert len(looks) == 600
    assert max(looks.count(second) for second in set(looks)) < 250
    assert max(looks) <= began_s + 15


async def test_a_commit_of_ours_that_went_through_unheard_is_no_strangers(
    trio_clock, autojump_clock, caplog
):
    log = AnswerLost("dc1", trio_clock)
    await log.topics.create("t", TopicSettings())
    progress = progress_of(log)
    await MemoryLog.commit(log, GROUP, "t", {0: Commit(0, "h1:0:7:0:2:")})
    await progress.load()
    progress.partitions[0].begin(0)
    progress.partitions[0].settle(0)
    with pytest.raises(LogUnavailable):
        await progress.commit(0.0)
    overwritten = []
    await progress.keep_committed(lambda: overwritten.append(1), random.Random(1))
    assert overwritten == []
    assert caplog.records == []
    # Somebody else's is.
    await MemoryLog.commit(log, GROUP, "t", {0: Commit(1, "h1:0:7:0:1:")})
    await progress.keep_committed(lambda: overwritten.append(1), random.Random(1))
    assert overwritten == [1]
