"""Topics with the remote flag are published while any datacentre works, and answered in time."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest
import trio

from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.node import Fallback
from hermes_actors.log.base import Stored, TopicSettings, UnknownRecord
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.topic import Chaos, ChaosMode, ChaosPolicy
from hermes_actors.publisher.pending import Transitions
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.sim.environment.clock import SimulatedClock

OpenPair = Callable[..., AbstractAsyncContextManager[SimpleNamespace]]


@pytest.fixture
def open_pair(open_world) -> OpenPair:
    """A frontend in dc1, and the log of dc2 beside its own."""

    @asynccontextmanager
    async def opened(
        *,
        partitions: int = 4,
        remote_partitions: int = 4,
        topic: bool = True,
        replay: bool = False,
        **settings: object,
    ) -> AsyncIterator[SimpleNamespace]:
        remote = MemoryLog("dc2", SimulatedClock())
        kept = []
        remote.on_append.append(lambda _topic, record: kept.append(record))
        metrics = Metrics("hermes_frontend")
        async with trio.open_nursery() as nursery:
            own = MemoryLog("dc1", SimulatedClock())
            fallback = Fallback(
                FallbackConfig(**settings),  # type: ignore[arg-type]
                own,
                {"dc2": remote},
                nursery,
                SimulatedClock(),
                random.Random(3),
                metrics,
            )
            async with open_world(parts={"fallback": fallback}, log=own, replay=replay) as world:
                await remote.topics.create(
                    "shop.orders_1", TopicSettings(partitions=remote_partitions)
                )
                if topic:
                    await world.add_topic("shop.orders", fallback=True, partitions=partitions)
                    await trio.sleep(0.01)
                yield SimpleNamespace(world=world, remote=remote, kept=kept, own=own)
            nursery.cancel_scope.cancel()

    return opened


def via(record) -> str:
    return dict(record.headers)["via"].decode()


async def test_a_publish_is_201_through_the_remote_when_the_own_datacentre_is_gone(
    open_pair, autojump_clock
) -> None:
    async with open_pair() as pair:
        pair.own.faults.cut()
        response = await pair.world.publish(body=b"precious")
        assert response.status_code == 201
        (record,) = pair.kept
        assert record.value == b"precious"
        headers = dict(record.headers)
        assert headers["id"].decode() == response.headers["hermes-message-id"]
        assert headers["dc"] == b"dc1"
        assert via(record) == "fallback"
        text = pair.world.text()
        assert (
            'hermes_frontend_topic_published_total{group="shop",storageDc="dc2",topic="orders"} 1.0'
        ) in text
        published = pair.world.frontend.published("shop.orders")
        assert published is not None
        assert published.messages == 1


async def test_each_append_of_a_hedged_message_is_told_of_when_it_ends(
    open_pair, autojump_clock
) -> None:
    class Heard(Transitions):
        def sent(self, pendings, dc, via, places=None) -> None:
            told.append(("sent", len(pendings), dc, via))

        def answered(self, pendings, dc, partition, outcomes, took_s, places=None) -> None:
            assert pendings[0].is_answered == (dc == "dc1")
            told.append(("answered", len(pendings), dc, [type(each) for each in outcomes]))

    told: list[tuple] = []
    async with open_pair() as pair:
        pair.world.hear(Heard())
        pair.own.faults.silent = True
        assert (await pair.world.publish()).status_code == 201
        await trio.sleep(60)
    assert told == [
        ("sent", 1, "dc1", "local"),
        ("sent", 1, "dc2", "hedge"),
        ("answered", 1, "dc2", [Stored]),
        ("answered", 1, "dc1", [UnknownRecord]),
    ]


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_replay_for_one_subscription_stays_so_in_another_datacentre(
    open_pair, autojump_clock, is_cut
) -> None:
    async with open_pair(replay=True) as pair:
        if is_cut:
            pair.own.faults.cut()
        else:
            pair.own.faults.silent = True
        response = await pair.world.publish(hermes_replay_id="x", hermes_replay_for="billing")
        assert response.status_code == 201
        (record,) = pair.kept
        headers = dict(record.headers)
        assert (headers["id"], headers["only-for"]) == (b"x", b"billing")
        assert via(record) == ("fallback" if is_cut else "hedge")


async def test_both_silent_is_500_within_the_limit_and_names_each_datacentre(
    open_pair, autojump_clock
) -> None:
    async with open_pair() as pair:
        pair.own.faults.silent = pair.remote.faults.silent = True
        started_s = trio.current_time()
        response = await pair.world.publish()
        assert response.status_code == 500
        assert trio.current_time() - started_s <= 0.5
        body = response.json()
        assert body["code"] == "INTERNAL_ERROR"
        assert "[dc1: no acknowledgement in time]" in body["message"]
        assert "[dc2: no acknowledgement in time]" in body["message"]


async def test_both_refusing_is_500_at_once_and_says_that_it_was_not_stored(
    open_pair, autojump_clock
) -> None:
    async with open_pair() as pair:
        pair.own.faults.cut()
        pair.remote.faults.cut()
        response = await pair.world.publish()
        assert response.status_code == 500
        assert "was not stored: [dc1: " in response.json()["message"]


async def test_without_a_usable_remote_the_timer_answers_503_after_the_longer_limit(
    open_pair, autojump_clock
) -> None:
    async with open_pair() as pair:
        await pair.remote.topics.delete("shop.orders_1")
        await pair.world.add_topic("shop.lonely", fallback=True)
        await trio.sleep(0.01)
        pair.own.faults.silent = True
        started_s = trio.current_time()
        response = await pair.world.publish("shop.lonely")
        assert response.status_code == 503
        assert response.json()["code"] == "SENDING_TO_KAFKA_TIMEOUT"
        assert trio.current_time() - started_s == pytest.approx(0.5, abs=0.01)


async def test_a_topic_without_the_flag_stays_at_home(open_pair, autojump_clock) -> None:
    async with open_pair() as pair:
        await pair.remote.topics.create("shop.homely_1", TopicSettings())
        await pair.world.add_topic("shop.homely")
        await trio.sleep(0.01)
        pair.own.faults.cut()
        response = await pair.world.publish("shop.homely")
        assert response.status_code == 500
        assert pair.kept == []


async def test_the_flag_may_be_set_while_the_topic_is_published_to(
    open_pair, autojump_clock
) -> None:
    async with open_pair() as pair:
        world = pair.world
        await pair.remote.topics.create("shop.late_1", TopicSettings())
        await world.add_topic("shop.late")
        assert (await world.publish("shop.late")).status_code == 201
        await world.add_topic("shop.late", fallback=True)
        assert (await world.publish("shop.late")).status_code == 201
        await trio.sleep(0.1)
        pair.own.faults.cut()
        assert (await world.publish("shop.late")).status_code == 201
        await world.add_topic("shop.late", fallback=False, is_created=False)
        assert (await world.publish("shop.late")).status_code == 500


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_a_frontend_that_starts_without_its_own_log_publishes_to_the_remote(
    open_pair, autojump_clock, how
) -> None:
    async with open_pair(topic=False, partitions=3, remote_partitions=5) as pair:
        world = pair.world
        keys = [b"key-%d" % n for n in range(12)]
        await pair.own.topics.create("shop.orders_1", TopicSettings(partitions=3))
        if how == "cut":
            pair.own.faults.reads_failing = True
        else:
            pair.own.faults.reads_silent = True
        await world.add_topic("shop.orders", fallback=True, is_created=False)
        await trio.sleep(0.6)
        publications = [world.admit(key=key) for key in keys]
        await trio.sleep(0.05)
        assert all(type(each.outcome) is Stored for each in publications)
        assert {each.partition for each in pair.kept if each.key == keys[0]} == {
            partition_of(keys[0], 5)
        }
        assert world.stored == []
        pair.own.faults.heal()
        await trio.sleep(1.5)
        publications = [world.admit(key=key) for key in keys]
        await trio.sleep(0.05)
        assert all(type(each.outcome) is Stored for each in publications)
        assert {each.key: each.partition for each in world.stored} == {
            key: partition_of(key, 3) for key in keys
        }


@pytest.mark.slow
async def test_keys_keep_their_order_through_an_outage(open_pair, autojump_clock) -> None:
    async with open_pair(partitions=3, remote_partitions=5) as pair:
        world, rng = pair.world, random.Random(5)
        publications = []

        async def publish() -> None:
            for number in range(3_000):
                key = b"key-%d" % rng.randrange(7)
                publications.append(world.admit(body=b"%d" % number, key=key))
                await trio.sleep(0.002)

        pair.own.faults.delay_s = (0.001, 0.010)
        pair.remote.faults.delay_s = (0.010, 0.030)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            await trio.sleep(1)
            pair.own.faults.silent = True
            await trio.sleep(2)
            pair.own.faults.silent = False
            await trio.sleep(1)
            pair.own.faults.cut()
            await trio.sleep(1)
            pair.own.faults.heal()
        await trio.sleep(1)
        assert [each.answer.status for each in publications] == [201] * 3_000
        for kept in (world.stored, pair.kept):
            for key in {record.key for record in kept}:
                numbers = [int(record.value) for record in kept if record.key == key]
                assert numbers == sorted(numbers)
        assert {int(each.value) for each in [*world.stored, *pair.kept]} == set(range(3_000))


async def test_a_chaos_experiment_fails_the_own_sends_and_the_remote_helps(
    open_pair, autojump_clock
) -> None:
    async with open_pair() as pair:
        world = pair.world
        route = world.frontend.routes.by_name["shop.orders"]
        chaos = Chaos(
            ChaosMode.DATACENTER, None, {"dc1": ChaosPolicy(100, 40, 40, complete_with_error=True)}
        )
        route.topic = msgspec.structs.replace(route.topic, chaos=chaos)
        for _ in range(3):
            started_s = trio.current_time()
            assert (await world.publish()).status_code == 201
            assert trio.current_time() - started_s == pytest.approx(0.040, abs=0.005)
        assert world.stored == []
        route.topic = msgspec.structs.replace(
            route.topic, chaos=Chaos(ChaosMode.GLOBAL, ChaosPolicy(100, 30, 60))
        )
        started_s = trio.current_time()
        assert (await world.publish()).status_code == 201
        assert 0.030 <= trio.current_time() - started_s <= 0.061


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_a_batch_request_is_stored_elsewhere_and_each_key_where_it_belongs(
    open_pair, autojump_clock, how
) -> None:
    async with open_pair(partitions=2, remote_partitions=7) as pair:
        if how == "cut":
            pair.own.faults.cut()
        else:
            pair.own.faults.silent = True
        lines = b"\n".join(
            msgspec.json.encode({"key": f"key-{n % 9}", "message": {"n": n}}) for n in range(100)
        )
        response = await pair.world.client.post(
            "/topics/shop.orders/batch",
            content=lines,
            headers={"content-type": "application/vnd.hermes.messages+ndjson"},
        )
        answers = [msgspec.json.decode(line) for line in response.text.splitlines()]
        assert [answer["status"] for answer in answers] == [201] * 100
        assert len(pair.kept) == 100
        for number in range(9):
            key = b"key-%d" % number
            records = [record for record in pair.kept if record.key == key]
            assert {record.partition for record in records} == {partition_of(key, 7)}
            numbers = [msgspec.json.decode(record.value)["n"] for record in records]
            assert numbers == list(range(number, 100, 9))


async def test_the_remote_is_looked_up_when_a_topic_asks_for_it_and_not_when_it_is_published_to(
    open_pair, autojump_clock
) -> None:
    async with open_pair(topic=False) as pair:
        world = pair.world
        await world.add_topic("shop.orders", partitions=4)
        await trio.sleep(0.01)
        await world.add_topic("shop.orders", fallback=True, is_created=False)
        await trio.sleep(0.01)
        pair.own.faults.cut()
        pair.remote.faults.reads_failing = True
        assert (await world.publish()).status_code == 201


@pytest.mark.parametrize("how", ["cut", "silent"])
async def test_a_topic_that_the_own_log_never_told_of_may_ask_for_the_remote_later(
    open_pair, autojump_clock, how
) -> None:
    async with open_pair(topic=False) as pair:
        world = pair.world
        if how == "cut":
            pair.own.faults.cut()
        else:
            pair.own.faults.read_delay_s = (1e6, 1e6)
        await world.add_topic("shop.orders", is_created=False)
        await trio.sleep(3)
        await world.add_topic("shop.orders", fallback=True, is_created=False)
        await trio.sleep(3)
        assert (await world.publish()).status_code == 201
        assert len(pair.kept) == 1
