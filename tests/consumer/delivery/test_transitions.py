"""Each transition of a message is told of once, whether it is pushed alone or in a batch."""

from collections import Counter

import msgspec
import pytest
import trio

from hermes_actors.consumer.delivery.delivery import Settlement, Transitions
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.record import Record
from hermes_actors.model.subscription import Filter
from hermes_actors.model.topic import Ack

OK, BROKEN, REFUSED = SendOutcome(200), SendOutcome(500), SendOutcome(400)
NOT_X = Filter(type="jsonpath", path="$.a", matcher="[^x]")
ENVELOPE = b'{"_w":true,"metadata":'


class Heard(Transitions):
    """Writes down what it is told."""

    def __init__(self):
        self.lines = []

    def of(self, body):
        """What was told of one message, in order."""
        return [what for what, bodies in self.lines if body in bodies]

    def _note(self, what, records):
        self.lines.append((what, [each.value for each in records]))

    def read(self, records):
        self._note("read", records)

    def filtered(self, record, offsets):
        self._note("filtered", [record])

    def sent(self, deliveries, *, is_retry):
        self._note("retry" if is_retry else "attempt", [each.record for each in deliveries])

    def answered(self, deliveries, outcome, took_s):
        self._note(outcome.status, [each.record for each in deliveries])
        assert took_s >= 0

    def given_up(self, deliveries, reason):
        self._note(reason, [each.record for each in deliveries])

    def settled(self, deliveries, settlement):
        self._note(settlement, [each.record for each in deliveries])


@pytest.fixture(params=["serial", "batch"])
def heard(request, world, batches):
    """(what hears, what consumes with this policy)"""
    heard = [Heard(), Heard()]
    world.parts = msgspec.structs.replace(world.parts, listeners=lambda _live: heard)

    def consuming(filters=(), **arguments):
        policy = {"message_backoff": 100, "attempts_max": 3}
        fields = {"filters": filters}
        if request.param == "serial":
            live = world.live(policy=policy, **fields)
        else:
            policy = {"batch_size": 1, "batch_time": 10, **policy}
            live = batches.live(policy=policy, **fields)
        return world.consuming(live, **arguments)

    yield heard[0], consuming
    assert heard[0].lines == heard[1].lines


async def test_a_message_is_read_attempted_answered_and_settled(world, heard, autojump_clock):
    heard, consuming = heard
    answers = [BROKEN, BROKEN, OK]
    world.sender.script = lambda _push: answers.pop(0)
    await world.publish(b'{"a":"1"}')
    async with consuming():
        await trio.sleep(5)
    delivered = ["read", "attempt", 500, "retry", 500, "retry", 200, Settlement.DELIVERED]
    assert heard.of(b'{"a":"1"}') == delivered
    assert [world.count(each) for each in ("delivered", "retries", "failures")] == [1, 2, 2]
    assert world.count("throughput_bytes") == 9


async def test_what_is_not_wanted_is_filtered_and_nothing_more(world, heard, autojump_clock):
    heard, consuming = heard
    await world.publish(b'{"a":"x"}', b'{"a":"1"}')
    async with consuming(filters=(NOT_X,)):
        await trio.sleep(5)
    assert heard.of(b'{"a":"x"}') == ["read", "filtered"]
    assert world.count("filtered_out") == world.count("delivered") == 1


@pytest.mark.parametrize("keeps_letters", [True, False])
async def test_what_is_given_up_is_settled_with_its_letter(
    world, heard, keeps_letters, autojump_clock
):
    heard, consuming = heard
    world.sender.script = lambda _push: REFUSED
    await world.publish(b"1")
    await world.log.append(
        world.topic, 0, [Record(None, ENVELOPE, (), world.clock.now_ms())], Ack.LEADER
    )
    async with consuming(keeps_letters=keeps_letters):
        await trio.sleep(5)
    settlement = Settlement.DEAD_LETTER if keeps_letters else Settlement.DROPPED
    assert heard.of(b"1") == ["read", "attempt", 400, DiscardReason.CLIENT_ERROR, settlement]
    assert heard.of(ENVELOPE) == ["read", DiscardReason.UNDECODABLE, settlement]
    assert [world.count(each) for each in ("discarded", "undecodable")] == [2, 1]
    assert world.count("dead_letters") == 2 * keeps_letters


async def test_a_batch_is_told_of_at_once_and_counts_as_one_push(world, batches, autojump_clock):
    heard, answers = Heard(), [BROKEN, OK]
    world.parts = msgspec.structs.replace(world.parts, listeners=lambda _live: [heard])
    world.sender.script = lambda _push: answers.pop(0)
    bodies = batches.numbers(5)
    await world.publish(*bodies)
    async with batches.consuming({"batch_size": 5, "message_backoff": 100}):
        await trio.sleep(5)
    told = ["read", "attempt", 500, "retry", 200, Settlement.DELIVERED]
    assert heard.lines == [(each, bodies) for each in told]
    counts = {each: world.count(each) for each in ("delivered", "batches", "retries", "failures")}
    assert counts == {"delivered": 5, "batches": 1, "retries": 1, "failures": 1}


async def test_every_message_that_was_read_is_settled_once(world, heard, autojump_clock):
    heard, consuming = heard
    outcomes = (OK, OK, OK, BROKEN, REFUSED, SendOutcome(503, retry_after="1"))
    world.sender.script = lambda _push: world.parts.rng.choice(outcomes)
    bodies = [b"%d" % number for number in range(60)]
    await world.publish(*bodies)
    async with consuming(keeps_letters=True):
        await trio.sleep(1_200)
    endings = Counter(
        body for what, told in heard.lines for body in told if isinstance(what, Settlement)
    )
    assert endings == Counter(bodies)
    assert world.count("delivered") + world.count("dead_letters") == 60
    assert world.count("discarded") == world.count("dead_letters") > 0
