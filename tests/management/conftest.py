"""A management API in process: the real app over the real metadata over a log in memory."""

import random
from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any

import httpx
import msgspec
import pytest
import trio

from hermes_actors.config import Config, ManagementConfig
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous, Caller
from hermes_actors.management.administration import Administration, ClusterView
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.model.topic import Owner
from hermes_actors.runtime.bridge import TrioBridge, open_bridge
from hermes_actors.runtime.clock import seeded_ids
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.security.account import Credentials, Unauthenticated
from hermes_actors.telemetry.metrics import Metrics
from tests.management.shared_apps import Apps

START_MS = 1_700_000_000_000


class SteppedClock:
    """Wall time is set by the test; deadlines follow trio's clock."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return trio.current_time()

    def boottime_s(self) -> float:
        return self.monotonic_s()


class Person:
    """A caller who owns what one of their teams owns."""

    def __init__(self, name: str, teams: tuple[str, ...], is_admin: bool) -> None:
        self.name = name
        self.is_admin = is_admin
        self.is_read_only = False
        self._teams = teams

    def owns(self, owner: Owner) -> bool:
        return owner.id in self._teams


class ByHeader:
    """A provider that believes the headers x-user (a name) and x-teams; nobody is an admin."""

    async def identify(self, credentials: Credentials) -> Caller:
        name = credentials.header("x-user")
        if not name:
            return Anonymous()
        teams = tuple(team for team in credentials.header("x-teams").split(",") if team)
        return Person(name, teams, is_admin=name == "admin")

    def refusal(self) -> Unauthenticated:
        return Unauthenticated("nobody is asked here", ())


def topic_of(name: str = "shop.orders", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "what is ordered",
        "owner": {"source": "Plaintext", "id": "sales"},
        "contentType": "JSON",
        "retentionTime": {"duration": 1},
        **fields,
    }


def subscription_of(
    name: str = "billing", topic: str = "shop.orders", **fields: Any
) -> dict[str, Any]:
    return {
        "topicName": topic,
        "name": name,
        "endpoint": "https://billing.example.com/orders",
        "description": "sends the bill",
        "owner": {"source": "Plaintext", "id": "finance"},
        **fields,
    }


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and code; asserts that the body has an error's two fields in order."""
    body = answer.json()
    assert list(body) == ["message", "code"]
    assert answer.headers["content-type"].startswith("application/json")
    return answer.status_code, body["code"]


def message_of(answer: httpx.Response) -> str:
    text = answer.json()["message"]
    assert isinstance(text, str)
    return text


class Api:
    """One datacentre's management, with access to its internals."""

    topic = staticmethod(topic_of)
    subscription = staticmethod(subscription_of)
    refusal = staticmethod(refusal)
    message = staticmethod(message_of)

    def __init__(
        self,
        administration: Administration,
        metadata: Metadata,
        log: MemoryLog,
        clock: SteppedClock,
        bridge: TrioBridge,
        metrics: Metrics,
        config: Config,
    ) -> None:
        self.pool = InlinePool()
        self.administration = administration
        self.metadata = metadata
        self.log = log
        self.clock = clock
        self.bridge = bridge
        self.metrics = metrics
        self.config = config
        self.apps = Apps()
        self.client = self.rebuilt()

    def rebuilt(self) -> httpx.AsyncClient:
        """A client of a new app, with the current administration and config."""
        self.app = self.apps.app(self.administration, self.bridge, self.config, [self.metrics])
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def administered_with(self, **parts: Any) -> None:
        """Use an administration with these parts from now on; the other parts stay."""
        known = {field.name for field in fields(ClusterView)}
        view = ClusterView(**{name: parts.pop(name) for name in known & parts.keys()})
        parts = {
            "config": self.config,
            "security": self.administration.security,
            "pool": self.pool,
            **parts,
        }
        self.administration = Administration(
            self.metadata, self.log, clock=self.clock, view=view, **parts
        )
        self.client = self.rebuilt()

    def close(self) -> None:
        self.apps.give_back()

    async def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return await self.client.get(path, **kwargs)

    async def post(self, path: str, body: Any, **kwargs: Any) -> httpx.Response:
        return await self.client.post(path, json=body, **kwargs)

    async def put(self, path: str, body: Any, **kwargs: Any) -> httpx.Response:
        return await self.client.put(path, json=body, **kwargs)

    async def delete(self, path: str, **kwargs: Any) -> httpx.Response:
        return await self.client.delete(path, **kwargs)

    async def with_topic(self, name: str = "shop.orders", **fields: Any) -> None:
        """Create the topic, and its group if necessary."""
        group = name.rpartition(".")[0]
        if group not in self.metadata.catalog.groups:
            assert (await self.post("/groups", {"groupName": group})).status_code == 201
        answer = await self.post("/topics", topic_of(name, **fields))
        assert answer.status_code == 201, answer.text

    async def with_subscription(
        self, name: str = "billing", topic: str = "shop.orders", **fields: Any
    ) -> None:
        body = subscription_of(name, topic, **fields)
        answer = await self.post(f"/topics/{topic}/subscriptions", body)
        assert answer.status_code == 201, answer.text


@pytest.fixture
def settings() -> ManagementConfig:
    """Settings that a test module may override."""
    return ManagementConfig(allow_removal=True)


@pytest.fixture
async def api(settings: ManagementConfig, nursery: trio.Nursery) -> AsyncIterator[Api]:
    clock = SteppedClock()
    log = MemoryLog("dc1", clock)
    rng = random.Random(1)
    metadata = Metadata(log, clock=clock, ids=seeded_ids(rng), rng=rng, entries_max=10_000)
    stop = trio.Event()
    nursery.start_soon(Registry(metadata).run, stop)
    await metadata.wait_current()
    config = msgspec.structs.replace(Config(), management=settings)
    administration = Administration(
        metadata, log, config, clock, security=ByHeader(), pool=InlinePool()
    )
    metrics = Metrics("hermes_test")
    async with open_bridge() as bridge:
        api = Api(administration, metadata, log, clock, bridge, metrics, config)
        async with api.client:
            yield api
        api.close()
