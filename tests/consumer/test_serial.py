import itertools
import random

import msgspec
import trio

from hermes_actors.consumer.offsets import decode
from hermes_actors.consumer.sender import Failure, SendOutcome
from hermes_actors.log.base import Commit
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack

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


async def test_a_window_of_one_delivers_one_after_the_other(world, autojump_clock):
    world.sender.script = lambda _push: (0.01, OK)
    await world.publish(*(b"%d" % n for n in range(20)))
    async with world.consuming(world.live(policy={"inflight_size": 1})):
        await trio.sleep(5)
    assert world.sender.bodies == [b"%d" % n for n in range(20)]
    assert world.sender.inflight_high == 1


async def test_no_second_sees_more_attempts_than_the_rate(world, autojump_clock):
    await world.publish(*(b"%d" % n for n in range(1_000)))
    async with world.consuming(world.live(policy={"rate": 100})):
        await trio.sleep(8)
    times_s = world.sender.times_s
    assert 750 < len(times_s) <= 800
    for n in range(len(times_s) - 100):
        assert times_s[n + 100] - times_s[n] > 1 - 1e-6


async def test_no_second_sees_more_than_the_rate_across_a_restart(world, autojump_clock):
    await world.publish(*(b"%d" % n for n in range(30)))
    for _ in range(6):
        async with world.consuming(world.live(policy={"rate": 2})):
            await trio.sleep(0.7)
    times_s = world.sender.times_s
    assert len(times_s) > 3
    for n in range(len(times_s) - 2):
        assert times_s[n + 2] - times_s[n] > 1 - 1e-6


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


async def test_a_message_past_its_time_to_live_is_discarded_and_counted(world, autojump_clock):
    world.sender.script = lambda push: BUSY if push.body == b"bad" else OK
    await world.publish(b"bad", b"good")
    async with world.consuming(world.live(policy={"message_ttl": 2, "message_backoff": 500})) as c:
        await trio.sleep(10)
        assert c.status().last_undelivered.reason == "expired: HTTP 503"
        assert c.status().last_undelivered.message_id == "id-bad"
    assert world.count("discarded") == 1
    assert 3 <= world.sender.bodies.count(b"bad") <= 5
    assert (await world.committed()).position == 2


async def test_a_client_error_is_discarded_at_once_unless_it_is_to_be_retried(
    make_world, autojump_clock
):
    for retry, attempts in ((False, 1), (True, 3)):
        world = make_world()
        await world.create()
        answers = [SendOutcome(400), SendOutcome(404), OK]
        world.sender.script = lambda _push, answers=answers: answers.pop(0)
        await world.publish(b"1")
        async with world.consuming(world.live(policy={"retry_client_errors": retry})):
            await trio.sleep(5)
        assert len(world.sender.pushes) == attempts
        assert world.count("discarded") == (0 if retry else 1)


async def test_a_dead_endpoint_stops_reading_at_the_bound_and_says_why(make_world, autojump_clock):
    world = make_world(waiting_retries_max=50, read_batch_records_max=20)
    await world.create()
    world.sender.script = lambda _push: SendOutcome(0, "", Failure.CONNECT, "refused")
    await world.publish(*(b"%d" % n for n in range(500)))
    policy = {"inflight_size": 10, "message_backoff": 1_000}
    async with world.consuming(world.live(policy=policy)) as consumer:
        await trio.sleep(10)
        status = consumer.status()
        assert status.waiting_retries + status.inflight <= 50
        assert status.fresh <= 20
        assert "waiting_retries_max = 50" in status.why
        world.sender.script = lambda _push: OK
        await trio.sleep(20)
        assert consumer.status().why == ""
    assert {*world.sender.bodies} == {b"%d" % n for n in range(500)}
    assert (await world.committed()).position == 500


async def test_the_bytes_that_wait_are_bounded(make_world, autojump_clock):
    world = make_world(buffered_bytes_max=100_000)
    await world.create()
    world.sender.script = lambda _push: None
    await world.publish(*(b"x" * 10_000 for n in range(100)))
    async with world.consuming() as consumer:
        await trio.sleep(5)
        assert consumer.status().buffered_bytes <= 120_000
        assert "buffered_bytes_max" in consumer.status().why


async def test_reading_goes_on_as_soon_as_half_of_the_bytes_are_free(make_world, autojump_clock):
    world = make_world(buffered_bytes_max=100_000)
    await world.create()
    world.sender.script = lambda _push: (0.01, OK)
    await world.publish(*(b"x" * 10_000 for n in range(200)))
    async with world.consuming():
        # Twenty refills of the bytes that may wait, none of which waits for the next commit.
        await trio.sleep(1.0)
        assert len(world.sender.bodies) == 200


async def test_one_stuck_partition_does_not_stop_the_others(make_world, autojump_clock):
    world = make_world(partitions=2, unsettled_span_max=100, inflight_max=10)
    await world.create()
    world.sender.script = lambda push: BUSY if push.body == b"stuck" else OK
    await world.publish(b"stuck", *(b"%d" % n for n in range(300)), partition=0)
    async with world.consuming() as consumer:
        await trio.sleep(5)
        assert "unsettled_span_max" in consumer.status().why
        await world.publish(*(b"o%d" % n for n in range(300)), partition=1)
        await trio.sleep(5)
        assert len([body for body in world.sender.bodies if body.startswith(b"o")]) == 300
        assert len(world.sender.bodies) < 10_000
        world.sender.script = lambda _push: OK
        await trio.sleep(10)
    assert {b"%d" % n for n in range(300)} <= {*world.sender.bodies}
    assert (await world.committed(0)).position == 301


async def test_a_crash_sends_again_only_what_the_commit_does_not_name(world, autojump_clock):
    world.sender.script = lambda push: BUSY if push.body in (b"5", b"9") else OK
    await world.publish(*(b"%d" % n for n in range(20)))
    live = world.live(policy={"message_backoff": 600_000})
    async with world.consuming(live) as consumer:
        await trio.sleep(3)
        assert len(world.sender.pushes) == 20
        world.sender.script = lambda _push: OK
        consumer.supervisor.crash("consumer")
        await trio.sleep(5)
        assert len(consumer.made) == 2
    assert world.sender.bodies[20:] == [b"5", b"9"]
    assert (await world.committed()).position == 20


async def test_stopping_starts_nothing_new_waits_for_what_is_in_flight_and_commits(
    world, autojump_clock
):
    world.sender.script = lambda _push: (1.0, OK)
    await world.publish(*(b"%d" % n for n in range(50)))
    async with world.consuming(world.live(policy={"inflight_size": 5})) as consumer:
        await trio.sleep(0.5)
        assert len(world.sender.pushes) == 5
        before_s = trio.current_time()
        await consumer.stop()
        assert trio.current_time() - before_s < 0.6
    assert len(world.sender.pushes) == 5
    assert (await world.committed()).position == 5
    assert world.crashes == []


async def test_stopping_waits_no_longer_than_the_grace(make_world, autojump_clock):
    world = make_world(stop_grace_ms=2_000)
    await world.create()
    world.sender.script = lambda push: None if push.body == b"1" else OK
    await world.publish(b"0", b"1", b"2")
    async with world.consuming() as consumer:
        await trio.sleep(0.1)
        before_s = trio.current_time()
        await consumer.stop()
        assert 1.9 < trio.current_time() - before_s < 2.5
    commit = await world.committed()
    assert commit.position == 1
    assert decode(commit).intervals == ((2, 3),)
    # An answer that comes after the end changes nothing and harms nobody.
    world.sender.unanswered[0](OK)
    assert world.count("delivered") == 2


async def test_a_message_waiting_for_a_retry_does_not_delay_a_stop(world, autojump_clock):
    world.sender.script = lambda _push: BUSY
    await world.publish(b"0")
    async with world.consuming(world.live(policy={"message_backoff": 60_000})) as consumer:
        await trio.sleep(1)
        before_s = trio.current_time()
        await consumer.stop()
        assert trio.current_time() - before_s < 0.1
    assert (await world.committed()).position == 0


async def test_a_new_version_takes_effect_without_a_restart(world, autojump_clock):
    world.sender.script = lambda push: BUSY if push.route.target == "/in" else OK
    await world.publish(b"0")
    async with world.consuming(world.live(policy={"message_backoff": 1_000})) as consumer:
        await trio.sleep(0.5)
        consumer.ref.tell(world.live(endpoint="http://sink:81/new"))
        await trio.sleep(3)
        assert [push.route.target for push in world.sender.pushes] == ["/in", "/new"]
        assert len(consumer.made) == 1


async def test_a_new_subscription_starts_at_its_creation_and_not_at_the_beginning(
    world, autojump_clock
):
    await world.publish(b"old")
    await trio.sleep(60)
    await world.publish(b"just before")
    await trio.sleep(2)
    live = world.live(created_at=world.clock.now_ms() / 1_000)
    async with world.consuming(live):
        await world.publish(b"new")
        await trio.sleep(2)
    assert world.sender.bodies == [b"just before", b"new"]


async def test_the_commit_of_another_incarnation_is_ignored(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    async with world.consuming(world.live(incarnation=7)):
        await trio.sleep(2)
    assert len(world.sender.pushes) == 3
    async with world.consuming(world.live(incarnation=8)):
        await trio.sleep(2)
    assert world.sender.bodies[3:] == [b"0", b"1", b"2"]
    async with world.consuming(world.live(incarnation=8, topic_incarnation=5)):
        await trio.sleep(2)
    assert len(world.sender.bodies) == 9


async def test_a_commit_made_with_the_logs_own_tools_counts(world, autojump_clock):
    await world.publish(b"0", b"1", b"2")
    await world.log.commit("shop_orders_push", world.topic, {0: Commit(2, "")})
    async with world.consuming():
        await trio.sleep(2)
    assert world.sender.bodies == [b"2"]


async def test_what_retention_removed_unread_is_counted_as_expired(make_world, autojump_clock):
    world = make_world(retention_ms=10_000, inflight_max=2, read_batch_records_max=2)
    await world.create()
    world.sender.script = lambda _push: (1.0, OK)
    await world.publish(*(b"%d" % n for n in range(100)))
    async with world.consuming(world.live(policy={"rate": 1})) as consumer:
        await trio.sleep(11)
        world.log.expire(world.clock.now_ms())
        await world.publish(b"new")
        await trio.sleep(20)
        assert consumer.status().why == ""
    seen = len(world.sender.pushes) - 1
    assert world.sender.bodies[-1] == b"new"
    assert 5 < seen < 20
    assert world.count("expired_by_retention") == 100 - seen
    assert (await world.committed()).position == 101


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


async def test_partitions_that_are_added_are_picked_up(world, autojump_clock):
    async with world.consuming():
        await trio.sleep(1)
        await world.log.alter_topic(world.topic, type(world.settings)(partitions=3))
        await world.publish(b"0", partition=2)
        await trio.sleep(60)
    assert world.sender.bodies == [b"0"]


async def test_a_consumer_of_stated_partitions_reads_no_others(make_world, autojump_clock):
    world = make_world(partitions=3)
    await world.create()
    for partition in range(3):
        await world.publish(b"%d" % partition, partition=partition)
    async with world.consuming(partitions=(0, 2)):
        await trio.sleep(60)
    assert sorted(world.sender.bodies) == [b"0", b"2"]


async def test_a_log_that_is_not_there_yet_is_waited_for(make_world, autojump_clock):
    world = make_world()
    async with world.consuming() as consumer:
        await trio.sleep(5)
        assert "no topic shop.orders" in consumer.status().why
        assert not world.started
        await world.create()
        await world.publish(b"0")
        await trio.sleep(5)
        assert consumer.status().why == ""
        assert len(world.started) == 1
        world.log.faults.reads_failing = True
        await world.publish(b"1")
        await trio.sleep(5)
        assert "cannot be read" in consumer.status().why
        world.log.faults.reads_failing = False
        await trio.sleep(5)
    assert world.sender.bodies == [b"0", b"1"]
    assert world.crashes == []


async def test_commits_that_fail_are_made_up_for(world, autojump_clock):
    await world.publish(b"0", b"1")
    async with world.consuming():
        world.log.faults.commits_failing = True
        await trio.sleep(10)
        assert await world.committed() is None
        assert world.count("commit_failures") > 2
        world.log.faults.commits_failing = False
        await trio.sleep(3)
        assert (await world.committed()).position == 2


async def test_an_idle_subscription_commits_its_position_again_each_hour(world, autojump_clock):
    commits = []
    world.log.on_commit.append(lambda *_commit: commits.append(trio.current_time()))
    async with world.consuming():
        await trio.sleep(3 * 3_600 + 60)
    assert 3 <= len(commits) <= 5


async def test_a_delayed_subscription_gets_messages_no_younger_than_the_delay(
    world, autojump_clock
):
    async with world.consuming(world.live(policy={"sending_delay": 3_000})):
        before_s = trio.current_time()
        await world.publish(b"0")
        await trio.sleep(10)
    assert 2.9 < world.sender.times_s[0] - before_s < 3.1


async def test_retry_after_is_waited_for(world, autojump_clock):
    answers = [SendOutcome(503, "7"), OK]
    world.sender.script = lambda _push: answers.pop(0)
    await world.publish(b"0")
    async with world.consuming():
        await trio.sleep(20)
    first_s, second_s = world.sender.times_s
    assert 7 <= second_s - first_s < 7.1


async def test_a_message_without_the_templates_field_is_a_failed_delivery(world, autojump_clock):
    await world.publish(b'{"user":"a b/c"}', b'{"other":1}')
    live = world.live(endpoint="http://sink/u/{user}", policy={"message_ttl": 1})
    async with world.consuming(live) as consumer:
        await trio.sleep(5)
        assert "unresolved: the message has no value" in (consumer.status().last_undelivered.reason)
    assert [push.route.target for push in world.sender.pushes] == ["/u/a%20b%2Fc"]
    assert world.count("discarded") == 1
    assert (await world.committed()).position == 2


async def test_slow_retries_leave_fresh_messages_half_of_the_window(world, autojump_clock):
    world.sender.script = lambda push: (
        (1.0, SendOutcome(0, "", Failure.TIMEOUT)) if push.body.startswith(b"slow") else (0.01, OK)
    )
    await world.publish(*(b"slow%d" % n for n in range(200)))
    async with world.consuming(world.live(policy={"inflight_size": 10, "message_backoff": 1})):
        await trio.sleep(60)
        assert len(world.sender.pushes) > 300
        await world.publish(*(b"%d" % n for n in range(1_000)))
        # Five slots at 10 ms each: two seconds and some waking up.
        await trio.sleep(4)
        assert sum(not body.startswith(b"slow") for body in world.sender.bodies) == 1_000


async def test_pushes_that_hang_leave_the_rest_of_the_window_to_others(world, autojump_clock):
    world.sender.script = lambda push: None if push.body.startswith(b"hang") else (0.001, OK)
    await world.publish(*(b"hang%d" % n for n in range(7)))
    await world.publish(*(b"%d" % n for n in range(1_000)))
    async with world.consuming(world.live(policy={"inflight_size": 10})):
        await trio.sleep(4)
        assert world.count("delivered") == 1_000


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
        fill = consumer.made[0]._fill
        consumer.made[0]._fill = lambda now_s: (looks.append(now_s), fill(now_s))[1]
        await trio.sleep(100)
        # No answers, nothing to read, no retry that is due: nothing to look at.
        assert len(looks) < 5


async def test_a_failure_inside_a_callback_restarts_the_actor_and_loses_nothing(
    world, autojump_clock
):
    class Broken(random.Random):
        def random(self):
            raise RuntimeError("no dice")

    # The jitter is drawn in the sender's callback, outside of any task.
    world.parts = msgspec.structs.replace(world.parts, rng=Broken())
    world.sender.script = lambda _push: BUSY
    await world.publish(b"0", b"1")
    async with world.consuming() as consumer:
        await trio.sleep(1)
        assert "no dice" in repr(world.crashes[0].error.exceptions)
        world.sender.script = lambda _push: OK
        await trio.sleep(60)
        assert len(consumer.made) > 1
        assert world.count("delivered") == 2
    assert (await world.committed()).position == 2


async def test_a_body_that_cannot_be_read_never_stops_a_templated_subscription(
    world, autojump_clock
):
    bad = b'{"id":"\xff"}'
    deep = b"[" * 20_000 + b"]" * 20_000
    await world.publish(bad, deep, b'{"id":1}')
    live = world.live(policy={"message_ttl": 1}, endpoint="http://sink/{id}")
    async with world.consuming(live):
        await trio.sleep(5)
    assert [push.route.target for push in world.sender.pushes] == ["/1"]
    assert world.count("discarded") == 2
    assert world.crashes == []
    assert (await world.committed()).position == 3


async def test_a_stopped_consumer_shows_and_holds_nothing_any_more(world, autojump_clock):
    world.sender.script = lambda push: BUSY if push.body < b"5" else None
    await world.publish(*(b"%d" % n for n in range(10)))

    def gauges():
        return {
            sample.name: sample.value
            for family in world.metrics.collect()
            if family.type == "gauge"
            for sample in family.samples
        }

    policy = {"message_backoff": 60_000, "inflight_size": 7}
    async with world.consuming(world.live(policy=policy)) as consumer:
        await trio.sleep(1)
        assert gauges() == {
            "hermes_consumers_subscription_inflight": 5.0,
            "hermes_consumers_subscription_waiting_retries": 5.0,
        }
        await consumer.stop()
        assert set(gauges().values()) == {0.0}
        status = consumer.status()
        assert (status.inflight, status.fresh, status.buffered_bytes) == (0, 0, 0)
        # What is answered too late is nobody's any more.
        for done in world.sender.unanswered:
            done(OK)
        assert set(gauges().values()) == {0.0}
    assert world.crashes == []


async def test_versions_that_waited_through_a_restart_do_not_undo_the_latest(world, autojump_clock):
    latest = msgspec.structs.replace(world.live(endpoint="http://new/"), stamp=9)
    older = msgspec.structs.replace(world.live(endpoint="http://old/"), stamp=8)
    async with world.consuming(latest) as consumer:
        consumer.ref.tell(older)
        await trio.sleep(0.1)
        await world.publish(b"1")
        await trio.sleep(1)
    assert [push.route.origin.host for push in world.sender.pushes] == ["new"]
