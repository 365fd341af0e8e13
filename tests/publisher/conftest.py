"""A frontend over a memory log, driven under trio's mock clock."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Any

import httpx
import pytest
import trio

from hermes_actors.actors.supervisor import Crash, Supervisor, open_supervisor
from hermes_actors.config import FrontendConfig
from hermes_actors.log.base import TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.metadata.catalog import Catalog, LiveTopic
from hermes_actors.model.names import TopicName
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.topic import Ack, ContentType, PublishingAuth
from hermes_actors.publisher.demands import Head
from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_actors.publisher.frontend import Frontend
from hermes_actors.publisher.pending import Pending, Transitions
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.runtime.workers import WorkerPool
from hermes_actors.schema.source import CatalogSchemas
from hermes_actors.schema.topics import TopicValidations
from hermes_actors.telemetry.metrics import Metrics, render
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.http_in import Line, TrioHost
from tests.publisher.in_process import InProcess, answers_of, chunk, head_of
from tests.values import a_topic


class World:
    """One frontend, its log and its client."""

    def __init__(
        self,
        config: FrontendConfig,
        log: MemoryLog,
        supervisor: Supervisor,
        nursery: trio.Nursery,
        **parts: Any,
    ) -> None:
        self.log = log
        self.supervisor = supervisor
        self.nursery = nursery
        self.crashes: list[Crash] = []
        self.metrics = Metrics("hermes_frontend")
        self.stored: list[StoredRecord] = []
        log.on_append.append(lambda _topic, record: self.stored.append(record))
        self.catalog = Catalog()
        # Runs nothing unless a test starts it.
        self.pool = WorkerPool()
        self.validations = TopicValidations(
            CatalogSchemas(self.catalog),
            self.pool,
            frames=config.confluent_framing,
            takes_ids=config.schema_id_header,
        )
        parts.setdefault("schema_of", self.validations.of)
        self._heard_by: list[Transitions] = []
        parts.setdefault("listeners_of", lambda _topic: self._heard_by)
        self.frontend = Frontend(
            config,
            log,
            supervisor,
            self.metrics,
            SimulatedClock(),
            seeded_ids(random.Random(7)),
            **parts,
        )
        front = self.frontend
        self.edge = PublishEdge(front, TrioHost(nursery))
        self.lines: list[Line] = []
        self.tick()
        self.client = httpx.AsyncClient(
            transport=InProcess(self.edge, self.lines), base_url="http://frontend", timeout=None
        )

    def tick(self) -> None:
        self.edge.tick(trio.current_time(), SimulatedClock().now_ms())

    def hear(self, listener: Transitions) -> None:
        """Add a listener to every publish."""
        self._heard_by.append(listener)

    async def sweep(self) -> None:
        """Sweep connections as the listener does."""
        while True:
            await trio.sleep(0.2)
            self.tick()
            for line in self.lines:
                if line.connection.due_s < self.edge.now_s:
                    line.connection.sweep(self.edge.now_s)

    def connect(self) -> Line:
        """A connection that the sweep covers."""
        self.lines.append(line := Line(self.edge))
        return line

    async def add_topic(
        self,
        name: str,
        *,
        ack: Ack = Ack.LEADER,
        content_type: ContentType = ContentType.JSON,
        fallback: bool = False,
        partitions: int = 1,
        incarnation: int = 1,
        message_bytes_max: int = 1_024,
        auth: PublishingAuth | None = None,
        is_created: bool = True,
        **more: Any,
    ) -> None:
        topic = a_topic(
            name,
            **more,
            content_type=content_type,
            ack=ack,
            fallback_to_remote_datacenter_enabled=fallback,
            max_message_size=message_bytes_max,
            auth=auth or PublishingAuth(unauthenticated_access_enabled=True),
        )
        log_topic = f"{name}_{incarnation}"
        if is_created:
            await self.log.topics.create(log_topic, TopicSettings(partitions=partitions))
        live = LiveTopic(TopicName.parse(name), topic, incarnation, incarnation, log_topic)
        self.frontend.routes.set(live, self.nursery)

    async def publish(self, topic: str = "shop.orders", body: bytes = b"{}", **headers: str):
        return await self.client.post(
            f"/topics/{topic}",
            content=body,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    def admit(self, topic: str = "shop.orders", body: bytes = b"{}", key: bytes | None = None):
        """Hand one publish to the gateway without HTTP."""
        publication = self.frontend.gateway.admit(
            topic, len(body), key, Head([], {}), lambda _publication: None
        )
        assert isinstance(publication, Pending)
        self.frontend.gateway.hand_over(publication, body)
        return publication

    async def call(
        self,
        script: list[bytes | float | str],
        headers: dict[str, str],
        topic: str = "shop.orders",
    ) -> tuple[int, bytes, dict[str, str]]:
        """A connection whose body follows a script: pieces, pauses in seconds, "leave"."""
        line = self.connect()
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        is_chunked = "transfer-encoding" in headers
        line.send(head_of("POST", f"/topics/{topic}", pairs))

        async def play() -> None:
            for step in script:
                if step == "leave":
                    line.leave()
                elif isinstance(step, bytes):
                    line.send(chunk(step) if is_chunked else step)
                else:
                    await trio.sleep(step)
            if is_chunked:
                line.send(b"0\r\n\r\n")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(play)
            answers = await answers_of(line) if "leave" not in script else None
            if answers is not None:
                nursery.cancel_scope.cancel()
        self.lines.remove(line)
        return (answers.status, answers.body, answers.header_pairs()) if answers else (0, b"", {})

    def text(self) -> str:
        """The metrics as scraped."""
        return render([self.metrics]).decode()


OpenWorld = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def open_world() -> OpenWorld:
    @asynccontextmanager
    async def opened(
        *,
        is_open: bool = True,
        append_timeout_s: float = 5.0,
        parts: Mapping[str, Any] = MappingProxyType({}),
        log: MemoryLog | None = None,
        **settings: object,
    ) -> AsyncIterator[World]:
        config = FrontendConfig(**settings)  # type: ignore[arg-type]
        if log is None:
            log = MemoryLog("dc1", SimulatedClock(), append_timeout_s=append_timeout_s)
        crashes: list[Crash] = []
        async with (
            open_supervisor(random.Random(1), crashes.append) as supervisor,
            trio.open_nursery() as nursery,
        ):
            world = World(config, log, supervisor, nursery, **parts)
            world.crashes = crashes
            nursery.start_soon(world.frontend.deadlines.run)
            nursery.start_soon(world.sweep)
            if is_open:
                world.frontend.drain.open()
            async with world.client:
                yield world
            nursery.cancel_scope.cancel()

    return opened


@pytest.fixture
async def world(open_world: OpenWorld, autojump_clock) -> AsyncIterator[World]:
    async with open_world() as world:
        await world.add_topic("shop.orders")
        yield world
