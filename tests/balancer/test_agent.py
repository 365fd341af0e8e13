import pytest
import trio

from hermes_actors.model.subscription import SubscriptionState
from hermes_actors.model.topic import ContentType
from hermes_actors.status.lag import Reached
from hermes_actors.status.reasons import Code, because
from hermes_actors.status.record import Flow, SubscriptionFigures
from tests.balancer.agent_scene import PUSH, World, why


@pytest.fixture
def world():
    return World()


async def test_what_exists_and_what_comes_later_is_started_alike(world, autojump_clock):
    world.put("early")
    async with world.running() as agent:
        world.put("late")
        await trio.sleep(0.1)
        assert [name for _, name, _ in world.factory.events] == [
            "shop.orders$early",
            "shop.orders$late",
        ]
        assert agent.subscriptions() == ["shop.orders$early", "shop.orders$late"]
    assert world.kinds.count("stop") == 2


async def test_a_started_subscription_becomes_active_in_this_datacentre(world, autojump_clock):
    world.put(incarnation=5)
    world.metadata.is_failing = True
    async with world.running():
        await trio.sleep(3)
        live = world.metadata.catalog.subscriptions[PUSH]
        assert live.state is SubscriptionState.PENDING
        world.metadata.is_failing = False
        await trio.sleep(3)
        live = world.metadata.catalog.subscriptions[PUSH]
        assert live.state is SubscriptionState.ACTIVE
        assert live.active_in == ("dc1",)
        assert world.metadata.changes[-1].preconditions[0].incarnation == 5
        written = len(world.metadata.changes)
        await trio.sleep(10)
        assert len(world.metadata.changes) == written
    # Becoming active is no reason to tell the consumer anything.
    assert world.kinds == ["start", "stop"]


async def test_an_agent_that_has_crashed_does_not_tell_of_consumers_that_ended_with_it(
    world, autojump_clock
):
    world.put()
    with trio.CancelScope() as crash:
        async with world.running() as agent:
            assert agent.consumer(PUSH) is not None
            crash.cancel()
            await trio.sleep(0.1)
    assert agent.consumer(PUSH) is None
    assert agent.figures(PUSH) is None
    assert agent.subscriptions() == []


async def test_a_changed_subscription_is_told_and_not_restarted(world, autojump_clock):
    world.put()
    async with world.running():
        world.put(endpoint="http://b")
        await trio.sleep(0.1)
        assert world.factory.events[1] == ("update", PUSH, "http://b")
    assert world.kinds == ["start", "update", "stop"]


async def test_a_suspended_subscription_stops_and_an_activated_one_starts(world, autojump_clock):
    world.put()
    async with world.running() as agent:
        world.put(state=SubscriptionState.SUSPENDED)
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop"]
        assert why(agent).startswith("suspended since ")
        world.put(state=SubscriptionState.ACTIVE)
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop", "start"]
        assert why(agent) == ""
    assert world.gone == []


async def test_a_suspended_subscription_is_looked_after_once_its_consumer_has_ended(
    world, autojump_clock
):
    world.put()
    world.factory.stop_s = 2.0
    async with world.running():
        assert world.at_rest == {}
        world.put(state=SubscriptionState.SUSPENDED)
        await trio.sleep(1)
        assert world.at_rest == {}
        await trio.sleep(2)
        assert world.at_rest == {PUSH: ("shop.orders", None, ["start", "stop"])}
        world.seek(3)
        await trio.sleep(0.1)
        assert world.at_rest[PUSH][1].body.positions == {"dc1": {0: 3}}
        world.put(state=SubscriptionState.ACTIVE)
        await trio.sleep(0.1)
        assert world.at_rest == {}
        world.put(state=SubscriptionState.SUSPENDED)
        await trio.sleep(3)
        world.delete()
        await trio.sleep(0.1)
        assert world.at_rest == {}


async def test_a_subscription_that_this_version_cannot_deliver_is_looked_after_too(
    world, autojump_clock
):
    world.put("here", endpoint="jms://queue")
    async with world.running():
        assert list(world.at_rest) == ["shop.orders$here"]


async def test_a_retransmission_is_told_to_the_running_consumer(world, autojump_clock):
    world.put()
    async with world.running():
        world.seek(3)
        await trio.sleep(0.1)
        assert world.kinds == ["start", "update"]


async def test_a_deleted_subscription_stops_and_is_reported_gone(world, autojump_clock):
    world.put()
    async with world.running() as agent:
        world.delete()
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop"]
        assert world.gone == [PUSH]
        assert agent.subscriptions() == []


async def test_changes_during_a_stop_wait_for_its_end_and_count_once(world, autojump_clock):
    world.put()
    world.factory.stop_s = 1.0
    async with world.running() as agent:
        world.delete(incarnation=1)
        await trio.sleep(0.2)
        world.put(incarnation=1, endpoint="http://b")
        await trio.sleep(0.2)
        world.put(incarnation=1, endpoint="http://c")
        await trio.sleep(2)
        assert world.kinds == ["start", "stop", "start"]
        assert world.factory.events[-1] == ("start", PUSH, "http://c")
        assert why(agent) == ""
        world.put(incarnation=1, endpoint="http://d")
        await trio.sleep(0.2)
        assert world.factory.events[-1] == ("update", PUSH, "http://d")


async def test_a_recreated_topic_orphans_its_old_subscriptions(world, autojump_clock):
    world.put()
    async with world.running():
        world.put_topic(incarnation=3, body=False)
        world.put_topic(incarnation=3)
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop"]
        world.put(incarnation=4, topic_incarnation=3)
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop", "start"]


async def test_what_cannot_be_consumed_is_not_started_and_says_why(world, autojump_clock):
    world.put(endpoint="jms://a")
    async with world.running() as agent:
        assert why(agent) == "it cannot be consumed as configured: not this one"
        assert world.kinds == []
        world.put(endpoint="http://a")
        await trio.sleep(0.1)
        assert why(agent) == ""
        world.put(endpoint="jms://a")
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop"]
        assert why(agent) == "it cannot be consumed as configured: not this one"


async def test_a_consumer_that_fails_is_started_again_for_ever_with_the_latest_version(
    world, autojump_clock
):
    world.put()
    world.factory.is_broken = True
    async with world.running() as agent:
        await trio.sleep(1_000)
        assert world.kinds.count("start") > 8
        assert "broken" in why(agent)
        world.put(endpoint="http://b")
        world.factory.is_broken = False
        await trio.sleep(400)
        assert why(agent) == ""
        assert ("start", PUSH, "http://b") in world.factory.events


async def test_figures_are_the_consumers_own_with_the_agents_reason(world, autojump_clock):
    world.put()
    world.put("stuck", endpoint="jms://a")
    async with world.running() as agent:
        assert agent.subscriptions() == [PUSH, "shop.orders$stuck"]
        assert agent.figures(PUSH) == SubscriptionFigures(
            counts=Flow(delivered=3), inflight=2, waiting_retries=1
        )
        assert why(agent, "shop.orders$stuck").endswith("not this one")
        assert agent.figures("shop.orders$unknown") is None


async def test_figures_outlive_the_consumer_but_not_the_subscription(world, autojump_clock):
    world.put()
    async with world.running() as agent:
        agent.figures(PUSH)
        world.put(state=SubscriptionState.SUSPENDED)
        await trio.sleep(0.1)
        suspended = (because(Code.SUSPENDED),)
        assert agent.figures(PUSH) == SubscriptionFigures(suspended, Flow(delivered=3))
        assert agent.reached(PUSH) == Reached("shop.orders", {0: 4})
        world.delete(incarnation=1)
        await trio.sleep(0.1)
        assert agent.subscriptions() == []
        assert agent.figures(PUSH) is None
        world.put(incarnation=1, state=SubscriptionState.SUSPENDED)
        await trio.sleep(0.1)
        assert agent.figures(PUSH) == SubscriptionFigures(suspended)


async def test_lag_and_age_go_on_while_a_consumer_that_fails_is_started_again(
    world, autojump_clock
):
    world.put()
    clock = world.cluster.clock
    async with world.running() as agent:
        world.factory.oldest_ms = clock.now_ms()
        reached = agent.reached(PUSH)
        world.factory.is_broken = True
        agent.crash(PUSH)
        await trio.sleep(60)
        assert why(agent).startswith("its consumer failed")
        assert agent.reached(PUSH) == reached == Reached("shop.orders", {0: 5}, reached.oldest_ms)
        assert reached.oldest_age_ms(clock.now_ms()) >= 60_000


async def test_all_consumers_are_stopped_together(world, autojump_clock):
    for n in range(10):
        world.put(f"push{n}")
    world.factory.stop_s = 4.0
    before_s = trio.current_time()
    async with world.running():
        pass
    assert (world.kinds.count("stop"), trio.current_time() - before_s < 5) == (10, True)


async def test_an_endpoint_that_is_gone_suspends_its_subscription_with_the_reason(
    world, autojump_clock
):
    world.put()
    async with world.running() as agent:
        await trio.sleep(1)
        live = world.metadata.catalog.subscriptions[PUSH]
        world.metadata.is_failing = True
        agent.suspend(live, "it answered HTTP 410")
        await trio.sleep(3)
        assert world.metadata.catalog.subscriptions[PUSH].state is SubscriptionState.ACTIVE
        # However long the metadata is away, it is written down once it is back.
        world.metadata.is_failing = False
        await trio.sleep(3)
        suspended = world.metadata.catalog.subscriptions[PUSH]
        assert suspended.state is SubscriptionState.SUSPENDED
        assert suspended.suspension.reason == "it answered HTTP 410"
        assert suspended.suspension.by == "[broker]"
        assert why(agent) == "the broker has suspended it: it answered HTTP 410"
        assert world.metadata.changes[-1].preconditions[0].stamp == live.stamp
        assert world.kinds == ["start", "stop"]
        # Whoever resumes it, clears the reason; a consumer is told, though none saw it suspended.
        world.put()
        await trio.sleep(1)
        assert world.metadata.catalog.subscriptions[PUSH].suspension is None
        assert why(agent) == ""
        world.put(state=SubscriptionState.SUSPENDED)
        world.put()
        await trio.sleep(1)
        assert world.kinds[-1] == "update"


async def test_a_subscription_that_was_changed_meanwhile_is_not_suspended(world, autojump_clock):
    world.put()
    async with world.running() as agent:
        await trio.sleep(1)
        live = world.metadata.catalog.subscriptions[PUSH]
        world.metadata.is_failing = True
        agent.suspend(live, "it answered HTTP 410")
        await trio.sleep(2)
        world.put(endpoint="http://new")
        world.metadata.is_failing = False
        await trio.sleep(5)
        assert world.metadata.catalog.subscriptions[PUSH].state is SubscriptionState.ACTIVE


async def test_other_content_takes_another_consumer(world, autojump_clock):
    world.put()
    async with world.running():
        await trio.sleep(0.1)
        world.put(content_type=ContentType.AVRO)
        await trio.sleep(0.1)
        assert world.kinds == ["start", "stop", "start"]
