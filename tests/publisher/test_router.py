"""A producer for each live topic: the router follows the metadata."""

import random
from functools import partial

import pytest
import trio

from hermes_actors.log.base import LATEST, TopicSettings
from hermes_actors.metadata.bodies import topic_body
from hermes_actors.metadata.commands import delete, put
from hermes_actors.metadata.keys import topic_key
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Ack, Topic
from hermes_actors.runtime.clock import seeded_ids
from tests.values import a_topic


def topic(name: str, ack: Ack = Ack.LEADER) -> Topic:
    return a_topic(name, ack=ack)


class Control:
    """Changes topics as management would."""

    def __init__(self, world, metadata: Metadata) -> None:
        self.world = world
        self.metadata = metadata

    async def put(self, name: str, ack: Ack = Ack.LEADER) -> None:
        await self.metadata.change(
            put(topic_key(TopicName.parse(name)), topic_body(topic(name, ack)))
        )
        log_topic = self.metadata.catalog.topics[name].log_topic
        await self.world.log.topics.create(log_topic, TopicSettings(partitions=2))
        await trio.sleep(0.05)

    async def delete(self, name: str) -> None:
        await self.metadata.change(delete(topic_key(TopicName.parse(name))))
        await trio.sleep(0.05)


@pytest.fixture
async def control(open_world, autojump_clock):
    async with open_world() as world:
        metadata = Metadata(
            world.log,
            clock=world.frontend.clock,
            ids=seeded_ids(random.Random(3)),
            rng=random.Random(4),
        )
        world.supervisor.start_task("registry", lambda stop: Registry(metadata).run(stop))
        await metadata.wait_current()
        world.supervisor.start_task("router", partial(world.frontend.routes.follow, metadata))
        yield Control(world, metadata)


async def test_a_topic_can_be_published_to_once_it_is_created(control, autojump_clock) -> None:
    assert (await control.world.publish()).status_code == 404
    await control.put("shop.orders")
    assert (await control.world.publish()).status_code == 201


async def test_a_deleted_topic_is_unknown_and_its_producer_and_metrics_go(
    control, autojump_clock
) -> None:
    await control.put("shop.orders")
    await control.put("shop.other")
    for name in ("shop.orders", "shop.other"):
        await control.world.publish(name)
    await control.delete("shop.orders")
    assert (await control.world.publish()).status_code == 404
    assert (await control.world.publish("shop.other")).status_code == 201
    producers = [
        name for name in control.world.supervisor.statistics() if name.startswith("producer")
    ]
    assert len(producers) == 1
    assert 'topic="orders"' not in control.world.text()
    assert 'topic="other"' in control.world.text()


async def test_what_was_handed_over_before_a_deletion_is_still_answered(
    control, autojump_clock
) -> None:
    await control.put("shop.orders")
    await control.world.publish()
    control.world.log.faults.delay_s = (0.020, 0.020)
    publications = [control.world.admit(body=b"%d" % number) for number in range(5)]
    route = control.world.frontend.routes.by_name["shop.orders"]
    control.world.frontend.routes.remove("shop.orders", control.world.nursery)
    assert not publications[0].is_done
    await trio.sleep(0.1)
    assert all(publication.is_done for publication in publications)
    assert not route.is_open


async def test_a_topic_created_anew_writes_into_the_log_topic_of_its_new_life(
    control, autojump_clock
) -> None:
    await control.put("shop.orders")
    first = control.world.frontend.routes.by_name["shop.orders"].log_topic
    await control.delete("shop.orders")
    await control.put("shop.orders")
    second = control.world.frontend.routes.by_name["shop.orders"].log_topic
    assert first != second
    assert (await control.world.publish()).status_code == 201
    assert sum((await control.world.log.positions(second, LATEST)).values()) == 1
    assert sum((await control.world.log.positions(first, LATEST)).values()) == 0


async def test_a_changed_ack_level_changes_the_time_limit_without_a_new_producer(
    control, autojump_clock
) -> None:
    await control.put("shop.orders")
    route = control.world.frontend.routes.by_name["shop.orders"]
    assert route.limits.late_ms == 65
    await control.put("shop.orders", Ack.ALL)
    assert control.world.frontend.routes.by_name["shop.orders"] is route
    assert route.limits.late_ms == 400
    assert (await control.world.publish()).status_code == 201
    assert 'topic_ack_all_latency_seconds_count{group="shop",topic="orders"} 1.0' in (
        control.world.text()
    )


async def test_publishing_goes_on_while_the_router_restarts(control, autojump_clock) -> None:
    await control.put("shop.orders")
    await control.put("shop.doomed")
    control.world.supervisor.crash("router")
    await trio.sleep(0.001)
    assert (await control.world.publish()).status_code == 201
    await control.metadata.change(delete(topic_key(TopicName("shop", "doomed"))))
    await trio.sleep(1)
    assert (await control.world.publish("shop.doomed")).status_code == 404
    assert (await control.world.publish()).status_code == 201


async def test_one_topics_poisoned_producer_moves_nobody_else(control, autojump_clock) -> None:
    await control.put("shop.orders")
    await control.put("shop.poisoned")
    poisoned = control.world.frontend.routes.by_name["shop.poisoned"].log_topic
    for _ in range(20):
        control.world.supervisor.crash(f"producer {poisoned}")
        await trio.sleep(0.5)
        assert (await control.world.publish()).status_code == 201


async def test_a_topic_that_comes_back_while_its_producer_still_ends_is_served(
    control, autojump_clock
) -> None:
    # As when a stand-in's metadata gives way to the own log's, which has not got the topic yet.
    await control.put("shop.orders")
    await control.world.publish()
    world, routes = control.world, control.world.frontend.routes
    live = control.metadata.catalog.topics["shop.orders"]
    world.log.faults.silent = True
    stuck = world.admit(body=b"stuck")
    await trio.sleep(0.001)
    routes.remove("shop.orders", world.nursery)
    await trio.sleep(0.1)
    assert stuck.is_done
    world.log.faults.heal()
    routes.set(live, world.nursery)
    assert (await world.publish()).status_code == 201
    await trio.sleep(10)
    assert (await world.publish()).status_code == 201
    names = [name for name in world.supervisor.statistics() if name.startswith("producer")]
    assert len(names) == 1
