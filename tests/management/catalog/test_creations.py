"""A subscription is stored with the ends that its topic has when it is created."""

import msgspec
import pytest
import trio

from hermes_actors.balancer.outbox import Outbox
from hermes_actors.log.base import EARLIEST, LogUnavailable
from hermes_actors.metadata.bodies import Suspension
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack

TOPIC = "shop.orders"
PATH = f"/topics/{TOPIC}/subscriptions/billing"


@pytest.fixture
async def shop(api):
    """A topic whose partition 3 holds two messages."""
    await api.with_topic()
    await publish(api)
    return api


async def publish(api, topic=TOPIC):
    records = [Record(None, b"m", (("id", b"%d" % n),), api.clock.now_ms()) for n in range(2)]
    await api.log.append(topic, 3, records, Ack.LEADER)


def live(api):
    return api.metadata.catalog.subscriptions[f"{TOPIC}$billing"]


async def test_the_ends_of_now_are_stored_with_it(shop):
    await shop.with_subscription()
    creation = live(shop).creation
    assert creation.dc == "dc1"
    assert creation.ends == {**dict.fromkeys(range(10), 0), 3: 2}
    assert {each: last.offset for each, last in creation.last_records.items()} == {3: 1}


async def test_no_change_of_it_moves_where_it_starts(shop, nursery):
    await shop.with_subscription()
    creation = live(shop).creation
    await publish(shop)
    assert (await shop.put(PATH, {"description": "changed"})).status_code == 200
    assert (await shop.put(f"{PATH}/state", "SUSPENDED")).status_code == 200
    assert (await shop.put(f"{PATH}/state", "ACTIVE")).status_code == 200
    outbox = Outbox(shop.metadata)
    nursery.start_soon(outbox.run)
    outbox.suspend(live(shop), Suspension(0, reason="gone"))
    with trio.fail_after(5), shop.metadata.watch() as watch:
        while live(shop).suspension is None:
            await watch.wait()
            watch.take_nowait()
    assert live(shop).creation == creation


async def test_one_that_is_made_again_starts_at_the_ends_of_then(shop):
    await shop.with_subscription()
    assert (await shop.delete(PATH)).status_code == 200
    await publish(shop)
    await shop.with_subscription()
    assert live(shop).creation.ends[3] == 4


async def test_a_topic_that_is_made_again_meanwhile_has_not_the_ends_of_before(shop):
    """Then it starts by its time, in a log topic that holds nothing older than itself."""
    positions = shop.log.positions

    async def after_a_new_life(topic, at):
        found = await positions(topic, at)
        if at is EARLIEST:
            return found
        shop.log.positions = positions
        assert (await shop.delete(f"/topics/{TOPIC}")).status_code == 200
        await shop.with_topic()
        return found

    shop.log.positions = after_a_new_life
    await shop.with_subscription()
    assert live(shop).creation is None


async def no_answer(_topic, _at):
    await trio.sleep_forever()


async def away(_topic, _at):
    raise LogUnavailable("no leader")


@pytest.mark.parametrize("ends", [no_answer, away])
async def test_a_log_that_does_not_tell_its_ends_keeps_nobody_from_creating(
    shop, autojump_clock, ends
):
    known = shop.log.positions

    async def positions(topic, at):
        return await (ends if topic == TOPIC else known)(topic, at)

    shop.log.positions = positions
    began_s = trio.current_time()
    await shop.with_subscription()
    assert trio.current_time() - began_s <= 2
    assert live(shop).creation is None


async def test_nothing_of_it_is_shown(shop):
    await shop.with_subscription()
    shown = (await shop.get(PATH)).json()
    assert "creation" not in shown
    assert msgspec.json.encode(shown).find(b"lastRecords") == -1
