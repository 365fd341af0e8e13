"""The reconciler: log topics appear at once, change, and go when nobody can write there."""

import random
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from hermes_actors.config import Config, MetadataConfig
from hermes_actors.log.base import TopicSettings
from hermes_actors.metadata.bodies import subscription_body, topic_body
from hermes_actors.metadata.commands import Copy, delete, encode, put
from hermes_actors.metadata.keys import subscription_key, topic_key
from hermes_actors.metadata.reconciler import TopicReconciler, settings_for
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.topic import Ack, RetentionTime

NAME = TopicName("shop", "orders")
KEY = topic_key(NAME)
CONFIG = Config(metadata=MetadataConfig(topic_data_deletion_delay_ms=600_000))


@pytest.fixture
def open_reconciled(open_site, clock):
    @asynccontextmanager
    async def open_it(others=()):
        async with open_site() as site:
            site.supervisor.start_task(
                "reconciler",
                lambda stop: TopicReconciler(
                    site.metadata,
                    {other.dc: other for other in others},
                    CONFIG,
                    clock=clock,
                    rng=random.Random(2),
                ).run(stop),
            )
            yield site

    return open_it


async def test_a_log_topic_appears_with_its_topic_and_follows_its_retention(
    autojump_clock, open_reconciled, topic
):
    async with open_reconciled() as site:
        value = topic("shop.orders")
        await site.metadata.change(put(KEY, topic_body(value)))
        await trio.sleep(0.1)
        assert await site.log.topics.describe("shop.orders") == TopicSettings(
            partitions=10, retention_ms=86_400_000, record_bytes_max=1_048_576
        )
        value = msgspec.structs.replace(value, retention_time=RetentionTime(2))
        await site.metadata.change(put(KEY, topic_body(value)))
        await trio.sleep(0.1)
        held = await site.log.topics.describe("shop.orders")
        assert held.retention_ms == 2 * 86_400_000


async def test_an_existing_log_topic_keeps_its_partitions(autojump_clock, open_reconciled, topic):
    async with open_reconciled() as site:
        await site.log.topics.create("shop.orders", TopicSettings(partitions=3))
        await site.metadata.change(put(KEY, topic_body(topic("shop.orders"))))
        await trio.sleep(0.1)
        held = await site.log.topics.describe("shop.orders")
        assert (held.partitions, held.retention_ms) == (3, 86_400_000)


async def test_an_outage_only_delays_the_creation(autojump_clock, open_reconciled, topic):
    async with open_reconciled() as site:
        await site.metadata.wait_current()
        site.log.faults.reads_failing = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: site.metadata.change(
                    put(KEY, topic_body(topic("shop.orders"))), timeout_s=100
                )
            )
            await trio.sleep(20)
            site.log.faults.heal()
        await trio.sleep(5)
        assert "shop.orders" in await site.log.topics.names()


async def test_a_topic_that_the_log_does_not_take_holds_up_no_other(
    autojump_clock, open_site, topic, clock
):
    reconcilers = []

    def make(site):
        reconcilers.append(
            TopicReconciler(site.metadata, {}, CONFIG, clock=clock, rng=random.Random(2))
        )
        return reconcilers[-1]

    async with open_site() as site:
        create = site.log.topics.create

        async def picky(name, settings):
            if name == "shop.a_b":
                raise ValueError("shop.a_b: it collides with shop.a.b")
            return await create(name, settings)

        site.log.topics.create = picky
        site.supervisor.start_task("reconciler", lambda stop: make(site).run(stop))
        for name in ("shop.a_b", "shop.orders"):
            key = topic_key(TopicName.parse(name))
            await site.metadata.change(put(key, topic_body(topic(name))))
        await trio.sleep(200)
        (reconciler,) = reconcilers
        assert "shop.orders" in await site.log.topics.names()
        assert reconciler.trouble == "shop.a_b: it collides with shop.a.b"
        await site.metadata.change(delete(topic_key(TopicName.parse("shop.a_b"))))
        await trio.sleep(200)
        assert reconciler.trouble == ""


async def test_data_goes_only_when_the_delay_is_over_and_foreign_topics_stay(
    autojump_clock, open_reconciled, topic
):
    async with open_reconciled() as site:
        await site.log.topics.create("somebody.elses", TopicSettings())
        await site.metadata.change(put(KEY, topic_body(topic("shop.orders"))))
        await site.metadata.change(delete(KEY))
        await trio.sleep(590)
        assert "shop.orders" in await site.log.topics.names()
        await trio.sleep(100)
        assert await site.log.topics.names() == ["_hermes.metadata", "somebody.elses"]


async def test_a_topic_created_again_has_a_log_topic_of_its_own_and_loses_only_the_old(
    autojump_clock, open_reconciled, topic
):
    async with open_reconciled() as site:
        await site.metadata.change(put(KEY, topic_body(topic("shop.orders"))))
        deleted = await site.metadata.change(delete(KEY))
        await site.metadata.change(put(KEY, topic_body(topic("shop.orders"))))
        await trio.sleep(1)
        new = site.metadata.catalog.topics["shop.orders"].log_topic
        assert new == f"shop.orders_.{deleted.stamp}"
        assert await site.log.topics.names() == ["_hermes.metadata", "shop.orders", new]
        await trio.sleep(700)
        assert await site.log.topics.names() == ["_hermes.metadata", new]


async def test_data_stays_until_every_datacentre_has_the_deletion(
    autojump_clock, open_site, open_reconciled, topic, clock
):
    async with open_site("dc2") as other, open_reconciled([other.metadata]) as site:
        await site.metadata.change(put(KEY, topic_body(topic("shop.orders"))))
        await other.metadata.change(put(KEY, topic_body(topic("shop.orders"))))
        deleted = await site.metadata.change(delete(KEY))
        await trio.sleep(2_000)
        assert "shop.orders" in await site.log.topics.names()
        stamp = deleted.stamp
        copy = Copy("c", KEY, None, stamp, stamp, "dc1", "dc1", site.metadata.state.log_id, 2)
        record = encode(copy, clock.now_ms())
        await other.log.append(other.metadata.topic, 0, [record], Ack.ALL)
        await trio.sleep(100)
        assert "shop.orders" not in await site.log.topics.names()


async def test_subscriptions_of_a_life_that_is_over_are_deleted(
    autojump_clock, open_reconciled, topic, subscription
):
    async with open_reconciled() as site:
        await site.metadata.change(put(KEY, topic_body(topic("shop.orders"))))
        key = subscription_key(SubscriptionName(NAME, "billing"))
        await site.metadata.change(
            put(key, subscription_body(subscription("shop.orders", "billing"), 0))
        )
        await site.metadata.change(delete(KEY))
        assert "shop.orders$billing" in site.metadata.catalog.orphans
        await trio.sleep(61)
        assert site.metadata.catalog.orphans == {}
        assert not site.metadata.register(key).is_alive


def test_a_record_has_room_for_the_largest_message_and_its_headers(topic):
    large = msgspec.structs.replace(topic("a.b"), max_message_size=2_097_152)
    assert settings_for(large, Config()).record_bytes_max > 2_097_152
