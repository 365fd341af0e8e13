"""What is granted runs; what is to be another's is handed over; what is lost ends at once."""

import pytest
import trio

from hermes_actors.coordination.commands import RateState, Release, Stopping, TaskLoad
from hermes_actors.coordination.owned import Spent
from tests.balancer.agent_scene import PUSH, World, why


@pytest.fixture
def world():
    world = World()
    world.is_planned = False
    return world


def releases(world):
    return [said for said in world.cluster.said if isinstance(said, Release)]


def running(world):
    return [consumer.owned for consumer in world.factory.made]


async def test_what_is_granted_runs_with_its_partitions_epoch_share_and_rate(world, autojump_clock):
    world.put()
    async with world.running() as agent:
        assert world.kinds == []
        assert agent.subscriptions() == []
        world.plan(PUSH, ("b1", (0, 2), 0.5))
        await trio.sleep(0.1)
        (owned,) = running(world)
        grant = world.cluster.grant(PUSH, "b1")
        assert (owned.partitions, owned.epoch) == ((0, 2), grant.epoch)
        assert owned.lease is world.cluster.lease
        assert (owned.share.value, owned.rate) == (0.5, None)
        assert agent.subscriptions() == [PUSH]


async def test_a_node_says_nothing_of_what_others_run(world, autojump_clock):
    world.put()
    async with world.running() as agent:
        for boot, node in (("b3", "n3"), ("b2", "n2")):
            world.cluster.join(boot, node)
        world.plan(PUSH, ("b3", (0,)), ("b2", (1,)))
        await trio.sleep(0.1)
        assert agent.figures(PUSH) is None
        assert agent.subscriptions() == []


async def test_a_share_follows_the_log_without_a_restart(world, autojump_clock):
    world.put()
    async with world.running():
        world.cluster.join("b2", "n2")
        world.plan(PUSH, ("b1", (0,), 1.0), ("b2", (1,), 0.0))
        await trio.sleep(0.1)
        (owned,) = running(world)
        world.plan(PUSH, ("b1", (0,), 0.25), ("b2", (1,), 0.75))
        await trio.sleep(0.1)
        assert owned.share.value == 0.25
        world.plan(PUSH, ("b1", (0,), 0.75), ("b2", (1,), 0.25))
        await trio.sleep(0.1)
        # The other may still be using what it had.
        assert owned.share.value == 0.25
        await trio.sleep(5)
        assert owned.share.value == 0.75
        assert world.kinds == ["start"]


async def test_a_share_is_in_force_before_a_later_heartbeat_can_open_the_lease_again(
    world, autojump_clock
):
    world.put()
    async with world.running():
        world.cluster.join("b2", "n2")
        world.plan(PUSH, ("b1", (0,), 1.0), ("b2", (1,), 0.0))
        await trio.sleep(0.1)
        (owned,) = running(world)
        # A node that could not read for long reads all at once, the plan and its heartbeat too.
        # By then the others may be using what they were given: no task may run in between.
        world.plan(PUSH, ("b1", (0,), 0.25), ("b2", (1,), 0.75))
        assert owned.share.value == 0.25


async def test_what_is_to_be_anothers_is_stopped_first_and_released_with_what_it_knew(
    world, autojump_clock
):
    world.put()
    world.factory.stop_s = 0.4
    async with world.running() as agent:
        world.cluster.join("b2", "n2")
        world.plan(PUSH, ("b1", (0, 1)))
        await trio.sleep(0.1)
        epoch = world.cluster.grant(PUSH, "b1").epoch
        world.plan(PUSH, ("b1", (0,)), ("b2", (1,)))
        await trio.sleep(0.2)
        assert world.kinds == ["start", "hand over"]
        assert world.cluster.grant(PUSH, "b2") is None
        await trio.sleep(0.5)
        assert releases(world) == [Release("b1", PUSH, epoch, RateState("SLOW", 1.0))]
        assert world.cluster.grant(PUSH, "b2").partitions == (1,)
        # The part of it that stays is another grant, with what is known of the endpoint.
        assert world.kinds == ["start", "hand over", "stop", "start"]
        owned = running(world)[-1]
        assert (owned.partitions, owned.rate) == ((0,), RateState("SLOW", 1.0))
        assert owned.epoch > epoch
        assert why(agent) == ""


async def test_a_release_is_said_again_until_the_log_has_it(world, autojump_clock):
    world.put()
    async with world.running():
        world.cluster.join("b2", "n2")
        world.plan()
        await trio.sleep(0.1)
        world.cluster.is_late = True
        world.plan(PUSH, ("b2", (0,)))
        await trio.sleep(4)
        said = len(world.cluster.late)
        assert 1 < said < 6
        world.cluster.is_late = False
        await trio.sleep(2)
        assert world.cluster.grant(PUSH, "b2") is not None
        said = len(world.cluster.said)
        await trio.sleep(10)
        assert len(world.cluster.said) == said


async def test_under_a_grant_that_was_released_nothing_ever_runs_again(world, autojump_clock):
    """Else a word that comes late would free what is in use."""
    world.put()
    async with world.running():
        world.cluster.join("b2", "n2")
        world.plan()
        await trio.sleep(0.1)
        world.cluster.is_late = True
        world.plan(PUSH, ("b2", (0,)))
        await trio.sleep(0.1)
        world.plan()
        await trio.sleep(1)
        assert world.kinds == ["start", "hand over", "stop"]
        # It comes: the same partitions are granted anew, under another epoch.
        world.cluster.is_late = False
        world.cluster.say(world.cluster.late[0])
        await trio.sleep(0.1)
        assert world.kinds == ["start", "hand over", "stop", "start"]
        first, second = running(world)
        assert second.epoch > first.epoch
        for late in world.cluster.late:
            world.cluster.say(late)
        await trio.sleep(5)
        assert world.kinds == ["start", "hand over", "stop", "start"]


async def test_a_deleted_subscription_ends_and_is_released_when_the_leader_says_so(
    world, autojump_clock
):
    world.put()
    async with world.running():
        world.plan()
        await trio.sleep(0.1)
        world.delete()
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop"]
        assert releases(world) == []
        world.cluster.plan(PUSH)
        await trio.sleep(0.5)
        assert len(releases(world)) == 1
        assert world.cluster.grant(PUSH, "b1") is None


async def test_a_lost_lease_ends_all_at_once_and_says_nothing(world, autojump_clock, caplog):
    for number in range(5):
        world.put(f"push{number}")
    world.is_planned = True
    world.factory.stop_s = 60.0
    async with world.running() as agent:
        lease = world.cluster.lease
        before_s = trio.current_time()
        world.cluster.leave("b1")
        assert lease.is_lost
        await world.cluster.presence.wait_ended()
        assert trio.current_time() - before_s < 0.1
        # Cancelled, not stopped: a stop would have taken its time.
        assert world.kinds == ["start"] * 5
        assert all(agent.consumer(name) is None for name in agent.subscriptions())
        assert releases(world) == []
        assert not caplog.records, "what was to end has not failed"
        # In another life it takes part as one who was never there.
        world.factory.stop_s = 0.0
        world.cluster.begin_life("b9", "n1")
        await trio.sleep(0.1)
        assert world.kinds == ["start"] * 5
        world.plan("shop.orders$push1", ("b9", (0,)))
        await trio.sleep(0.1)
        assert world.kinds == ["start"] * 6
        assert running(world)[-1].lease is world.cluster.lease


async def test_what_is_stopping_when_the_lease_is_lost_gets_no_more_time(world, autojump_clock):
    world.put()
    world.factory.stop_s = 60.0
    async with world.running():
        world.cluster.join("b2", "n2")
        world.plan()
        await trio.sleep(0.1)
        world.plan(PUSH, ("b2", (0,)))
        await trio.sleep(0.1)
        assert world.kinds == ["start", "hand over"]
        before_s = trio.current_time()
        world.cluster.leave("b1")
        await world.cluster.presence.wait_ended()
        assert trio.current_time() - before_s < 0.1
        assert releases(world) == []
        world.cluster.begin_life("b9", "n1")


async def test_a_node_that_stops_says_what_it_leaves_to_the_next_owners(world, autojump_clock):
    world.is_planned = True
    for number in range(3):
        world.put(f"push{number}")
    async with world.running():
        epochs = {name: each.epoch for name, each in world.cluster.state.grants_of("b1").items()}
    assert {said.subscription: said.epoch for said in releases(world)} == epochs
    assert {said.rate for said in releases(world)} == {RateState("SLOW", 1.0)}
    assert world.kinds == ["start"] * 3 + ["stop"] * 3
    # Before anything is free: else it would be this node's again.
    assert world.cluster.said.index(Stopping("b1")) < world.cluster.said.index(releases(world)[0])


async def test_loads_are_what_was_done_since_they_were_asked_for(world, autojump_clock):
    world.is_planned = True
    for name in ("busy", "idle"):
        world.put(name)
    async with world.running() as agent:
        agent.loads()
        busy, idle = sorted(world.factory.made, key=lambda made: str(made.live.name))
        busy.spendings = Spent(taken=500, size_bytes=4_096_000, allowed=100.0)
        idle.spendings = Spent(allowed=-1.0)
        world.cpu_s = 0.3
        await trio.sleep(10)
        loads = agent.loads()
        assert loads.cpu == pytest.approx(0.03)
        assert loads.cpu_available == 2.0
        # Messages and their bytes: 50 + 100 a second, at 0.2 ms.
        load = loads.tasks["shop.orders$busy"]
        assert (load.messages, load.size_bytes, load.used) == (50.0, 409_600.0, 0.5)
        assert load.cpu == pytest.approx(0.03)
        assert loads.tasks["shop.orders$idle"] == TaskLoad()
        await trio.sleep(10)
        assert agent.loads().tasks["shop.orders$busy"] == TaskLoad()


async def test_many_grants_at_once_let_others_have_their_turns(world, autojump_clock):
    names = [f"push{number}" for number in range(300)]
    for name in names:
        world.put(name)
    async with world.running() as agent, trio.open_nursery() as nursery:
        steps = []

        async def look():
            before = 0
            while True:
                now = len(agent.subscriptions())
                steps.append(now - before)
                before = now
                await trio.lowlevel.checkpoint()

        nursery.start_soon(look)
        for name in names:
            world.plan(f"shop.orders${name}", ("b1", (0,)))
        for _ in range(100):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert sum(steps) == 300
    assert max(steps) <= 50
