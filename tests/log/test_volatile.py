"""Topics in memory: nodes that hold messages, and the log through which consumers read them."""

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.base import (
    EARLIEST,
    LATEST,
    Commit,
    LogUnavailable,
    OffsetOutOfRange,
    Stored,
    TopicSettings,
    UnavailableRecord,
)
from hermes_actors.log.memory import MemoryLog
from hermes_actors.log.volatile.held import Held, MemoryPolicy
from hermes_actors.log.volatile.log import GONE_AFTER_S, LIFE_OFFSETS, Holder, VolatileLog
from hermes_actors.log.volatile.ring import OVERHEAD_BYTES, Ring
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from tests.hand_clock import HandClock

TOPIC = "shop.orders~memory"
GROUP = "shop_orders_billing"
COST = 8 + OVERHEAD_BYTES


def records(*numbers):
    return [Record(None, b"%08d" % number, (), 1_000 + number) for number in numbers]


def numbers(found):
    return [int(each.value) for each in found]


class Scene:
    """Nodes that hold messages, and the log of a consumer on yet another node."""

    def __init__(self, *lives, bytes_max=1_000 * COST, waits=False):
        self.policy = {TOPIC: MemoryPolicy(bytes_max, waits, (GROUP,))}
        self.nodes, self.silent = {}, set()
        self.log = VolatileLog(MemoryLog("dc1", HandClock()), self.ask, trio.current_time)
        self.holders = {}
        for number, life in enumerate(lives):
            self.begin(number, life)

    def begin(self, number, life):
        held = Held("dc1", wait_s=1.0)
        held.adopt(self.policy)
        holder = Holder(f"n{number}", life, "", f"{number}.{life}")
        held.begin(number, holder.base)
        self.nodes[number], self.holders[number] = held, holder
        self.log.adopt(dict(self.holders), [TOPIC])

    async def ask(self, holder, asked):
        await trio.sleep(0.001)
        number = int(holder.node[1:])
        if number in self.silent or self.holders[number] != holder:
            raise LogUnavailable("it is silent")
        return await self.nodes[number].answer(asked)

    async def publish(self, number, *values):
        return await self.nodes[number].append(TOPIC, records(*values))


async def read(reader, count):
    found = []
    with trio.fail_after(30):
        while len(found) < count:
            found += await reader.next_batch(100, 1_000_000)
    return found


@given(
    sizes=st.lists(st.integers(0, 3_000), max_size=60),
    settled=st.integers(0, 60),
    bytes_max=st.integers(OVERHEAD_BYTES, 20_000),
)
def test_a_ring_stays_within_its_bytes_and_never_drops_above_its_floor(sizes, settled, bytes_max):
    ring = Ring(LIFE_OFFSETS)
    ring.commits[GROUP] = Commit(LIFE_OFFSETS + settled)
    for size in sizes:
        floor = ring.floor([GROUP])
        fits = ring.make_room(size + OVERHEAD_BYTES, bytes_max, floor)
        if fits:
            ring.add(0, Record(None, bytes(size), (), 0), "")
        assert ring.start <= LIFE_OFFSETS + settled
        assert ring.size_bytes <= bytes_max or ring.end == ring.start + 1
        assert fits or ring.start == floor
    held = ring.read(ring.start, 100, 1_000_000)
    assert [each.offset for each in held] == list(range(ring.start, ring.end))


async def test_messages_of_all_holders_are_read_committed_and_measured(autojump_clock):
    scene = Scene(100, 200)
    log = scene.log
    stored = await scene.publish(0, 1, 2)
    assert list(stored) == [Stored(100 * LIFE_OFFSETS), Stored(100 * LIFE_OFFSETS + 1)]
    await scene.publish(1, 3)
    starts = await log.positions(TOPIC, EARLIEST)
    assert starts == {0: 100 * LIFE_OFFSETS, 1: 200 * LIFE_OFFSETS}
    assert (await log.positions(TOPIC, 1_002))[0] == starts[0] + 1
    async with log.reader(TOPIC, starts) as reader:
        found = await read(reader, 3)
        assert sorted(numbers(found)) == [1, 2, 3]
        assert {each.partition for each in found} == {0, 1}
        await scene.publish(1, 4)
        assert numbers(await read(reader, 1)) == [4]
        commits = {number: Commit(reader.position(number), "x") for number in (0, 1)}
    await log.commit(GROUP, TOPIC, commits)
    assert await log.committed(GROUP, TOPIC) == commits
    assert await log.positions(TOPIC, LATEST) == {0: starts[0] + 2, 1: starts[1] + 2}
    assert await log.topics.partitions([TOPIC]) == {TOPIC: 2}
    assert [each.undelivered for each in scene.nodes.values()] == [0, 0]


async def test_a_new_life_of_a_holder_neither_skips_nor_stalls(autojump_clock):
    scene = Scene(100, 200)
    await scene.publish(0, 1)
    await scene.publish(1, 2)
    async with scene.log.reader(TOPIC, await scene.log.positions(TOPIC, EARLIEST)) as reader:
        await read(reader, 2)
        # It crashes, and what it held is lost; the other is read meanwhile.
        scene.silent.add(0)
        await scene.publish(1, 3)
        assert numbers(await read(reader, 1)) == [3]
        scene.silent.clear()
        scene.begin(0, 101)
        await scene.publish(0, 4)
        assert numbers(await read(reader, 1)) == [4]
        assert reader.position(0) == 101 * LIFE_OFFSETS + 1


async def test_a_silent_holder_counts_as_gone_after_a_while_and_gets_its_commits_when_it_is_back(
    autojump_clock,
):
    scene = Scene(100)
    log, base = scene.log, 100 * LIFE_OFFSETS
    await scene.publish(0, 1, 2)
    scene.silent.add(0)
    with pytest.raises(LogUnavailable):
        await log.positions(TOPIC, LATEST)
    await log.commit(GROUP, TOPIC, {0: Commit(base + 2)})
    await trio.sleep(GONE_AFTER_S)
    assert await log.positions(TOPIC, LATEST) == {0: base}
    assert await log.committed(GROUP, TOPIC) == {0: Commit(base + 2)}
    scene.silent.clear()
    await trio.sleep(2)
    assert await log.positions(TOPIC, LATEST) == {0: base + 2}
    assert scene.nodes[0].undelivered == 0


async def test_a_topic_may_be_deleted_while_its_commits_are_sent(autojump_clock):
    scene = Scene(100)
    scene.silent.add(0)
    for group in (GROUP, "another"):
        await scene.log.commit(group, TOPIC, {0: Commit(100 * LIFE_OFFSETS)})
    await trio.sleep(GONE_AFTER_S)
    scene.silent.clear()

    async def positions():
        assert await scene.log.positions(TOPIC, LATEST) == {0: 100 * LIFE_OFFSETS}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(positions)
        await trio.testing.wait_all_tasks_blocked()
        scene.log.adopt(scene.holders, [])


async def test_the_newest_win_and_each_reader_learns_what_it_missed(autojump_clock):
    scene = Scene(100, bytes_max=3 * COST)
    held, base = scene.nodes[0], 100 * LIFE_OFFSETS
    await scene.publish(0, 1, 2)
    await scene.log.commit(GROUP, TOPIC, {0: Commit(base + 1)})
    await scene.publish(0, 3, 4, 5)
    assert (held.dropped, held.undelivered, held.size_bytes) == (1, 3, 3 * COST)
    async with scene.log.reader(TOPIC, {0: base + 1}) as reader:
        with pytest.raises(OffsetOutOfRange) as caught:
            await reader.next_batch(10, 1_000)
        assert caught.value.start == base + 2
        reader.seek(0, base + 2)
        assert numbers(await read(reader, 3)) == [3, 4, 5]


async def test_an_idle_topic_gives_up_memory_when_its_share_becomes_smaller(autojump_clock):
    scene = Scene(100, bytes_max=4 * COST)
    held = scene.nodes[0]
    await scene.publish(0, 1, 2, 3, 4)
    held.adopt({TOPIC: MemoryPolicy(2 * COST, False, (GROUP,))})
    assert (held.size_bytes, held.undelivered, held.dropped) == (2 * COST, 2, 2)
    held.adopt({TOPIC: MemoryPolicy(COST, True, (GROUP,))})
    assert (held.undelivered, held.dropped) == (2, 2)


async def test_or_the_publisher_waits_until_the_subscriptions_have_settled_or_its_time_is_over(
    autojump_clock,
):
    scene = Scene(100, bytes_max=3 * COST, waits=True)
    held, base = scene.nodes[0], 100 * LIFE_OFFSETS
    await scene.publish(0, 1, 2, 3)
    (outcome,) = await scene.publish(0, 4)
    assert isinstance(outcome, UnavailableRecord)
    stored = []

    async def publish():
        stored.extend(await scene.publish(0, 5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        await trio.sleep(0.5)
        assert not stored
        await scene.log.commit(GROUP, TOPIC, {0: Commit(base + 1)})
    assert (stored, held.dropped) == ([Stored(base + 3)], 0)


async def test_only_topics_in_memory_are_in_memory(autojump_clock):
    scene = Scene(100)
    log = scene.log
    inner = MemoryLog("dc1", HandClock())
    over = VolatileLog(inner, scene.ask, trio.current_time)
    await over.topics.create("shop.orders", TopicSettings())
    assert await over.append("shop.orders", 0, records(1), Ack.LEADER) == [Stored(0)]
    async with over.reader("shop.orders", {0: 0}) as reader:
        assert numbers(await read(reader, 1)) == [1]
    # A node that holds no partition refuses every record.
    (outcome,) = await log.append(TOPIC, 0, records(1), Ack.LEADER)
    assert isinstance(outcome, UnavailableRecord)
