"""What a serial consumer pushes, when, and what it never exceeds."""

import itertools

import trio

from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.log.commits import decode
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.record import Flow

OK = SendOutcome(200)
BUSY = SendOutcome(503)


async def test_each_message_is_pushed_once_and_committed(world, autojump_clock):
    await world.publish(*(b"%d" % n for n in range(500)))
    async with world.consuming() as consumer:
        await trio.sleep(2)
        assert sorted(world.sender.bodies) == sorted(b"%d" % n for n in range(500))
        assert await world.committed() is not None
        assert (await world.committed()).position == 500
        assert consumer.status().positions == {0: 500}
    assert world.count("delivered") == 500
    assert world.count("http_status_codes", status_code="200") == 500
    assert world.crashes == []


async def test_the_window_is_never_exceeded_and_is_used_fully(world, autojump_clock):
    world.sender.script = lambda _push: (0.01, OK)
    await world.publish(*(b"%d" % n for n in range(300)))
    async with world.consuming(world.live(policy={"inflight_size": 7})):
        await trio.sleep(5)
    assert len(world.sender.pushes) == 300
    assert world.sender.inflight_high == 7


async def test_a_failed_message_is_tried_again_and_does_not_block_the_fresh(world, autojump_clock):
    attempts = []

    def script(push):
        if push.body == b"3":
            attempts.append(trio.current_time())
            return OK if len(attempts) == 4 else BUSY
        return OK

    world.sender.script = script
    await world.publish(*(b"%d" % n for n in range(10)))
    policy = {"message_backoff": 1_000, "backoff_multiplier": 2.0, "backoff_max_interval_in_sec": 3}
    async with world.consuming(world.live(policy=policy)):
        await trio.sleep(0.5)
        assert len(world.sender.pushes) == 10
        # What is settled above the waiting message is in the commit's metadata.
        await trio.sleep(1)
        commit = await world.committed()
        assert commit.position == 3
        assert decode(commit).intervals == ((4, 10),)
        await trio.sleep(20)
    gaps_s = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert [int(gap) for gap in gaps_s] == [1, 2, 3]
    assert all(gap < 1.26 * base for gap, base in zip(gaps_s, (1, 2, 3), strict=True))
    retry_counts = [
        line
        for push in world.sender.pushes
        if push.body == b"3"
        for line in push.lines.split(b"\r\n")
        if line.startswith(b"Hermes-Retry-Count")
    ]
    assert retry_counts == [b"Hermes-Retry-Count: %d" % n for n in range(4)]
    assert (await world.committed()).position == 10
    assert world.count("retries") == 3


async def test_a_busy_endpoint_stops_reading_at_the_bound_and_says_why(make_world, autojump_clock):
    world = make_world(waiting_retries_max=50, read_batch_records_max=20)
    await world.create()
    world.sender.script = lambda _push: SendOutcome(503, "1")
    await world.publish(*(b"%d" % n for n in range(500)))
    policy = {"inflight_size": 10, "message_backoff": 1_000}
    async with world.consuming(world.live(policy=policy)) as consumer:
        await trio.sleep(10)
        status = consumer.status()
        assert status.waiting_retries + status.inflight <= 50
        assert status.fresh <= 20
        assert status.why.startswith("reading has stopped: 50 messages wait for a retry")
        world.sender.script = lambda _push: OK
        await trio.sleep(20)
        assert consumer.status().why == ""
    assert {*world.sender.bodies} == {b"%d" % n for n in range(500)}
    assert (await world.committed()).position == 500


async def test_reading_goes_on_as_soon_as_half_of_the_bytes_are_free(make_world, autojump_clock):
    world = make_world(buffered_bytes_max=100_000)
    await world.create()
    world.sender.script = lambda _push: (0.01, OK)
    await world.publish(*(b"x" * 10_000 for n in range(200)))
    async with world.consuming():
        # Twenty refills of the bytes that may wait, none of which waits for the next commit.
        await trio.sleep(1.0)
        assert len(world.sender.bodies) == 200


async def test_a_new_version_takes_effect_without_a_restart(world, autojump_clock):
    world.sender.script = lambda push: BUSY if push.route.target == "/in" else OK
    await world.publish(b"0")
    async with world.consuming(world.live(policy={"message_backoff": 1_000})) as consumer:
        await trio.sleep(0.5)
        consumer.ref.tell(world.live(endpoint="http://sink:81/new"))
        await trio.sleep(3)
        assert [push.route.target for push in world.sender.pushes] == ["/in", "/new"]
        assert len(consumer.made) == 1


async def test_a_record_that_cannot_be_decoded_is_discarded_and_does_not_block(
    world, autojump_clock
):
    await world.publish(b"0")
    poison = Record(None, b'{"_w":true,"metadata":', (), 0)
    await world.log.append(world.topic, 0, [poison], Ack.LEADER)
    await world.publish(b"1")
    async with world.consuming(world.live(created_at=0)) as consumer:
        await trio.sleep(2)
        assert consumer.status().last_undelivered.reason.startswith("undecodable: ")
    assert world.sender.bodies == [b"0", b"1"]
    assert world.count("undecodable") == 1
    assert (await world.committed()).position == 3


async def test_slow_retries_leave_fresh_messages_half_of_the_window(world, autojump_clock):
    world.sender.script = lambda push: (
        (1.0, SendOutcome(503, "0")) if push.body.startswith(b"slow") else (0.01, OK)
    )
    await world.publish(*(b"slow%d" % n for n in range(200)))
    async with world.consuming(world.live(policy={"inflight_size": 10, "message_backoff": 1})):
        await trio.sleep(60)
        assert len(world.sender.pushes) > 300
        await world.publish(*(b"%d" % n for n in range(1_000)))
        # Five slots at 10 ms each: two seconds and some waking up.
        await trio.sleep(4)
        assert sum(not body.startswith(b"slow") for body in world.sender.bodies) == 1_000


async def test_a_waiting_retry_is_attempted_when_due_while_fresh_messages_flow(
    world, autojump_clock
):
    answers = {b"bad": [BUSY, BUSY]}
    world.sender.script = lambda push: (
        0.05,
        answers[push.body].pop() if answers.get(push.body) else OK,
    )
    await world.publish(b"bad", *(b"%d" % n for n in range(10_000)))
    async with world.consuming(world.live(policy={"inflight_size": 4, "message_backoff": 1_000})):
        await trio.sleep(10)
    times_s = [
        at_s
        for push, at_s in zip(world.sender.pushes, world.sender.times_s, strict=True)
        if push.body == b"bad"
    ]
    assert len(times_s) == 3
    assert all(1 < later - earlier < 1.5 for earlier, later in itertools.pairwise(times_s))


async def test_an_idle_or_hanging_subscription_hardly_wakes_its_actor(world, autojump_clock):
    looks = []
    world.sender.script = lambda _push: None
    await world.publish(*(b"%d" % n for n in range(50)))
    async with world.consuming(world.live(policy={"inflight_size": 10})) as consumer:
        dispatch = consumer.made[0]._dispatch
        fill = dispatch.fill
        dispatch.fill = lambda now_s: (looks.append(now_s), fill(now_s))[1]
        await trio.sleep(100)
        # No answers, nothing to read, no retry that is due: nothing to look at.
        assert len(looks) < 5


async def test_figures_tell_what_was_done_what_is_under_way_and_the_last_failure(
    world, autojump_clock
):
    answers = iter([SendOutcome(200), SendOutcome(503), SendOutcome(404)])
    timed_out = SendOutcome(0, "", Failure.TIMEOUT, "after 1 s")
    world.sender.script = lambda _push: (0.01, next(answers, timed_out))
    await world.publish(b"a", b"bc", b"def", b"g")
    async with world.consuming(
        world.live(policy={"inflight_size": 1, "message_backoff": 60_000})
    ) as c:
        await trio.sleep(1)
        figures, reached = c.made[-1].figures(), c.made[-1].reached()
    assert [each.code for each in figures.reasons] == []
    assert figures.counts == Flow(
        delivered=1, size_bytes=1, discarded=1, timeouts=1, codes_2xx=1, codes_4xx=1, codes_5xx=1
    )
    assert (figures.inflight, figures.waiting_retries) == (0, 2)
    assert figures.last_failure == "timeout: after 1 s"
    assert 0 < figures.last_failure_at_ms - 1_700_000_000_000 < 1_000
    assert 1_700_000_000_000 < figures.last_success_at_ms < figures.last_failure_at_ms
    assert (reached.log_topic, reached.settled) == ("shop.orders", {0: 2})


async def test_the_status_tells_attempts_of_what_failed_last_and_how_long_pushes_took(
    world, autojump_clock
):
    outcomes = [SendOutcome(503), SendOutcome(503), SendOutcome(200)]
    world.sender.script = lambda _push: (0.4, outcomes.pop(0))
    async with world.consuming(world.live(policy={"message_backoff": 100})) as c:
        assert (c.made[-1].figures().last_attempts, c.made[-1].figures().latency_ms) == (0, None)
        await world.publish(b"1")
        await trio.sleep(20)
        figures = c.made[-1].figures()
        assert outcomes == []
        assert (figures.last_failure, figures.last_attempts) == ("HTTP 503", 2)
        p50, p99 = figures.latency_ms
        # Timers know a time to a fifth.
        assert 400 <= p50 <= p99 <= 480
        await trio.sleep(90)
        assert c.made[-1].figures().latency_ms is None
