"""A topic's hedge over memory logs, driven under trio's mock clock."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from hermes_actors.config import FrontendConfig
from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.node import Fallback
from hermes_actors.log.base import Outcome, Stored, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack, Chaos
from hermes_actors.publisher.hedging.hedge import Hedge
from hermes_actors.telemetry.metrics import Metrics, render
from hermes_chaos.sim.environment.clock import SimulatedClock

TOPIC = "shop.orders"
LIMIT_S = 0.5


class Message:
    """A message that a publisher waits for."""

    count = 1
    keeps = False
    route = SimpleNamespace(spool=None)

    def __init__(self, number: int, key: bytes | None) -> None:
        self.number = number
        self.key = key
        self.body_bytes = 20
        self.started_s = trio.current_time()
        self.is_done = False
        self.outcome: Outcome | None = None
        self.dc = ""
        self.told: list[Outcome] = []
        self.took_s = 0.0

    def keep(self) -> bool:
        self.is_done = self.keeps
        return self.keeps

    @property
    def is_stored(self) -> bool:
        return type(self.outcome) is Stored


def route_of(chaos: Chaos | None = None, name: str = TOPIC) -> SimpleNamespace:
    """The parts of a route that a hedge needs."""
    topic = SimpleNamespace(ack=Ack.LEADER, chaos=chaos or Chaos())
    return SimpleNamespace(name=name, log_topic=TOPIC, topic=topic, answered=lambda *_told: None)


class World:
    """One topic in some datacentres; dc1 is the own one."""

    def __init__(
        self,
        config: FallbackConfig,
        dcs: int,
        partitions: dict[str, int],
        nursery: trio.Nursery,
        chaos: Chaos | None,
        limit_s: float,
    ) -> None:
        self.logs = {
            f"dc{n}": MemoryLog(f"dc{n}", SimulatedClock(), append_timeout_s=5.0)
            for n in range(1, dcs + 1)
        }
        self.partitions = {dc: partitions.get(dc, 4) for dc in self.logs}
        self.log = self.logs["dc1"]
        self.nursery = nursery
        self.metrics = Metrics("hermes_frontend")
        self.ready = dict.fromkeys(self.logs, True)
        self.trouble = dict.fromkeys(self.logs, "")
        self.stored: dict[str, list[tuple[int, bytes | None, int, str]]] = {}
        for dc, log in self.logs.items():
            self.stored[dc] = []
            log.on_append.append(
                lambda _topic, record, dc=dc: self.stored[dc].append(
                    (
                        int(record.value),
                        record.key,
                        record.partition,
                        dict(record.headers)["via"].decode(),
                    )
                )
            )
        self.fallback = Fallback(
            config,
            self.log,
            {dc: log for dc, log in self.logs.items() if dc != "dc1"},
            nursery,
            SimulatedClock(),
            random.Random(11),
            self.metrics,
            is_ready=lambda dc: self.ready[dc] and not self.trouble[dc],
        )
        self.hedge = Hedge(
            self.fallback,
            route_of(chaos),
            FrontendConfig(max_publish_request_duration_ms=round(limit_s * 1_000)),
            records=self.records,
            settle=self.settle,
        )
        self.keeps = False
        self.on_records: list[Callable[[], None]] = []
        self.messages: list[Message] = []

    async def open(self) -> None:
        for dc, log in self.logs.items():
            await log.topics.create(
                TOPIC, TopicSettings(partitions=self.partitions[dc], record_bytes_max=1_000)
            )
        self.nursery.start_soon(self.hedge.follow)
        await trio.sleep(0.001)

    def records(self, items, dc, via):
        for call in self.on_records:
            call()
        assert not any(item.is_done for item in items), "nothing is begun for what is done"
        return [
            Record(item.key, b"%d" % item.number, (("via", via.encode()),), 0) for item in items
        ]

    def settle(self, dc, items, outcomes, took_s) -> None:
        assert len(items) == len(outcomes)
        for item, outcome in zip(items, outcomes, strict=True):
            item.told.append(outcome)
            if not item.is_done:
                item.is_done = True
                item.outcome = outcome
                item.dc = dc
                item.took_s = trio.current_time() - item.started_s

    def make(self, count: int = 1, key: bytes | None = None) -> list[Message]:
        made = [Message(len(self.messages) + n, key) for n in range(count)]
        for message in made:
            message.keeps = self.keeps
        self.messages += made
        return made

    async def send(self, count: int = 1, partition: int = 0, key: bytes | None = None):
        """Send one batch and wait as its producer does."""
        batch = self.make(count, key)
        await self.hedge.append(batch, partition)
        return batch

    def begin(self, count: int = 1, partition: int = 0, key: bytes | None = None):
        """Start one batch without waiting."""
        batch = self.make(count, key)
        self.nursery.start_soon(self.hedge.append, batch, partition)
        return batch

    async def warm(self, latency_s: float = 0.005) -> None:
        """Send enough ordinary appends for the minimum hedge delay."""
        self.log.faults.delay_s = (latency_s, latency_s)
        for _ in range(20):
            await self.send(10)
        self.log.faults.delay_s = None
        await trio.sleep(0.1)

    def counted(self, name: str, **labels: str) -> float:
        """A metric as scraped; 0 if it was never counted."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        total = 0.0
        for line in render([self.metrics]).decode().splitlines():
            full, _, value = line.rpartition(" ")
            shown, _, rest = full.partition("{")
            if shown == f"hermes_frontend_{name}" and wanted <= set(rest.rstrip("}").split(",")):
                total += float(value)
        return total

    def where(self, number: int) -> list[str]:
        """The datacentres that hold a message."""
        return [dc for dc, kept in self.stored.items() for each in kept if each[0] == number]


OpenWorld = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture(scope="session")
def open_world() -> OpenWorld:
    @asynccontextmanager
    async def opened(
        *,
        dcs: int = 2,
        partitions: dict[str, int] | None = None,
        chaos: Chaos | None = None,
        limit_s: float = LIMIT_S,
        **settings: object,
    ) -> AsyncIterator[World]:
        async with trio.open_nursery() as nursery:
            world = World(
                FallbackConfig(**settings),  # type: ignore[arg-type]
                dcs,
                partitions or {},
                nursery,
                chaos,
                limit_s,
            )
            await world.open()
            yield world
            nursery.cancel_scope.cancel()
        for message in world.messages:
            assert len(message.told) <= 1, f"message {message.number} was told {message.told}"

    return opened


@pytest.fixture
async def world(open_world: OpenWorld, autojump_clock) -> AsyncIterator[World]:
    async with open_world() as world:
        yield world
