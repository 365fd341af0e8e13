"""How a consumer's rate follows its endpoint, over the whole actor."""

import itertools

import pytest
import trio

from hermes_actors.consumer.rates.control import Level
from hermes_actors.consumer.senders.sender import Failure, SendOutcome

OK = SendOutcome(200)
SICK = SendOutcome(500)
DEAD = SendOutcome(0, "", Failure.CONNECT, "refused")


def sent_between(world, start_s, end_s):
    return sum(start_s <= at_s < end_s for at_s in world.sender.times_s)


def give_probes(world, *, connects):
    """The scripted sender learns to probe; returns when it was asked to."""
    probed_s = []

    def probe(_route, done):
        probed_s.append(trio.current_time())
        world.nursery.start_soon(answer, done)
        return True

    async def answer(done):
        await trio.sleep(0.01)
        done(None if connects() else Failure.CONNECT)

    world.sender.probe = probe
    return probed_s


async def test_a_sick_endpoint_gets_one_message_a_second_and_is_told_of(world, autojump_clock):
    world.sender.script = lambda _push: SICK
    await world.publish(*(b"%d" % n for n in range(500)))
    policy = {"inflight_size": 10, "message_backoff": 1_000}
    async with world.consuming(world.live(policy=policy)) as consumer:
        await trio.sleep(60)
        status = consumer.status()
        assert (status.level, status.rate_now) == (Level.SLOW, 1.0)
        assert status.held_back.startswith("one message a second until one succeeds")
        assert 59_000 < status.oldest_age_ms < 61_000
        figures = consumer.made[-1].figures()
        assert (figures.level, figures.rate_now) == ("SLOW", 1.0)
        # It is slow, not stopped.
        assert status.why == ""
    assert 18 <= sent_between(world, 10, 30) <= 21


async def test_no_answers_are_taken_for_health_while_nothing_is_published(world, autojump_clock):
    """D16: Hermes lets an idle subscription climb to its full rate against a dead endpoint."""
    world.sender.script = lambda _push: DEAD
    await world.publish(*(b"%d" % n for n in range(50)))
    policy = {"message_ttl": 30, "message_backoff": 100}
    async with world.consuming(world.live(policy=policy)) as consumer:
        probed_s = give_probes(world, connects=lambda: False)
        await trio.sleep(1_500)
        before = len(world.sender.pushes)
        assert consumer.status().level is Level.HEARTBEAT
        # Nothing is left to push; it is probed all the same.
        assert 60 <= sum(1_000 <= at_s < 1_360 for at_s in probed_s) <= 73
        await world.publish(*(b"late%d" % n for n in range(500)))
        await trio.sleep(59)
        assert len(world.sender.pushes) - before <= 2


async def test_what_waits_for_a_dead_endpoint_expires_in_time_and_the_rest_waits_in_the_log(
    world, autojump_clock
):
    world.sender.script = lambda _push: DEAD
    await world.publish(*(b"%d" % n for n in range(100)))
    live = world.live(policy={"inflight_size": 50, "message_ttl": 20, "message_backoff": 1_000})
    async with world.consuming(live) as consumer:
        await trio.sleep(40)
        attempted = len({*world.sender.bodies})
        assert 50 <= attempted <= 75
        assert world.count("discarded") >= 50
        assert consumer.status().waiting_retries <= attempted - 50
        assert consumer.status().last_undelivered.reason == (
            "expired: while the endpoint is failing; last answer: connect: refused"
        )
        world.sender.script = lambda _push: OK
        await trio.sleep(30)
        assert world.count("delivered") + world.count("discarded") == 100
        assert world.count("delivered") >= 25


@pytest.mark.slow
async def test_a_dead_endpoint_that_comes_back_has_its_full_rate_within_ten_seconds(
    world, autojump_clock
):
    heals_s = 200.0
    is_well = lambda: trio.current_time() >= heals_s  # noqa: E731
    world.sender.script = lambda _push: (0.01, OK if is_well() else DEAD)
    await world.publish(*(b"%d" % n for n in range(15_000)))
    async with world.consuming(world.live(policy={"rate": 1_000})) as consumer:
        probed_s = give_probes(world, connects=is_well)
        await trio.sleep_until(heals_s)
        assert consumer.status().level is Level.HEARTBEAT
        assert sent_between(world, 80, 200) <= 3
        gaps_s = [later - at_s for at_s, later in itertools.pairwise(probed_s)]
        assert gaps_s
        assert all(4.99 < gap_s < 10.1 for gap_s in gaps_s), gaps_s
        await trio.sleep_until(heals_s + 10)
        assert consumer.status().level is Level.FULL
        await trio.sleep_until(heals_s + 12)
    assert 960 <= sent_between(world, heals_s + 10, heals_s + 11) <= 1_000
    times_s = world.sender.times_s
    assert all(times_s[n + 1_000] - times_s[n] > 1 - 1e-6 for n in range(len(times_s) - 1_000))


async def test_a_level_survives_a_crash_of_the_consumer(world, autojump_clock):
    world.sender.script = lambda _push: SICK
    await world.publish(*(b"%d" % n for n in range(500)))
    async with world.consuming(world.live(policy={"message_backoff": 1_000})) as consumer:
        await trio.sleep(10)
        before_s = trio.current_time()
        consumer.supervisor.crash("consumer")
        await trio.sleep(20)
        assert len(consumer.made) == 2
        assert consumer.status().level is Level.SLOW
        assert sent_between(world, before_s, before_s + 20) <= 21
        world.sender.script = lambda _push: OK
        await trio.sleep(3)
        assert world.count("delivered") == 500
        assert consumer.status().level is not Level.SLOW


async def test_another_endpoint_begins_at_its_full_rate(world, autojump_clock):
    world.sender.script = lambda push: SICK if push.route.target == "/in" else OK
    await world.publish(*(b"%d" % n for n in range(500)))
    async with world.consuming() as consumer:
        await trio.sleep(60)
        assert consumer.status().level is Level.SLOW
        consumer.ref.tell(world.live(endpoint="http://sink/new"))
        await trio.sleep(2)
        assert consumer.status().level is Level.FULL
        assert world.count("delivered") == 500
    assert len(consumer.made) == 1


async def test_messages_without_an_address_do_not_slow_those_that_have_one(world, autojump_clock):
    await world.publish(*(b'{"other":%d}' % n for n in range(200)))
    live = world.live(endpoint="http://sink/{id}", policy={"message_backoff": 1_000})
    async with world.consuming(live) as consumer:
        await trio.sleep(5)
        await world.publish(*(b'{"id":%d}' % n for n in range(200)))
        await trio.sleep(2)
        assert consumer.status().level is Level.FULL
    assert len(world.sender.pushes) == 200


async def test_the_maximum_and_the_window_change_while_it_runs(world, autojump_clock):
    world.sender.script = lambda _push: (0.5, OK)
    await world.publish(*(b"%d" % n for n in range(3_000)))
    live = lambda size, rate: world.live(  # noqa: E731
        policy={"inflight_size": size, "rate": rate}
    )
    async with world.consuming(live(100, 10_000)) as consumer:
        await trio.sleep(0.1)
        assert consumer.status().inflight == 100
        assert "all 100 of its concurrent requests" in consumer.status().held_back
        # Shrinking takes nothing back: what is under way ends, and nothing begins before.
        consumer.ref.tell(live(5, 10_000))
        await trio.sleep(0.1)
        assert consumer.status().inflight == 100
        await trio.sleep(0.5)
        assert consumer.status().inflight == 5
        consumer.ref.tell(live(50, 10))
        await trio.sleep(2)
        before_s = trio.current_time()
        await trio.sleep(10)
        assert 95 <= sent_between(world, before_s, before_s + 10) <= 101
        assert "rate of 10.0 messages a second is used up" in consumer.status().held_back
        assert len(consumer.made) == 1
