"""Whole nodes whose schemas an external registry keeps."""

from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
import trio

from hermes_actors.config import Config, ManagementConfig, SchemaConfig
from hermes_actors.errors import Unavailable
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.node import open_node
from hermes_actors.publisher.edges.publishing import PublishEdge
from hermes_actors.schema.client import RegistryClient
from hermes_chaos.sim.environment.clock import SimulatedClock
from hermes_chaos.sim.environment.http_in import TrioHost
from hermes_chaos.sim.environment.surroundings import surroundings
from hermes_chaos.wanted import topic_body
from tests.publisher.in_process import InProcess
from tests.schema_registry import TOPIC, URL, Registry

ANYBODY = Anonymous()
NUMBER_OR_TEXT = '{"type":"object","properties":{"id":{"type":["integer","string"]}}}'
NUMBER = '{"type":"object","properties":{"id":{"type":"integer"}}}'


@pytest.fixture
def registry():
    return Registry()


@asynccontextmanager
async def a_node(log, registry, name="node1"):
    """A node, and what publishes to it."""
    config = Config(
        node=name,
        roles=["frontend", "management"],
        schema=SchemaConfig(registry="http", urls=[URL], refresh_interval_ms=5_000),
        management=ManagementConfig(allow_schema_removal=True),
    )
    transport = httpx.MockTransport(registry)
    environment = replace(
        surroundings(SimulatedClock(), log, seed=len(name)),
        ask_registry=lambda schema: RegistryClient(schema, transport),
    )
    async with trio.open_nursery() as nursery, open_node(config, environment) as node:
        await node.metadata.wait_current()
        node.frontend.drain.open()
        edge = PublishEdge(node.frontend, TrioHost(nursery))
        edge.tick(trio.current_time(), SimulatedClock().now_ms())
        async with httpx.AsyncClient(
            transport=InProcess(edge, []), base_url="http://frontend", timeout=None
        ) as client:

            async def publish(body, **headers):
                edge.tick(trio.current_time(), SimulatedClock().now_ms())
                sent = {name.replace("_", "-"): value for name, value in headers.items()}
                answer = await client.post(f"/topics/{TOPIC}", content=body, headers=sent)
                return answer.status_code, answer.text

            yield node, publish
        nursery.cancel_scope.cancel()


async def create(node, **fields):
    await node.administration.groups.create(ANYBODY, {"groupName": "shop"})
    await node.administration.topics.create(ANYBODY, {**topic_body(TOPIC), **fields})
    await node.wait_prepared()


def away(_request):
    raise httpx.ConnectError("refused")


async def test_a_saved_schema_is_in_the_registry_and_used_by_every_node(autojump_clock, registry):
    log = MemoryLog("dc1", SimulatedClock())
    async with (
        a_node(log, registry) as (node, publish),
        a_node(log, registry, "another") as (other, publish_there),
    ):
        await create(node, schema=NUMBER_OR_TEXT)
        await other.wait_prepared()
        assert registry.subjects[TOPIC][1]["schema"] == NUMBER_OR_TEXT
        assert (await publish('{"id":"a"}'))[0] == 201
        assert (await publish_there('{"id":true}'))[0] == 400
        assert (await publish_there('{"id":"a"}'))[0] == 201
        await node.administration.topic_schemas.save(ANYBODY, TOPIC, NUMBER)
        assert await node.administration.topic_schemas.newest(TOPIC) == NUMBER
        await trio.sleep(1)
        assert (await publish('{"id":"a"}'))[0] == 400
        assert (await publish_there('{"id":"a"}'))[0] == 400
        assert await other.administration.topic_schemas.version(TOPIC, 1) == NUMBER_OR_TEXT
        await node.administration.topic_schemas.remove(ANYBODY, TOPIC)
        assert TOPIC not in registry.subjects
        await trio.sleep(1)
        assert (await publish_there('{"id":"a"}'))[0] == 201


async def test_a_node_that_starts_while_the_registry_is_away(autojump_clock, registry):
    log = MemoryLog("dc1", SimulatedClock())
    async with a_node(log, registry) as (node, _):
        await create(node, schema=NUMBER)
    registry.instead = away
    async with a_node(log, registry) as (node, publish):
        await node.wait_prepared()
        status, text = await publish('{"id":"a"}')
        assert (status, "SCHEMA_COULD_NOT_BE_LOADED" in text) == (500, True)
        assert "refused" in text
        notices = (await node.administration.health.shown())["notices"]
        assert notices == [f"schema registry: {URL}: refused"]
        with pytest.raises(Unavailable):
            await node.administration.topic_schemas.newest(TOPIC)
        assert (await node.administration.topics.get(TOPIC))["name"] == TOPIC
        await trio.sleep(60)
        assert (await publish('{"id":1}'))[0] == 500
        registry.instead = None
        await trio.sleep(12)
        assert (await publish('{"id":"a"}'))[0] == 400
        assert (await publish('{"id":1}'))[0] == 201
        assert await node.administration.health.shown() == {"status": "UP"}


async def test_a_json_topic_that_nobody_gave_a_schema_here_goes_on(autojump_clock, registry):
    registry.instead = away
    log = MemoryLog("dc1", SimulatedClock())
    async with a_node(log, registry) as (node, publish):
        await create(node)
        assert (await publish('{"id":"a"}'))[0] == 201
        registry.put(1, 7, schema=NUMBER, schemaType="JSON")
        registry.instead = None
        await trio.sleep(12)
        assert (await publish('{"id":"a"}'))[0] == 400


AGE = """{"type":"record","name":"User","fields":[{"name":"__metadata","default":null,
    "type":["null",{"type":"map","values":"string"}]},{"name":"age","type":"int"}]}"""
BOTH = AGE.replace('"int"}', '"int"},{"name":"name","type":"string","default":""}')
AVRO = {"content_type": "application/json"}


async def test_a_version_that_cannot_be_asked_for_is_500_and_heals(autojump_clock, registry):
    log = MemoryLog("dc1", SimulatedClock())
    async with a_node(log, registry) as (node, publish):
        await create(node, contentType="AVRO", schema=AGE)
        assert (await publish('{"age":1}', **AVRO))[0] == 201
        await trio.sleep(2)
        status, text = await publish('{"age":1}', schema_version="2", **AVRO)
        assert status == 400
        assert "SCHEMA_VERSION_DOES_NOT_EXIST" in text
        registry.instead = away
        registry.put(2, 102, schema=BOTH)
        for _ in range(60):
            await trio.sleep(1)
            assert (await publish('{"age":1}', **AVRO))[0] == 201
            status, text = await publish('{"age":1}', schema_version="2", **AVRO)
            assert status == 500
            assert "SCHEMA_COULD_NOT_BE_LOADED" in text
            assert "refused" in text
        registry.instead = None
        await trio.sleep(12)
        assert (await publish('{"age":1}', schema_version="2", **AVRO))[0] == 201
        assert (await publish('{"age":1}', schema_version="3", **AVRO))[0] == 400


async def test_a_version_that_was_saved_and_is_not_shown_yet_is_500(autojump_clock, registry):
    log = MemoryLog("dc1", SimulatedClock())
    async with a_node(log, registry) as (node, publish):
        await create(node, contentType="AVRO", schema=AGE)
        assert (await publish('{"age":1}', **AVRO))[0] == 201
        await node.administration.topic_schemas.save(ANYBODY, TOPIC, BOTH)
        late = registry.subjects[TOPIC].pop(2)
        await trio.sleep(20)
        status, text = await publish('{"age":1}', schema_version="2", **AVRO)
        assert (status, "does not show it" in text) == (500, True)
        registry.subjects[TOPIC][2] = late
        await trio.sleep(60)
        assert (await publish('{"age":1}', schema_version="2", **AVRO))[0] == 201


async def hung(_request):
    await trio.sleep(1_000)


async def test_nobody_waits_for_a_registry_that_hangs(autojump_clock, registry):
    log = MemoryLog("dc1", SimulatedClock())
    async with a_node(log, registry) as (node, publish):
        await create(node, contentType="AVRO", schema=AGE)
        registry.instead = hung
        # The first one that asks waits for its answer.
        await trio.sleep(2)
        await publish('{"age":1}', schema_version="2", **AVRO)
        await trio.sleep(10)
        began_s = trio.current_time()
        for _ in range(200):
            assert (await publish('{"age":1}', schema_version="2", **AVRO))[0] == 500
            await trio.sleep(0.1)
        assert trio.current_time() - began_s < 21
