"""A log that loses its end gives the lost offsets again: what it stores there is new."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hermes_actors.consumer.offsets.partition import PartitionOffsets, Trail
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.log.base import EARLIEST, Commit, LogUnavailable, TopicSettings
from hermes_actors.log.commits import CommitOwner, decode, encode
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_actors.model.record import StoredRecord
from hermes_chaos.sim.environment.clock import EPOCH_MS

OK, BUSY = SendOutcome(200), SendOutcome(503)


def bodies(first, end):
    return [b"%d" % n for n in range(first, end)]


def partition_of(world):
    return world.log.topics.known(world.topic).partitions[0]


@pytest.mark.parametrize("new", range(1, 9))
async def test_what_is_stored_where_the_log_was_cut_is_delivered_however_much_it_is(
    world, autojump_clock, new
):
    """Three are lost, and fewer, as many and more are stored before anybody looks again."""
    await world.publish(*bodies(0, 10))
    async with world.consuming() as consumer:
        await trio.sleep(3)
        partition_of(world).cut(7)
        await world.publish(*bodies(100, 100 + new))
        await trio.sleep(40)
        assert world.sender.bodies == bodies(0, 10) + bodies(100, 100 + new)
        assert consumer.status().positions == {0: 7 + new}
    assert (await world.committed()).position == 7 + new
    assert world.crashes == []


@pytest.mark.parametrize("new", [2, 5])
async def test_who_has_read_nothing_yet_notices_too(world, autojump_clock, new):
    await world.publish(*bodies(0, 10))
    async with world.consuming():
        await trio.sleep(3)
    async with world.consuming():
        await trio.sleep(3)
        partition_of(world).cut(7)
        await world.publish(*bodies(100, 100 + new))
        await trio.sleep(3)
    assert world.sender.bodies == bodies(0, 10) + bodies(100, 100 + new)


@pytest.mark.parametrize("settled", [(10, ()), (2, ((5, 10),))], ids=["all", "intervals"])
async def test_who_begins_with_a_commit_above_the_end_begins_at_the_end(
    world, autojump_clock, settled
):
    position, intervals = settled
    await world.publish(*bodies(0, 10))
    said = Commit(position, encode(position, intervals, CommitOwner(0, 7)))
    await world.log.commit("shop_orders_push", "shop.orders", {0: said})
    partition_of(world).cut(7)
    async with world.consuming():
        await trio.sleep(3)
        await world.publish(*bodies(100, 105))
        await trio.sleep(3)
    assert world.sender.bodies == bodies(position, 5) + bodies(100, 105)


@pytest.mark.parametrize("kept", [0, 1, 7])
@pytest.mark.parametrize("new", [3, 10, 20])
async def test_what_came_instead_while_nobody_consumed_is_delivered(
    world, autojump_clock, kept, new
):
    """The log is as long as what was committed, or longer: its length does not tell that it was
    cut; the record that was read last does.
    """
    await world.publish(*bodies(0, 10))
    async with world.consuming():
        await trio.sleep(3)
    assert (await world.committed()).position == 10
    partition_of(world).cut(kept)
    await world.publish(*bodies(100, 100 + new))
    async with world.consuming():
        await trio.sleep(30)
    delivered = world.sender.bodies[10:]
    assert set(bodies(100, 100 + new)) <= set(delivered)
    assert set(delivered) <= set(bodies(0, kept)) | set(bodies(100, 100 + new))
    assert (await world.committed()).position == kept + new


@pytest.mark.parametrize("had", [(1, 5), (5, 1), (5, 3)])
async def test_what_came_instead_in_one_partition_hides_not_what_came_in_another(
    make_world, autojump_clock, had
):
    """What is read again to know the log is read one by one, and broken off by what is found."""
    world = make_world(partitions=2, read_batch_bytes_max=1)
    await world.create()
    for partition, count in enumerate(had):
        await world.publish(*bodies(10 * partition, 10 * partition + count), partition=partition)
    async with world.consuming():
        await trio.sleep(3)
    wanted = [bodies(100, 100 + had[0]), bodies(200, 200 + had[1])]
    for partition, new in enumerate(wanted):
        world.log.topics.known(world.topic).partitions[partition].cut(0)
        await world.publish(*new, partition=partition)
    async with world.consuming():
        await trio.sleep(60)
    assert sorted(world.sender.bodies[sum(had) :]) == [*wanted[0], *wanted[1]]


async def test_what_was_settled_above_what_waits_hides_nothing_that_came_instead(
    world, autojump_clock
):
    await world.publish(*bodies(0, 10))
    world.sender.script = lambda push: BUSY if push.body == b"0" else OK
    async with world.consuming():
        await trio.sleep(3)
    assert decode(await world.committed()).intervals == ((1, 10),)
    partition_of(world).cut(4)
    await world.publish(*bodies(100, 110))
    world.sender.script = lambda _push: OK
    world.sender.pushes.clear()
    async with world.consuming():
        await trio.sleep(30)
    assert {b"0", *bodies(100, 110)} <= set(world.sender.bodies)
    assert (await world.committed()).position == 14


async def test_what_came_instead_of_the_last_record_alone_is_delivered(world, autojump_clock):
    """All before it is older than clocks may differ, and nothing of it is settled."""
    world.sender.script = lambda _push: BUSY
    await world.publish(*bodies(0, 9))
    await trio.sleep(10)
    await world.publish(b"9")
    async with world.consuming():
        await trio.sleep(3)
    assert (await world.committed()).position == 0
    partition_of(world).cut(9)
    await world.publish(*bodies(100, 103))
    world.sender.script = lambda _push: OK
    world.sender.pushes.clear()
    async with world.consuming():
        await trio.sleep(30)
    assert world.sender.bodies == bodies(0, 9) + bodies(100, 103)


async def test_that_retention_was_there_too_hides_not_what_came_instead(world, autojump_clock):
    await world.publish(*bodies(0, 20))
    await world.log.topics.alter(world.topic, TopicSettings(retention_ms=1_000_000))
    async with world.consuming():
        await trio.sleep(3)
    await trio.sleep(1_000)
    partition_of(world).cut(18)
    await world.publish(*bodies(100, 103))
    world.log.expire(world.clock.now_ms())
    assert (await world.log.positions(world.topic, EARLIEST)) == {0: 18}
    async with world.consuming():
        await trio.sleep(30)
    assert world.sender.bodies[20:] == bodies(100, 103)


async def test_a_log_that_was_not_cut_is_gone_on_with_where_the_commit_says(world, autojump_clock):
    await world.publish(*bodies(0, 40))
    for first in (40, 45, 50):
        async with world.consuming():
            await trio.sleep(3)
        await world.publish(*bodies(first, first + 5))
    async with world.consuming():
        await trio.sleep(3)
    assert world.sender.bodies == bodies(0, 55)


async def test_a_commit_of_before_the_cut_that_comes_back_hides_nothing(world, autojump_clock):
    """The commit that said so was lost as well: the last but one counts again."""
    await world.publish(*bodies(0, 5))
    async with world.consuming():
        await trio.sleep(3)
        before = await world.committed()
        partition_of(world).cut(0)
        await trio.sleep(3)
    await world.publish(*bodies(100, 110))
    await world.log.commit("shop_orders_push", "shop.orders", {0: before})
    async with world.consuming():
        await trio.sleep(30)
    assert world.sender.bodies[5:] == bodies(100, 110)


async def test_while_one_partition_has_no_leader_the_others_are_delivered(
    make_world, monkeypatch, autojump_clock
):
    """Whether its end is still there cannot be asked: it alone waits for that."""
    world = make_world(partitions=2)
    await world.create()
    await world.publish(*bodies(0, 5))
    await world.publish(*bodies(10, 15), partition=1)
    bounds, leaderless = world.log.bounds, {1}

    async def bounds_of_those_with_a_leader(topic, partition):
        if partition in leaderless:
            raise LogUnavailable(f"{topic}/{partition} has no leader")
        return await bounds(topic, partition)

    monkeypatch.setattr(world.log, "bounds", bounds_of_those_with_a_leader)
    async with world.consuming() as consumer:
        await trio.sleep(3)
        world.log.topics.known(world.topic).partitions[1].cut(3)
        await world.publish(*bodies(20, 25))
        await world.publish(b"30", partition=1)
        await trio.sleep(30)
        assert world.sender.bodies[10:] == bodies(20, 25)
        assert "partitions 1 cannot be read" in consumer.status().why
        leaderless.clear()
        await trio.sleep(3)
        assert world.sender.bodies[15:] == [b"30"]
        assert consumer.status().why == ""
    assert world.crashes == []


async def test_that_one_partition_ends_too_early_hides_not_that_another_was_cut(
    make_world, autojump_clock
):
    """Both were cut, and one has as many records again as were read of it."""
    world = make_world(partitions=2)
    await world.create()
    for partition in (0, 1):
        await world.publish(*bodies(0, 10), partition=partition)
    async with world.consuming() as consumer:
        await trio.sleep(3)
        world.log.faults.read_delay_s = (1.0, 1.0)
        for partition, new in ((0, bodies(100, 103)), (1, bodies(200, 201))):
            world.log.topics.known(world.topic).partitions[partition].cut(7)
            await world.publish(*new, partition=partition)
        await trio.sleep(60)
        assert sorted(world.sender.bodies[20:]) == [*bodies(100, 103), b"200"]
        assert consumer.status().positions == {0: 10, 1: 8}
    assert world.crashes == []


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("new", [2, 3, 5])
async def test_a_cut_of_a_partition_that_is_not_read_since_too_much_is_unsettled_is_noticed(
    make_world, autojump_clock, new, partitions
):
    world = make_world(partitions=partitions, unsettled_span_max=10)
    await world.create()
    stuck: set[bytes] = {b"0"}
    world.sender.script = lambda push: BUSY if push.body in stuck else OK
    async with world.consuming() as consumer:
        await world.publish(*bodies(0, 10))
        await trio.sleep(3)
        assert "unsettled_span_max" in consumer.status().why
        world.log.topics.known(world.topic).partitions[0].cut(7)
        await world.publish(*bodies(100, 100 + new))
        await trio.sleep(3)
        stuck.clear()
        await trio.sleep(60)
        assert [body for body in world.sender.bodies if len(body) == 3] == bodies(100, 100 + new)
        assert consumer.status().positions[0] == 7 + new
    assert world.crashes == []


async def test_what_lies_before_the_place_to_begin_may_be_gone(world, autojump_clock):
    await world.publish(*bodies(0, 10))
    async with world.consuming():
        await trio.sleep(3)
    await world.log.topics.alter(world.topic, TopicSettings(retention_ms=0))
    world.log.expire(EPOCH_MS + 3_600_000)
    async with world.consuming():
        await trio.sleep(3)
        await world.publish(*bodies(10, 12))
        await trio.sleep(3)
    assert world.sender.bodies == bodies(0, 12)
    assert world.count("expired") == 0


async def test_what_is_stored_while_the_log_was_in_trouble_and_lost_its_end_is_delivered(
    world, autojump_clock
):
    await world.publish(*bodies(0, 10))
    async with world.consuming():
        await trio.sleep(3)
        world.log.faults.reads_failing = True
        await trio.sleep(3)
        partition_of(world).cut(7)
        await world.publish(*bodies(100, 106))
        await trio.sleep(3)
        world.log.faults.reads_failing = False
        await trio.sleep(3)
    assert world.sender.bodies == bodies(0, 10) + bodies(100, 106)


async def test_what_was_cut_far_below_is_read_again_from_before_the_cut(world, autojump_clock):
    """Of what was read long ago not each record is remembered: some come twice, none is lost."""
    await world.publish(*bodies(0, 300))
    async with world.consuming():
        await trio.sleep(3)
        partition_of(world).cut(120)
        await world.publish(*bodies(1_000, 1_300))
        await trio.sleep(3)
    again = world.sender.bodies[300:]
    assert again[-300:] == bodies(1_000, 1_300)
    assert again[:-300] == bodies(120 - len(again[:-300]), 120)


async def test_where_all_that_is_remembered_is_gone_its_time_says_where_to_go_on(
    world, autojump_clock
):
    for n in range(100):
        await world.publish(b"%d" % n)
        await trio.sleep(1)
    async with world.consuming():
        await trio.sleep(3)
    async with world.consuming():
        await trio.sleep(3)
        partition_of(world).cut(60)
        await world.publish(*bodies(1_000, 1_005))
        await trio.sleep(3)
    again = world.sender.bodies[100:]
    assert again[-5:] == bodies(1_000, 1_005)
    assert len(again) <= 10


async def test_what_waits_for_its_retry_is_not_settled_by_a_cut(world, autojump_clock):
    """Of the lost as of the others: a crash would lose what a commit says is settled."""
    world.sender.script = lambda push: SendOutcome(503) if push.body in (b"3", b"8") else OK
    await world.publish(*bodies(0, 10))
    live = world.live(policy={"message_backoff": 5_000})
    async with world.consuming(live) as consumer:
        await trio.sleep(3)
        partition_of(world).cut(7)
        await world.publish(*bodies(100, 104))
        await trio.sleep(1.5)
        assert consumer.status().positions == {0: 3}
        assert (await world.committed()).position == 3
        world.sender.script = lambda _push: OK
        await trio.sleep(20)
        assert consumer.status().positions == {0: 11}
    delivered = world.sender.bodies
    assert delivered.count(b"100") == 1
    assert sorted(delivered[-2:]) == [b"3", b"8"]


async def test_a_log_that_was_in_trouble_and_lost_nothing_gives_nothing_again(
    world, autojump_clock
):
    await world.publish(*bodies(0, 10))
    async with world.consuming():
        await trio.sleep(3)
        world.log.faults.reads_failing = True
        await world.publish(*bodies(10, 15))
        await trio.sleep(3)
        world.log.faults.reads_failing = False
        await trio.sleep(3)
    assert world.sender.bodies == bodies(0, 15)


def test_an_offset_that_was_given_again_is_settled_when_both_of_its_records_are():
    offsets = PartitionOffsets(0)
    for offset in range(4):
        offsets.begin(offset)
    offsets.settle(0)
    offsets.cut(2)
    offsets.settle(1)
    assert (offsets.read_end, offsets.position) == (2, 2)
    assert offsets.begin(2)
    offsets.settle(2)
    assert offsets.position == 2
    offsets.settle(2)
    assert offsets.position == 3
    offsets.settle(3)
    assert offsets.begin(3)
    assert offsets.position == 3


def test_a_cut_below_all_that_is_settled_takes_the_position_back():
    offsets = PartitionOffsets(5, [(7, 9), (12, 20)])
    offsets.cut(8)
    assert (offsets.position, list(offsets.intervals())) == (5, [(7, 8)])
    offsets.cut(3)
    assert (offsets.position, list(offsets.intervals())) == (3, [])


@given(
    read=st.integers(1, 400), cut=st.integers(0, 400), new=st.integers(0, 40), start=st.integers(0)
)
async def test_the_place_to_go_on_from_is_never_above_the_cut(read, cut, new, start):
    """And it is the cut itself where that is near, or was not at all."""
    cut = min(cut, read)
    start = min(start, cut)
    first_life = [record(offset, 0) for offset in range(read)]
    trail = Trail()
    for each in first_life:
        trail.note(each)
    held = first_life[:cut] + ([record(cut + n, 1) for n in range(new)] if cut < read else [])
    place = await trail.find_end(Held(held), "t", 0, start, len(held), read, 5_000)
    assert place <= cut
    if cut > read - 16:
        assert place == cut


def record(offset, life):
    return StoredRecord(0, offset, 1_000, None, b"body", (("id", b"%d/%d" % (life, offset)),))


class Held:
    """Reads one record of what a log holds."""

    def __init__(self, records):
        self._records = records

    def reader(self, _topic, positions):
        self._at = positions[0]
        return self

    async def positions(self, _topic, timestamp_ms):
        assert timestamp_ms <= 1_000
        return {0: 0}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def position(self, _partition):
        return self._at

    async def next_batch(self, _records_max, _bytes_max):
        if self._at >= len(self._records):
            raise LogUnavailable("a reader would wait here")
        return [self._records[self._at]]


@pytest.mark.parametrize("kept", [0, 3, 10])
@pytest.mark.parametrize("new", [0, 5, 20])
async def test_a_retransmission_that_is_older_than_the_log_hides_nothing_that_came_instead(
    world, autojump_clock, kept, new
):
    """As in a datacentre that was rebuilt: its metadata came back, its log and commits did not."""
    await world.publish(*bodies(0, 10))
    seek = Seek(world.clock.now_ms(), SeekBody(7, 0, {"dc1": {0: 10}}))
    partition_of(world).cut(kept)
    await trio.sleep(60)
    await world.publish(*bodies(100, 100 + new))
    async with world.consuming(replace(world.live(), seek=seek)):
        await world.publish(*bodies(200, 205))
        await trio.sleep(10)
    assert world.sender.bodies == bodies(100, 100 + new) + bodies(200, 205)
