"""What a subscription's policy decides beyond Hermes, and what a stop and a change do."""

import trio

from hermes_actors.consumer.rates.control import Level
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.subscription import TtlFrom

OK = SendOutcome(200)


async def test_statuses_are_tried_again_or_given_up_as_the_subscription_says(world, autojump_clock):
    """hermes#1970: 409 is tried again and 400 is not, which one flag for all 4xx cannot say."""
    answers = {
        b"conflict": [SendOutcome(409), SendOutcome(409), OK],
        b"wrong": [SendOutcome(400)],
        b"broken": [SendOutcome(500)],
    }
    world.sender.script = lambda push: answers[push.body].pop(0)
    await world.publish(b"conflict", b"wrong")
    async with world.consuming(
        world.live(policy={"retry_on": [409], "discard_on": [500]})
    ) as consumer:
        await trio.sleep(1)
        await world.publish(b"broken")
        await trio.sleep(1)
        reason = consumer.status().last_undelivered.reason
    assert world.sender.bodies.count(b"conflict") == 3
    assert world.count("discarded") == 2
    assert reason == "discard-status: HTTP 500"


async def test_a_time_to_live_from_publication_counts_what_a_message_waited_in_the_log(
    world, autojump_clock
):
    await world.publish(b"old")
    await trio.sleep(8)
    await world.publish(b"young")
    world.sender.script = lambda _push: SendOutcome(503)
    live = world.live(
        policy={"message_ttl": 5, "ttl_from": TtlFrom.PUBLICATION, "message_backoff": 1_000}
    )
    async with world.consuming(live) as consumer:
        # What is too old already is not worth an attempt.
        await trio.sleep(0.5)
        assert world.sender.bodies == [b"young"]
        assert "older than its time to live" in consumer.status().last_undelivered.reason
        await trio.sleep(10)
    assert 4 <= len(world.sender.bodies) <= 5
    assert world.sender.times_s[-1] - 8 <= 5
    assert world.count("discarded") == 2


async def test_an_endpoint_that_is_gone_gets_nothing_more_and_its_message_is_kept(
    world, autojump_clock
):
    world.sender.script = lambda push: SendOutcome(410) if push.body == b"3" else (0.5, OK)
    await world.publish(*(b"%d" % n for n in range(20)))
    asked = world.suspensions
    live = world.live(policy={"inflight_size": 5, "retry_client_errors": True})
    async with world.consuming(live) as consumer:
        await trio.sleep(30)
        assert [(str(each.name), reason) for each, reason in asked] == [
            (
                "shop.orders$push",
                "the endpoint is gone, it answered HTTP 410 at 2023-11-14T22:13:20Z",
            )
        ]
        assert consumer.status().why.endswith(asked[0][1])
        # What was in flight is taken in, and nothing else begins.
        assert len(world.sender.pushes) == 5
        assert (await world.committed()).position == 3
        assert world.count("discarded") == 0
    # It is resumed when the endpoint is back: nothing is lost.
    world.sender.script = lambda _push: OK
    async with world.consuming(live):
        await trio.sleep(2)
    assert {*world.sender.bodies} == {b"%d" % n for n in range(20)}
    assert (await world.committed()).position == 20


async def test_a_new_version_takes_a_consumer_whose_endpoint_is_gone_on_again(
    world, autojump_clock
):
    world.sender.script = lambda push: SendOutcome(410) if push.route.target == "/in" else OK
    await world.publish(b"0", b"1")
    async with world.consuming() as consumer:
        await trio.sleep(1)
        assert "gone" in consumer.status().why
        consumer.ref.tell(world.live(endpoint="http://sink/new"))
        await trio.sleep(1)
        assert consumer.status().why == ""
        assert world.count("delivered") == 2
        assert len(world.suspensions) == 1


async def test_a_late_410_of_the_endpoint_before_suspends_nothing(world, autojump_clock):
    gone = (2.0, SendOutcome(410))
    world.sender.script = lambda push: gone if push.route.target == "/in" else OK
    await world.publish(b"0")
    async with world.consuming() as consumer:
        await trio.sleep(1)
        consumer.ref.tell(world.live(endpoint="http://sink/new"))
        await trio.sleep(2)
        assert world.suspensions == []
        assert consumer.status().why == ""
        assert [push.route.target for push in world.sender.pushes] == ["/in", "/new"]
        assert world.count("delivered") == 1


async def test_the_time_to_live_begins_when_the_sending_delay_has_passed(world, autojump_clock):
    world.sender.script = lambda _push: SendOutcome(500)
    policy = {"sending_delay": 5_000, "message_ttl": 3, "message_backoff": 1_000}
    async with world.consuming(world.live(policy=policy)):
        await world.publish(b"0")
        await trio.sleep(20)
    assert len(world.sender.times_s) == 3
    assert round(world.sender.times_s[0], 2) == 5
    assert world.count("discarded") == 1


async def test_a_resumed_subscription_gets_its_first_message_at_once(world, autojump_clock):
    """Hermes needs 29 to 41 seconds."""
    world.sender.script = lambda _push: SendOutcome(500)
    await world.publish(b"0")
    async with world.consuming(world.live(policy={"message_backoff": 100})) as consumer:
        await trio.sleep(100)
        assert consumer.status().level is Level.SLOW
    world.sender.script = lambda _push: OK
    resumed_s = trio.current_time()
    async with world.consuming():
        await trio.sleep(2)
    assert world.sender.times_s[-1] - resumed_s < 0.1
    assert world.count("delivered") == 1


async def test_a_sending_delay_is_from_publication_and_changes_while_it_runs(world, autojump_clock):
    async with world.consuming(world.live(policy={"sending_delay": 3_000})) as consumer:
        await world.publish(b"0")
        await trio.sleep(2.9)
        assert world.sender.bodies == []
        await trio.sleep(0.2)
        assert world.sender.bodies == [b"0"]
        consumer.ref.tell(world.live())
        await world.publish(b"1")
        await trio.sleep(0.1)
        assert world.sender.bodies == [b"0", b"1"]
