"""One datacentre's metadata over a memory log, with its registry under a supervisor."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from hermes_actors.actors.supervisor import Supervisor, open_supervisor
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.model.subscription import Subscription
from hermes_actors.model.topic import Topic
from hermes_actors.runtime.clock import seeded_ids
from hermes_chaos.sim.environment.clock import SimulatedClock
from tests.values import a_subscription, a_topic


class Site:
    """One datacentre: its log, its metadata and its supervised registry."""

    def __init__(self, dc: str, supervisor: Supervisor, log: MemoryLog, metadata: Metadata) -> None:
        self.dc = dc
        self.supervisor = supervisor
        self.log = log
        self.metadata = metadata
        supervisor.start_task("registry", lambda stop: Registry(metadata).run(stop))


OpenSite = Callable[..., AbstractAsyncContextManager[Site]]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def open_site(clock: SimulatedClock) -> OpenSite:
    @asynccontextmanager
    async def open_it(
        dc: str = "dc1",
        log: MemoryLog | None = None,
        standins: tuple[Metadata, ...] = (),
        seed: int = 0,
    ) -> AsyncIterator[Site]:
        rng = random.Random(f"{dc}{seed}")
        log = log if log is not None else MemoryLog(dc, clock)
        metadata = Metadata(
            log,
            clock=clock,
            ids=seeded_ids(rng),
            rng=rng,
            standins=standins,
            entries_max=10_000,
        )
        async with open_supervisor(rng) as supervisor:
            yield Site(dc, supervisor, log, metadata)

    return open_it


@pytest.fixture
def topic() -> Callable[[str], Topic]:
    return lambda name: a_topic(name)


@pytest.fixture
def subscription() -> Callable[[str, str], Subscription]:
    return lambda topic, name: a_subscription(name, topic=topic, endpoint="http://localhost/")
