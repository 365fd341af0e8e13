"""Metadata in two datacentres with a real Kafka each: changes, an outage, logs that lost something.

dc1 is the session's broker and is never harmed; dc2 is a broker of this module's own.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
import trio

from hermes_actors.actors.supervisor import open_supervisor
from hermes_actors.log.base import Stored
from hermes_actors.metadata.commands import NOTHING_SEEN, Accepted, Put, delete, encode, put
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.metadata.replication import Replicator
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import IdSource, SystemClock, system_rng
from hermes_chaos.live.logs import on_kafka, until
from hermes_local.kafka import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.live]

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def second_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("dc2"), heap_mb=256)
    yield cluster
    cluster.kill()


@pytest.fixture
def second(second_cluster: Cluster) -> Cluster:
    second_cluster.start()
    return second_cluster


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A metadata log of its own for each test."""
    return f"n{random.Random(request.node.name).getrandbits(32):x}"


class Site:
    """One node's view of a datacentre's metadata, with its registry and replicators."""

    def __init__(self, log, namespace, supervisor):
        self.log = log
        self.supervisor = supervisor
        self.metadata = Metadata(
            log, clock=CLOCK, ids=IdSource(), rng=system_rng(), namespace=namespace
        )
        supervisor.start_task("registry", lambda stop: Registry(self.metadata).run(stop))

    def copy_from(self, other):
        self.replicator = Replicator(other.log, self.metadata, clock=CLOCK, rng=system_rng())
        self.supervisor.start_task("replicator", self.replicator.run)

    def body(self, key):
        register = self.metadata.register(key)
        return None if register is None else register.body

    async def change(self, key, value):
        assert isinstance(await self.metadata.change(put(key, value)), Accepted)


@asynccontextmanager
async def sites_over(logs, namespace):
    """A site for each log; each copies from the other, if they are two datacentres'."""
    async with AsyncExitStack() as stack:
        sites = []
        for log in logs:
            supervisor = await stack.enter_async_context(open_supervisor(system_rng()))
            sites.append(Site(log, namespace, supervisor))
        if len({log.dc for log in logs}) == 2:
            sites[0].copy_from(sites[1])
            sites[1].copy_from(sites[0])
        for site in sites:
            await site.metadata.wait_current()
        yield sites


def over(namespace, main, *clusters, **settings):
    """`main(*sites)`, one for each cluster; two of the same cluster are two nodes."""

    async def with_sites(*logs):
        async with sites_over(logs, namespace) as sites:
            return await main(*sites)

    return on_kafka(with_sites, *(each.bootstrap_servers for each in clusters), **settings)


async def converged(*sites) -> bool:
    return len({site.metadata.state.canonical_bytes() for site in sites}) == 1


def test_a_change_in_one_datacentre_is_seen_in_the_other(kafka_cluster, second, namespace):
    async def main(one, two):
        await one.change("note/1", b"one")
        await until(lambda: two.body("note/1") == b"one")
        await two.change("note/1", b"two")
        await until(lambda: one.body("note/1") == b"two")
        assert isinstance(await one.metadata.change(delete("note/1")), Accepted)
        await until(lambda: converged(one, two))
        assert two.body("note/1") is None
        settings = await one.log.topics.describe(one.metadata.topic)
        assert (settings.partitions, settings.retention_ms) == (1, None)
        assert settings.log_append_time

    over(namespace, main, kafka_cluster, second)


def test_nodes_that_start_at_once_on_a_new_cluster_fold_one_log(kafka_cluster, namespace):
    async def main(*logs):
        # The same datacentre, four nodes: the topic and the log's first record are made once.
        same = [_Named(log, "dc1") for log in logs]
        async with AsyncExitStack() as stack:
            sites = [
                Site(log, namespace, await stack.enter_async_context(open_supervisor(system_rng())))
                for log in same
            ]
            for number, site in enumerate(sites):
                await site.change(f"note/{number}", b"")
            ends = max(site.metadata.state.position for site in sites)
            await until(lambda: all(site.metadata.state.position == ends for site in sites))
            assert len({site.metadata.state.snapshot() for site in sites}) == 1
            assert all(site.metadata.refolds == 0 for site in sites)

    servers = [kafka_cluster.bootstrap_servers] * 4
    on_kafka(main, *servers)


def test_a_change_during_the_loss_of_a_datacentre_is_answered_and_comes_after_the_heal(
    kafka_cluster, second, namespace
):
    async def main(one, two):
        await one.change("note/before", b"1")
        await until(lambda: converged(one, two))
        await trio.to_thread.run_sync(second.kill)
        await until(lambda: not two.metadata.is_current)
        for number in range(20):
            await one.change(f"note/{number}", b"during")
        assert two.body("note/19") is None
        await trio.to_thread.run_sync(second.start)
        await until(lambda: converged(one, two))
        assert two.body("note/19") == b"during"
        await until(lambda: two.metadata.is_current)
        await two.change("note/after", b"2")
        await until(lambda: one.body("note/after") == b"2")
        assert two.metadata.refolds == 0

    over(namespace, main, kafka_cluster, second)


def test_a_datacentre_that_does_not_answer_delays_nothing_but_its_own_copy(
    kafka_cluster, second, namespace
):
    broker = second.brokers[0]

    async def main(one, two):
        await one.change("note/before", b"1")
        await until(lambda: converged(one, two))
        broker.pause()
        try:
            await until(lambda: not two.metadata.is_current)
            await one.change("note/during", b"1")
            assert two.body("note/during") is None
        finally:
            broker.resume()
        await until(lambda: converged(one, two))
        await until(lambda: two.metadata.is_current)

    over(namespace, main, kafka_cluster, second)


def test_a_log_that_was_truncated_is_folded_again_told_and_gets_back_what_it_lost(
    kafka_cluster, second, namespace
):
    folder = second.brokers[0].folder / "data"
    kept = second.folder / "kept"

    async def main(one, two):
        partition = folder / f"{two.metadata.topic}-0"
        await one.change("note/early", b"1")
        await two.change("note/own", b"1")
        await until(lambda: converged(one, two))
        # A replica that stayed behind, and is then elected uncleanly.
        await trio.to_thread.run_sync(second.stop)
        shutil.copytree(partition, kept)
        await trio.to_thread.run_sync(second.start)
        await until(lambda: two.metadata.is_current)
        for number in range(5):
            await two.change(f"note/{number}", b"late")
        await one.change("note/late", b"1")
        await until(lambda: converged(one, two))
        await trio.to_thread.run_sync(second.stop)
        shutil.rmtree(partition)
        shutil.move(kept, partition)
        await trio.to_thread.run_sync(second.start)

        # dc1 has copies of all that dc2 lost, also of its own changes.
        await until(lambda: two.metadata.refolds > 0)
        await until(lambda: two.metadata.is_current)
        await until(lambda: converged(one, two))
        assert two.body("note/4") == b"late"
        assert two.body("note/late") == b"1"
        assert any("was read again" in notice for notice in two.metadata.notices())
        # Offsets that were given again are copied like others.
        await two.change("note/after", b"2")
        await until(lambda: one.body("note/after") == b"2")

    over(namespace, main, kafka_cluster, second)


def test_a_log_that_was_deleted_and_made_anew_comes_back_from_the_other_datacentre(
    kafka_cluster, second, namespace
):
    async def main(one, two):
        await one.change("note/1", b"1")
        await two.change("note/2", b"2")
        await until(lambda: converged(one, two))
        old_id = two.metadata.state.log_id
        await two.log.topics.delete(two.metadata.topic)
        await until(lambda: two.metadata.refolds > 0)

        async def is_back():
            state = two.metadata.state
            return state.log_id not in ("", old_id) and await converged(one, two)

        await until(is_back)
        assert (two.body("note/1"), two.body("note/2")) == (b"1", b"2")
        await two.change("note/3", b"3")
        await until(lambda: one.body("note/3") == b"3")

    over(namespace, main, kafka_cluster, second)


def test_what_does_not_decode_is_skipped_counted_and_told_alike_on_every_node(
    kafka_cluster, namespace
):
    newer = msgspec.msgpack.decode(encode(Put("9", "note/9", b"", (), NOTHING_SEEN), 0).value)
    values = [b"garbage", b"", msgspec.msgpack.encode({**newer, "v": 2})]

    async def main(*logs):
        same = [_Named(log, "dc1") for log in logs]
        async with sites_over(same, namespace) as (one, two):
            await one.change("note/1", b"1")
            garbage = [Record(None, value, (), CLOCK.now_ms()) for value in values]
            outcomes = await one.log.append(one.metadata.topic, 0, garbage, Ack.ALL)
            assert all(isinstance(outcome, Stored) for outcome in outcomes)
            await two.change("note/2", b"2")
            await until(lambda: one.metadata.state.position == two.metadata.state.position)
            for site in (one, two):
                assert site.metadata.state.undecodable == 3
                assert site.body("note/9") is None
                assert site.metadata.is_current
                (notice,) = site.metadata.notices()
                assert f"the last, at {outcomes[-1].offset}:" in notice
            assert one.metadata.state.snapshot() == two.metadata.state.snapshot()

    on_kafka(main, *[kafka_cluster.bootstrap_servers] * 2)


class _Named:
    """A log under another datacentre's name: several nodes of one."""

    def __init__(self, log, dc):
        self._log = log
        self.dc = dc

    def __getattr__(self, name):
        return getattr(self._log, name)
