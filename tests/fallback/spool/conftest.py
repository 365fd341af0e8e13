"""A spool over a disk in memory, its actors, and logs to replay to."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from hermes_actors.actors.supervisor import Crash, Supervisor, open_supervisor
from hermes_actors.config.fallback import SpoolConfig
from hermes_actors.fallback.spool.format import SpoolEntry
from hermes_actors.fallback.spool.replay import Replayer
from hermes_actors.fallback.spool.spool import Offer, Spool
from hermes_actors.fallback.spool.store import SpoolUnavailable
from hermes_actors.log.base import LATEST, Log, TopicSettings
from hermes_actors.log.faults import Faults
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.model.message import Message, Via
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Ack
from hermes_actors.telemetry.metrics import Metrics, render
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.disk import Mount, SimulatedDisk, open_store_on
from tests.values import a_topic

ORDERS = "shop.orders"


def make_entry(
    body: bytes,
    key: bytes | None = None,
    *,
    topic: str = ORDERS,
    incarnation: int = 0,
    ack: Ack = Ack.LEADER,
) -> SpoolEntry:
    now_ms = SimulatedClock().now_ms()
    log_topic = f"{topic}_.{incarnation}" if incarnation else topic
    message = Message(f"id-{body!r}", body, now_ms, key, dc="dc1", via=Via.SPOOL.value)
    return SpoolEntry(topic, log_topic, incarnation, ack, now_ms, message)


def make_live(name: str, *, incarnation: int = 0, fallback: bool = False) -> LiveTopic:
    topic = a_topic(name, fallback_to_remote_datacenter_enabled=fallback)
    log_topic = f"{name}_.{incarnation}" if incarnation else name
    return LiveTopic(TopicName.parse(name), topic, incarnation, incarnation, log_topic)


class Spooling:
    """One life of a node's spool."""

    def __init__(
        self,
        spool: Spool,
        mounted: Mount,
        metrics: Metrics,
        supervisor: Supervisor,
        clock: SimulatedClock,
    ) -> None:
        self.spool = spool
        self.clock = clock
        self.mounted = mounted
        self.metrics = metrics
        self.supervisor = supervisor
        self.answers: list[tuple[str, str]] = []
        self.live: dict[str, LiveTopic] = {ORDERS: make_live(ORDERS)}
        self.gone: set[tuple[str, int]] = set()
        self.logs: list[Log] = []
        self.crashes: list[Crash] = []

    def offer(self, *entries: SpoolEntry, is_sent: bool = False) -> Offer | None:
        """Offer these together; the result goes into `answers`."""
        name = entries[0].message.body.decode()

        def done(error: SpoolUnavailable | None) -> None:
            self.answers.append((name, "kept" if error is None else error.reason))

        return self.spool.offer(entries, done, is_sent=is_sent)

    def replay(self, *logs: Log) -> None:
        """Start the replayer, which sends to these logs."""
        self.logs = list(logs)
        self.supervisor.start_task(
            "replayer",
            lambda stop: Replayer(self.spool, self, lambda _live: self.logs, random.Random(2)).run(
                stop
            ),
        )

    # What the replayer uses of the metadata.

    @property
    def catalog(self) -> SimpleNamespace:
        return SimpleNamespace(topics=self.live)

    def has_ended(self, name: str, incarnation: int) -> bool:
        return (name, incarnation) in self.gone

    async def stored(self, log: MemoryLog, topic: str = ORDERS) -> dict[int, list[bytes]]:
        """The bodies in each partition of a log."""
        found: dict[int, list[bytes]] = {}
        for partition, end in (await log.positions(topic, LATEST)).items():
            found[partition] = []
            async with log.reader(topic, {partition: 0}) as reader:
                while len(found[partition]) < end:
                    found[partition] += [r.value for r in await reader.next_batch(1_000, 10**6)]
        return found

    async def bodies(self, log: MemoryLog, topic: str = ORDERS) -> list[bytes]:
        return [body for bodies in (await self.stored(log, topic)).values() for body in bodies]

    def shown(self, name: str) -> float:
        """A metric's value; 0 if it is not shown."""
        for line in render([self.metrics]).decode().splitlines():
            if line.startswith(f"hermes_frontend_spool_{name} "):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def wait_empty(self) -> None:
        while self.spool.index.queues:  # noqa: ASYNC110
            await trio.sleep(0.05)


@asynccontextmanager
async def _open_spooling(
    disk: SimulatedDisk, *, ahead_ms: int = 0, **settings: int | bool
) -> AsyncIterator[Spooling]:
    """A life of the spool on this disk, which ends as if killed unless it was closed."""
    clock, metrics = SimulatedClock(ahead_ms), Metrics("hermes_frontend")
    config = SpoolConfig(**settings)  # type: ignore[arg-type]
    mounted = Mount(disk)
    crashes: list[Crash] = []
    async with (
        open_store_on(mounted, config.disk_bytes_max) as store,
        open_supervisor(random.Random(3), crashes.append) as supervisor,
    ):
        spool = Spool(store, config, clock, metrics)
        await spool.load()
        spool.start(supervisor)
        spooling = Spooling(spool, mounted, metrics, supervisor, clock)
        spooling.crashes = crashes
        yield spooling
        mounted.die()


async def _memory_log(
    dc: str = "dc1", *, partitions: int = 3, topics: Sequence[str] = (ORDERS,)
) -> MemoryLog:
    log = MemoryLog(dc, SimulatedClock(), faults=Faults(random.Random(5)), append_timeout_s=2.0)
    for topic in topics:
        await log.topics.create(topic, TopicSettings(partitions=partitions))
    return log


@pytest.fixture
def entry() -> Callable[..., SpoolEntry]:
    """`entry(body, key=None, topic=…, incarnation=…, ack=…)`."""
    return make_entry


@pytest.fixture
def live() -> Callable[..., LiveTopic]:
    """`live(name, incarnation=…, fallback=…)`."""
    return make_live


@pytest.fixture
def open_spooling() -> Callable[..., AbstractAsyncContextManager[Spooling]]:
    """`open_spooling(disk, **settings)`: one life of the spool on this disk."""
    return _open_spooling


@pytest.fixture
def memory_log() -> Callable[..., Awaitable[MemoryLog]]:
    """`await memory_log(dc, partitions=…, topics=…)`."""
    return _memory_log
