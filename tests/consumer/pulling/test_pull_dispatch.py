"""Clients of a pull subscription, over the memory log and virtual time."""

import msgspec
import pytest
import trio

from hermes_actors.consumer.pulling.dispatch import ANSWER_BYTES_MAX, NotOwned
from hermes_actors.coordination.owned import Owned
from hermes_actors.model.subscription import DeliveryType
from hermes_actors.status.reasons import Code
from tests.consumer.conftest import World
from tests.consumer.hand_lease import HandLease


def pulled(world, **policy):
    fields = {"delivery_type": DeliveryType.PULL, "endpoint": ""}
    return world.live(policy={"message_backoff": 100, **policy}, **fields)


def bodies(outs):
    return [out.delivery.first.body for out in outs]


def ids(outs):
    return [str(out.ack_id) for out in outs]


def codes(consumer):
    return {each.code for each in consumer.made[-1].figures().reasons}


@pytest.fixture
async def world(nursery):
    world = World(nursery)
    await world.create()
    return world


async def test_what_is_acknowledged_is_committed_and_what_is_not_comes_again_after_its_deadline(
    world, autojump_clock
):
    await world.publish(b"1", b"2", b"3")
    async with world.consuming(pulled(world, ack_deadline_seconds=20)) as consumer:
        hand_out = consumer.made[-1].hand_out
        outs = await hand_out.pull(10, 0)
        assert bodies(outs) == [b"1", b"2", b"3"]
        assert await hand_out.acknowledge(ids(outs[:1])) == []
        await hand_out.extend(ids(outs[2:]), 60)
        at_s = trio.current_time()
        (again,) = await hand_out.pull(10, 30)
        assert again.delivery.first.body == b"2"
        assert 20 <= trio.current_time() - at_s < 20.5
        assert again.delivery.attempts == 1
        await hand_out.acknowledge(ids([again]))
        (last,) = await hand_out.pull(10, 100)
        assert last.delivery.first.body == b"3"
        assert 60 <= trio.current_time() - at_s < 60.5
        await hand_out.acknowledge(ids([last]))
        await trio.sleep(1.1)
        assert (await world.committed()).position == 3
        figures = consumer.made[-1].figures()
        assert (figures.counts.delivered, figures.counts.timeouts) == (3, 2)
        # Clients that fail do not slow the subscription.
        assert (figures.level, figures.rate_now) == ("FULL", 0)


async def test_a_message_that_nobody_pulls_is_neither_out_nor_too_old_and_status_says_why(
    world, autojump_clock
):
    await world.publish(b"1")
    async with world.consuming(pulled(world, message_ttl=10, attempts_max=1)) as consumer:
        await trio.sleep(600)
        figures = consumer.made[-1].figures()
        assert (figures.inflight, figures.counts.timeouts, figures.counts.discarded) == (0, 0, 0)
        assert codes(consumer) == {Code.NO_CLIENT.name}
        outs = await consumer.made[-1].hand_out.pull(1, 0)
        assert bodies(outs) == [b"1"]
        assert codes(consumer) == set()


async def test_a_nack_is_a_failed_attempt_with_the_delay_that_the_client_asks_for(
    world, autojump_clock
):
    await world.publish(b"1")
    async with world.consuming(pulled(world, attempts_max=2)) as consumer:
        hand_out = consumer.made[-1].hand_out
        at_s = trio.current_time()
        outs = await hand_out.pull(1, 0)
        assert await hand_out.give_back(ids(outs), 2_500) == []
        outs = await hand_out.pull(1, 10)
        assert 2.5 <= trio.current_time() - at_s < 2.6
        await hand_out.give_back(ids(outs), None)
        assert await hand_out.pull(1, 10) == []
        assert consumer.made[-1].figures().counts.discarded == 1


async def test_a_nack_with_a_long_delay_comes_again_before_its_time_to_live_ends(
    world, autojump_clock
):
    await world.publish(b"1")
    async with world.consuming(pulled(world, message_ttl=20)) as consumer:
        hand_out = consumer.made[-1].hand_out
        at_s = trio.current_time()
        outs = await hand_out.pull(1, 0)
        await trio.sleep(5)
        await hand_out.give_back(ids(outs), 60_000)
        outs = await hand_out.pull(1, 30)
        assert 19.9 < trio.current_time() - at_s < 20.1
        await trio.sleep(1)
        await hand_out.give_back(ids(outs), 60_000)
        assert consumer.made[-1].figures().counts.discarded == 1


async def test_what_did_not_reach_a_client_does_not_age_and_what_is_not_out_stays_as_it_is(
    world, autojump_clock
):
    await world.publish(b"1", b"2")
    async with world.consuming(pulled(world, message_ttl=10)) as consumer:
        hand_out = consumer.made[-1].hand_out
        first, second = await hand_out.pull(3, 0)
        await hand_out.acknowledge(ids([first]))
        hand_out.undo([first, second])
        await trio.sleep(20)
        (again,) = await hand_out.pull(3, 0)
        assert again.delivery.first.body == b"2"
        await hand_out.give_back(ids([again]), 0)
        (again,) = await hand_out.pull(3, 1)
        assert again.delivery.attempts == 1
        # A retransmission moves its partition.
        again.delivery.offsets.is_superseded = True
        hand_out.undo([again])
        assert await hand_out.pull(3, 1) == []


async def test_long_polls_are_served_in_turn_and_one_that_gives_up_loses_nothing(
    world, autojump_clock
):
    got = {}
    async with world.consuming(pulled(world)) as consumer, trio.open_nursery() as clients:
        hand_out = consumer.made[-1].hand_out

        async def client(name, scope):
            with scope:
                got[name] = bodies(await hand_out.pull(1, 30))

        scopes = {name: trio.CancelScope() for name in "abc"}
        for name, scope in scopes.items():
            clients.start_soon(client, name, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes["a"].cancel()
        await world.publish(b"1", b"2")
        # Called in the same turn in which its message comes.
        await trio.sleep(1)
    assert got == {"b": [b"1"], "c": [b"2"]}


async def test_a_pull_that_is_cancelled_with_messages_gives_them_back_uncounted(
    world, autojump_clock
):
    await world.publish(*(b"%d" % number for number in range(200)))
    async with world.consuming(pulled(world)) as consumer:
        hand_out = consumer.made[-1].hand_out
        with trio.CancelScope() as scope:
            # It yields after the first part.
            scope.cancel()
            await hand_out.pull(200, 0)
        outs = await hand_out.pull(1_000, 0)
        assert sorted(map(int, bodies(outs))) == list(range(200))
        assert {out.delivery.attempts for out in outs} == {0}


async def test_an_ordered_key_is_held_until_its_message_is_acknowledged(world, autojump_clock):
    await world.publish(b"a1", b"a2", key=b"a")
    await world.publish(b"b1", key=b"b")
    async with world.consuming(pulled(world, ordered=True)) as consumer:
        hand_out = consumer.made[-1].hand_out
        outs = await hand_out.pull(10, 0)
        assert bodies(outs) == [b"a1", b"b1"]
        await hand_out.give_back(ids(outs[:1]), 0)
        outs = await hand_out.pull(10, 5)
        assert bodies(outs) == [b"a1"]
        await hand_out.acknowledge(ids(outs))
        assert bodies(await hand_out.pull(10, 5)) == [b"a2"]


async def test_ids_of_others_are_refused_each_with_its_reason(world, autojump_clock):
    await world.publish(b"1", b"2")
    async with world.consuming(pulled(world), owned=Owned(epoch=5)) as consumer:
        hand_out = consumer.made[-1].hand_out
        (first, second) = ids(await hand_out.pull(2, 0))
        epoch, partition, offset, life, number = second.split(".")
        earlier_owner = ".".join(("4", partition, offset, life, number))
        earlier_life = ".".join((epoch, partition, offset, "0" * 16, number))
        asked = [first, first, earlier_owner, earlier_life, "x", f"{second}.1"]
        refused = await hand_out.acknowledge(asked)
        assert [(each.ack_id, each.code) for each in refused] == [
            (first, "NOT_OUT"),
            (earlier_owner, "STALE"),
            (earlier_life, "STALE"),
            ("x", "UNKNOWN"),
            (f"{second}.1", "UNKNOWN"),
        ]
        assert await hand_out.acknowledge([second]) == []


async def test_the_window_and_the_size_of_an_answer_bound_what_is_out(nursery, autojump_clock):
    world = World(nursery, inflight_max=1)
    world.settings = msgspec.structs.replace(world.settings, record_bytes_max=2_000_000)
    await world.create()
    await world.publish(*([b"x" * 900_000] * 6), *([b"y"] * 20))
    async with world.consuming(pulled(world)) as consumer:
        hand_out = consumer.made[-1].hand_out
        outs = await hand_out.pull(100, 0)
        assert len(outs) == -(-ANSWER_BYTES_MAX // 900_000)
        # Messages of this size are read one at a time.
        while more := await hand_out.pull(100, 1):
            outs += more
        assert len(outs) == 10
        assert codes(consumer) == {Code.ALL_OUT.name}
        await hand_out.acknowledge(ids(outs[:3]))
        assert len(await hand_out.pull(100, 1)) == 3


async def test_without_the_lease_nothing_is_handed_out_or_settled(world, autojump_clock):
    lease = HandLease()
    await world.publish(b"1", b"2")
    async with world.consuming(pulled(world), owned=Owned(lease=lease)) as consumer:
        hand_out = consumer.made[-1].hand_out
        outs = await hand_out.pull(1, 0)
        lease.is_closed = True
        with pytest.raises(NotOwned):
            await hand_out.pull(1, 0)
        with pytest.raises(NotOwned):
            await hand_out.acknowledge(ids(outs))
        # Its deadline passes meanwhile.
        await trio.sleep(40)
        lease.open()
        assert bodies(await hand_out.pull(2, 1)) == [b"2"]
        (again,) = await hand_out.pull(2, 1)
        assert (again.delivery.first.body, again.delivery.attempts) == (b"1", 1)


async def test_one_that_stops_calls_its_waiting_pulls_and_still_takes_acknowledgements(
    world, autojump_clock
):
    await world.publish(b"1")
    async with world.consuming(pulled(world)) as consumer, trio.open_nursery() as clients:
        hand_out = consumer.made[-1].hand_out
        outs = await hand_out.pull(1, 0)

        async def wait():
            with pytest.raises(NotOwned):
                await hand_out.pull(1, 30)

        clients.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        clients.start_soon(consumer.stop)
        await trio.testing.wait_all_tasks_blocked()
        assert await hand_out.acknowledge(ids(outs)) == []
    assert (await world.committed()).position == 1
