"""Dead letters are delivered again: to their subscription, at least once, while others come in."""

import functools
import json

import msgspec
import pytest
import trio

from hermes_actors.consumer.letters import redrive as redrive_module
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.dead_letter import (
    Mark,
    MarkKind,
    letter_record,
    mark_record,
    without_value,
)
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.subscription import BatchBody, BatchPolicy, DeliveryType
from hermes_actors.model.topic import Ack
from tests.consumer.redrive_scene import DLQ, NAME, OK, PARTITION, Scene


@pytest.fixture
def scene(world):
    return Scene(world)


async def test_letters_are_delivered_again_with_their_ids_and_closed(scene, autojump_clock):
    await scene.with_letters(b"a", b"b")
    async with scene.world.consuming(keeps_letters=True):
        await trio.sleep(2)
        assert scene.bodies == []
        await scene.ask()
        await trio.sleep(5)
        assert sorted(scene.bodies) == [b"a", b"b"]
        heads = [bytes(push.lines) for push in scene.world.sender.pushes]
        assert all(b"Hermes-Retry-Count: 0\r\n" in head for head in heads)
        assert any(b"Hermes-Message-Id: id-a\r\n" in head for head in heads)
        assert await scene.open() == {}
        progress = await scene.progress()
        assert (progress.total, progress.redriven, progress.failed) == (2, 2, 0)
        assert progress.is_done
        assert scene.world.count("redriven") == 2
        await trio.sleep(60)
        assert len(scene.bodies) == 2


async def test_a_replay_for_this_subscription_alone_is_delivered_again_as_such(
    scene, autojump_clock
):
    world = scene.world
    for number, only_for in enumerate((world.live().name.name, "another")):
        message = Message(f"id-{number}", b"%d" % number, world.clock.now_ms(), only_for=only_for)
        await world.log.append(world.topic, 0, [to_record(message)], Ack.LEADER)
    await scene.with_letters()
    # What is for another has never come here, so there is no letter of it.
    (letter,) = (await scene.open()).values()
    assert (letter.message_id, dict(letter.headers)["only-for"]) == ("id-0", b"push")
    async with world.consuming(keeps_letters=True):
        await scene.ask()
        await trio.sleep(5)
        assert scene.bodies == [b"0"]
        assert await scene.open() == {}


async def test_what_fails_again_is_a_newer_letter_with_the_new_cause(scene, autojump_clock):
    await scene.with_letters(b"a", b"b")
    before = (await scene.open())[b"b"]
    scene.bad = {b"b"}
    async with scene.world.consuming(keeps_letters=True):
        scene.world.sender.script = lambda push: SendOutcome(404) if push.body == b"b" else OK
        await scene.ask()
        await trio.sleep(5)
        progress = await scene.progress()
        assert (progress.redriven, progress.failed, progress.is_done) == (1, 1, True)
    (letter,) = (await scene.open()).values()
    assert (letter.id, letter.status, letter.redrives) == (before.id, 404, 1)
    assert (letter.timestamp_ms, letter.offset) == (before.timestamp_ms, before.offset)
    assert letter.headers == before.headers


async def test_only_what_is_meant_is_delivered(scene, autojump_clock):
    await scene.with_letters(b"a", b"b", b"c")
    wanted = (await scene.open())[b"b"]
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask(ids=(wanted.id,))
        await trio.sleep(5)
        assert scene.bodies == [b"b"]
        await scene.ask(number=2, message_id="id-c")
        await trio.sleep(5)
        assert scene.bodies == [b"b", b"c"]
    assert list(await scene.open()) == [b"a"]


async def test_more_letters_than_one_plan_holds_are_delivered_in_several(
    scene, monkeypatch, autojump_clock
):
    monkeypatch.setattr(redrive_module, "PLAN_MAX", 2)
    await scene.with_letters(b"a", b"b", b"c", b"d", b"e")
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask()
        await trio.sleep(10)
        assert sorted(scene.bodies) == [b"a", b"b", b"c", b"d", b"e"]
        progress = await scene.progress()
        assert (progress.total, progress.redriven, progress.is_done) == (5, 5, True)


async def test_expired_letters_are_not_delivered(scene, autojump_clock):
    await scene.with_letters(b"a", b"b")
    mark = Mark(MarkKind.EXPIRED, ((await scene.open())[b"a"].id,), 1)
    redrive = await scene.ask()
    await scene.world.log.append(DLQ, PARTITION, [mark_record(NAME, mark)], Ack.ALL)
    async with scene.world.consuming(keeps_letters=True):
        await trio.sleep(5)
    assert scene.bodies == [b"b"]
    assert redrive.ranges["dc1"].end == 2


async def test_the_rate_of_a_redrive_is_kept(scene, autojump_clock):
    await scene.with_letters(*[b"%d" % n for n in range(100)])
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask(rate=10)
        await trio.sleep(30)
    times = scene.world.sender.times_s
    assert len(times) == 100
    assert all(sum(start <= other < start + 1 - 1e-6 for other in times) <= 11 for start in times)
    assert times[-1] - times[0] > 8


async def test_the_subscriptions_own_rate_holds_for_both_together(scene, autojump_clock):
    await scene.with_letters(*[b"%d" % n for n in range(60)])
    live = scene.world.live(policy={"rate": 20})
    await scene.world.publish(*[b"new-%d" % n for n in range(60)])
    async with scene.world.consuming(live, keeps_letters=True):
        await scene.ask(rate=1_000)
        await trio.sleep(20)
    times = scene.world.sender.times_s
    assert len(times) == 120
    assert max(sum(start <= other < start + 1 - 1e-6 for other in times) for start in times) <= 20


async def test_a_crash_on_the_way_loses_nothing_and_repeats_little(scene, autojump_clock):
    count = 200
    await scene.with_letters(*[b"%d" % n for n in range(count)])
    async with scene.world.consuming(keeps_letters=True) as consumer:
        await scene.ask(rate=50)
        for _ in range(3):
            await trio.sleep(1.1)
            consumer.supervisor.crash("consumer")
        await trio.sleep(60)
        assert (await scene.progress()).is_done
    assert {int(body) for body in scene.bodies} == set(range(count))
    assert len(scene.bodies) < count + 3 * 110
    assert await scene.open() == {}


async def test_stopping_writes_down_what_was_delivered(scene, autojump_clock):
    await scene.with_letters(*[b"%d" % n for n in range(40)])
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask(rate=10)
        await trio.sleep(2.55)
    delivered = set(scene.bodies)
    assert 0 < len(delivered) < 40
    assert set(await scene.open()) == {b"%d" % n for n in range(40)} - delivered
    async with scene.world.consuming(keeps_letters=True):
        await trio.sleep(20)
        progress = await scene.progress()
    assert len(scene.bodies) == 40
    assert (progress.total, progress.redriven, progress.is_done) == (40, 40, True)


async def test_while_the_log_is_away_the_redrive_waits_and_then_ends(scene, autojump_clock):
    await scene.with_letters(*[b"%d" % n for n in range(50)])
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask(rate=10)
        await trio.sleep(1)
        scene.world.log.faults.unavailable_rate = 1.0
        scene.world.log.faults.reads_failing = True
        await trio.sleep(120)
        scene.world.log.faults.heal()
        await trio.sleep(30)
        progress = await scene.progress()
    assert (progress.redriven, progress.is_done) == (50, True)
    assert {int(body) for body in scene.bodies} == set(range(50))
    assert await scene.open() == {}


@pytest.mark.parametrize("fault", ["reads_failing", "commits_failing"])
async def test_what_keeps_a_redrive_from_going_on_is_shown_until_it_is_over(
    scene, fault, autojump_clock
):
    await scene.with_letters(*[b"%d" % n for n in range(50)])
    async with scene.world.consuming(keeps_letters=True) as consumer:
        await trio.sleep(5)
        await scene.ask(rate=1)
        setattr(scene.world.log.faults, fault, True)
        await trio.sleep(10)
        shown = consumer.status().held_back
        assert "its re-drive waits: " in shown
        scene.world.log.faults.heal()
        # Before it is done: it goes on.
        await trio.sleep(15)
        assert not (await scene.progress()).is_done
        assert consumer.status().held_back == ""


async def test_without_marks_no_more_than_the_bound_is_under_way(
    scene, monkeypatch, autojump_clock
):
    monkeypatch.setattr(redrive_module, "OUTSTANDING_MAX", 10)
    await scene.with_letters(*[b"%d" % n for n in range(50)])
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask()
        scene.world.log.faults.unavailable_rate = 1.0
        await trio.sleep(60)
        assert len(scene.bodies) == 10
        scene.world.log.faults.heal()
        await trio.sleep(30)
    assert len(set(scene.bodies)) == 50


async def test_one_that_is_retried_for_long_holds_up_no_other(scene, autojump_clock):
    await scene.with_letters(*[b"%d" % n for n in range(20)])
    scene.world.sender.script = lambda push: SendOutcome(503) if push.body == b"3" else OK
    live = scene.world.live(policy={"message_ttl": 60})
    async with scene.world.consuming(live, keeps_letters=True):
        await scene.ask()
        await trio.sleep(5)
        assert len({*scene.bodies} - {b"3"}) == 19
        assert not (await scene.progress()).is_done
        await trio.sleep(120)
        progress = await scene.progress()
        assert (progress.redriven, progress.failed, progress.is_done) == (19, 1, True)
    (letter,) = (await scene.open()).values()
    assert (letter.value, letter.reason, letter.redrives) == (b"3", "expired", 1)


async def test_ordered_a_key_that_goes_on_failing_holds_up_no_other_keys_letters(
    scene, autojump_clock
):
    world = scene.world
    live = world.live(policy={"ordered": True, "inflight_size": 10})
    for key, count in ((b"bad", 30), (b"good", 10)):
        await world.publish(*[key + b"-%d" % n for n in range(count)], key=key)
    async with world.consuming(live, keeps_letters=True):
        await trio.sleep(5)
    scene.is_down = False
    world.sender.pushes.clear()
    world.sender.script = lambda push: SendOutcome(500) if push.body[:3] == b"bad" else OK
    # So that fewer may wait to be taken up than fail.
    live = world.live(policy={"ordered": True, "inflight_size": 10, "rate": 40})
    async with world.consuming(live, keeps_letters=True):
        await scene.ask()
        await trio.sleep(60)
    assert {body for body in scene.bodies if body[:4] == b"good"} == {
        b"good-%d" % n for n in range(10)
    }


async def test_a_time_to_live_from_publication_begins_anew(scene, autojump_clock):
    await scene.with_letters(b"a")
    await trio.sleep(7_200)
    live = scene.world.live(policy={"message_ttl": 10, "ttl_from": "PUBLICATION"})
    async with scene.world.consuming(live, keeps_letters=True):
        await scene.ask()
        await trio.sleep(5)
    assert scene.bodies == [b"a"]


async def test_a_foreign_record_keeps_the_id_that_it_was_given_up_with(scene, autojump_clock):
    world = scene.world
    foreign = Record(None, b"foreign", (), world.clock.now_ms())
    await world.log.append(world.topic, 0, [foreign], Ack.LEADER)
    await scene.with_letters()
    given = (await scene.open())[b"foreign"].message_id
    async with world.consuming(keeps_letters=True):
        await scene.ask()
        await trio.sleep(5)
    assert given
    assert f"Hermes-Message-Id: {given}\r\n".encode() in world.sender.pushes[0].lines


@pytest.mark.parametrize("plan_max", [1, 100])
async def test_a_letter_kept_without_its_message_is_delivered_from_its_topic(
    scene, monkeypatch, autojump_clock, plan_max
):
    monkeypatch.setattr(redrive_module, "PLAN_MAX", plan_max)
    world = scene.world
    await scene.with_letters(b"a", b"b")
    whole = await scene.open()
    cut = [letter_record(without_value(whole[b"a"]))]
    cut.append(letter_record(without_value(msgspec.structs.replace(whole[b"b"], offset=999))))
    await world.log.append(DLQ, PARTITION, cut, Ack.ALL)
    async with world.consuming(keeps_letters=True):
        await scene.ask(ids=(whole[b"a"].id, "dc1:7:0:999"))
        await trio.sleep(5)
        progress = await scene.progress()
    assert scene.bodies == [b"a"]
    assert b"Hermes-Message-Id: id-a\r\n" in world.sender.pushes[0].lines
    assert (progress.redriven, progress.skipped, progress.is_done) == (1, 1, True)


async def test_what_retention_took_meanwhile_is_skipped(scene, monkeypatch, autojump_clock):
    await scene.with_letters(*[b"%d" % n for n in range(400)], seconds=30)
    log = scene.world.log
    await log.topics.alter(
        DLQ, msgspec.structs.replace(await log.topics.describe(DLQ), retention_ms=1_000)
    )
    async with scene.world.consuming(keeps_letters=True):
        await scene.ask(rate=10)
        await trio.sleep(3)
        log.expire(scene.world.clock.now_ms())
        await trio.sleep(60)
        progress = await scene.progress()
    assert progress.is_done
    assert 0 < progress.redriven < 400
    assert progress.redriven + progress.skipped == 400


async def test_letters_of_a_batch_subscription_are_delivered_again_in_batches(
    scene, autojump_clock
):
    world = scene.world
    live = world.live()
    policy = BatchPolicy(body=BatchBody.MESSAGES, batch_time=1_000, batch_size=10)
    batched = msgspec.structs.replace(
        live.subscription, delivery_type=DeliveryType.BATCH, subscription_policy=policy
    )
    live = msgspec.structs.replace(live, subscription=batched)
    consuming = functools.partial(world.consuming, live, keeps_letters=True)
    await world.publish(*[b"%d" % n for n in range(25)])
    async with consuming():
        await trio.sleep(10)
        assert len(await scene.open()) == 25
        world.sender.pushes.clear()
        scene.is_down = False
        await scene.ask()
        await world.publish(*[b"%d" % n for n in range(100, 125)])
        await trio.sleep(20)
        progress = await scene.progress()
    assert (progress.redriven, progress.is_done) == (25, True)
    assert await scene.open() == {}
    sent = [n for body in scene.bodies for n in json.loads(body)]
    assert sorted(sent) == [*range(25), *range(100, 125)]
