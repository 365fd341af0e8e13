"""An external registry as a node asks it: over HTTP in one process, under a mock clock."""

import json
import random
from contextlib import asynccontextmanager

import httpx
import pytest
import trio

from hermes_actors.config import SchemaConfig
from hermes_actors.errors import Refused, Unavailable
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.schema import Schema, SchemaKind
from hermes_actors.schema.client import (
    ANSWER_BYTES_MAX,
    LISTED_MAX,
    BadAnswer,
    RegistryAway,
    RegistryClient,
)
from hermes_actors.schema.external import ExternalSchemas
from hermes_chaos.sim.environment.clock import SimulatedClock
from tests.schema_registry import TOPIC, URL, Registry


@pytest.fixture
def registry():
    return Registry()


def config_of(**fields):
    return SchemaConfig(registry="http", urls=fields.pop("urls", [URL]), **fields)


def client_of(registry, **fields):
    return RegistryClient(config_of(**fields), httpx.MockTransport(registry))


@asynccontextmanager
async def following(registry, **fields):
    config = config_of(**fields)
    client = RegistryClient(config, httpx.MockTransport(registry))
    catalog = Catalog()
    catalog.topics = {TOPIC: None, "shop.returns": None}
    schemas = ExternalSchemas(client, config, catalog, SimulatedClock(), random.Random(7))
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(schemas.run, stop)
        yield schemas
        stop.set()


async def asked(schemas, topic=TOPIC):
    told = trio.Event()
    schemas.ask(topic, told.set)
    with trio.fail_after(60):
        await told.wait()


async def test_versions_are_looked_up_and_known_from_then_on(autojump_clock, registry):
    name = "eu.shop.orders-value"
    registry.put(1, 11, name=name)
    registry.put(2, 12, name=name, schema='{"type":"object"}', schemaType="JSON", references=[])
    async with following(registry, subject_prefix="eu.", subject_suffix="-value") as schemas:
        assert schemas.versions_of(TOPIC) == {}
        await asked(schemas)
        versions = schemas.versions_of(TOPIC)
        assert [(each.number, each.id) for each in versions.values()] == [(1, 11), (2, 12)]
        assert versions[2].schema == Schema(SchemaKind.JSON, '{"type":"object"}')
        assert schemas.by_id(11) == versions[1].schema
        count = len(registry.asked)
        await asked(schemas)
        assert len(registry.asked) == count, "it was asked a moment ago"


async def test_a_version_that_was_made_elsewhere_is_found_by_the_refresh(autojump_clock, registry):
    registry.put(1, 11)
    async with following(registry, refresh_interval_ms=10_000) as schemas:
        renewed = []
        schemas.listeners.append(renewed.append)
        await asked(schemas)
        registry.put(2, 12)
        await trio.sleep(11)
        assert list(schemas.versions_of(TOPIC)) == [1, 2]
        assert renewed == [TOPIC, TOPIC]
        await trio.sleep(30)
        assert renewed == [TOPIC, TOPIC], "nothing new is no news"


async def test_a_registry_that_stops_for_a_minute(autojump_clock, registry):
    registry.put(1, 11)
    registry.put(1, 12, name="shop.returns")
    async with following(registry, refresh_interval_ms=5_000) as schemas:
        await asked(schemas)
        registry.instead = lambda _request: (_ for _ in ()).throw(httpx.ConnectError("refused"))
        await trio.sleep(60)
        assert list(schemas.versions_of(TOPIC)) == [1], "what is known goes on"
        assert schemas.trouble == f"{URL}: refused"
        assert schemas.versions_of("shop.returns") == {}
        before_s = trio.current_time()
        await asked(schemas, "shop.returns")
        assert trio.current_time() - before_s < 4, "nobody waits for long"
        registry.instead = None
        await trio.sleep(12)
        assert list(schemas.versions_of("shop.returns")) == [1], "it heals by itself"
        assert schemas.trouble == ""


GARBAGE = [
    httpx.Response(200, text="<html>log in</html>"),
    httpx.Response(200, text='{"versions": 1}'),
    httpx.Response(200, content=b"[" * 100_000),
    httpx.Response(200, content=b"\xff\xfe"),
    httpx.Response(200, content=b"[" + b"1," * ANSWER_BYTES_MAX + b"1]"),
    httpx.Response(302, headers={"Location": "http://elsewhere.test/"}),
    httpx.Response(401, json={"error_code": 401, "message": "no"}),
    httpx.Response(429),
    httpx.Response(503),
    httpx.Response(204),
    httpx.Response(404, text="<html>no such page</html>"),
    httpx.Response(404, json={"error": "Not Found"}),
]


@pytest.mark.parametrize("answer", GARBAGE)
async def test_no_bad_answer_takes_away_what_is_known(autojump_clock, registry, answer):
    registry.put(1, 11)
    async with following(registry, refresh_interval_ms=5_000) as schemas:
        await asked(schemas)
        registry.instead = lambda _request: httpx.Response(
            answer.status_code, headers=answer.headers, content=answer.content
        )
        await trio.sleep(30)
        assert list(schemas.versions_of(TOPIC)) == [1]
        assert all(each.url.host == "registry.test" for each in registry.asked)
        await asked(schemas, "shop.returns")
        assert schemas.versions_of("shop.returns") == {}
        registry.instead = None
        await trio.sleep(80)
        assert schemas.trouble == ""


async def test_a_registry_that_answers_slowly_is_away(autojump_clock, registry):
    async def late(_request):
        await trio.sleep(100)
        return httpx.Response(200, json=[])

    registry.instead = late
    async with following(registry, timeout_ms=500) as schemas:
        before_s = trio.current_time()
        await asked(schemas)
        assert trio.current_time() - before_s < 1
        assert schemas.trouble == f"{URL}: no answer within 500 ms"


async def test_several_urls_are_tried_in_turn(autojump_clock, registry):
    registry.put(1, 11)

    async def answer(request):
        if request.url.host == "down.test":
            registry.asked.append(request)
            raise httpx.ConnectError("refused")
        return await registry(request)

    async with following(answer, urls=["http://down.test", URL]) as schemas:
        await asked(schemas)
        assert list(schemas.versions_of(TOPIC)) == [1]
    hosts = [each.url.host for each in registry.asked]
    assert hosts == ["down.test", "registry.test", "registry.test"]


@pytest.mark.parametrize(
    ("fields", "lack"),
    [
        ({"references": [{"name": "a"}]}, "version 1 refers to other schemas"),
        ({"id": 2**31}, "31 bits"),
        ({"schema": "x" * 300_000}, "bytes"),
        ({"schemaType": "PROTOBUF"}, ""),
    ],
)
async def test_versions_that_cannot_be_used_are_left_out(autojump_clock, registry, fields, lack):
    registry.put(1, 11)
    registry.subjects[TOPIC][1].update(fields)
    async with following(registry) as schemas:
        await asked(schemas)
        assert schemas.versions_of(TOPIC) == {}
        assert lack in schemas.lack(TOPIC)
        assert bool(lack) == bool(schemas.lack(TOPIC))


async def test_a_subject_that_was_made_anew_and_has_grown_is_read_anew(registry):
    registry.put(1, 11)
    known = (await client_of(registry).look_up(TOPIC, {})).versions
    registry.put(1, 21, schema='"int"')
    registry.put(2, 22, schema='"long"')
    found = await client_of(registry).look_up(TOPIC, known)
    assert [(each.id, each.schema.text) for each in found.versions.values()] == [
        (21, '"int"'),
        (22, '"long"'),
    ]


async def test_numbers_that_no_record_has_room_for_are_no_versions(registry):
    for number in (-1, 0, 1, 2**31, 2**70):
        registry.put(number, 11)
    assert list((await client_of(registry).look_up(TOPIC, {})).versions) == [1]


async def test_the_answer_of_another_version_is_none(registry):
    registry.put(1, 11)
    registry.subjects[TOPIC][1]["version"] = 2
    with pytest.raises(BadAnswer, match="asked for version 1, the registry answers 2"):
        await client_of(registry).look_up(TOPIC, {})


class Pieces(httpx.AsyncByteStream):
    def __init__(self, *pieces, pause_s=0.0, is_broken=False):
        self.pieces = pieces
        self.pause_s = pause_s
        self.is_broken = is_broken

    async def __aiter__(self):
        for piece in self.pieces:
            yield piece
            await trio.sleep(self.pause_s)
        if self.is_broken:
            raise httpx.RemoteProtocolError("peer closed connection")


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (Pieces(b"[1", is_broken=True), "peer closed"),
        (Pieces(*[b" "] * 10_000, pause_s=0.1), "no answer within 500 ms"),
        (Pieces(*[b" " * 65_536] * 160), "answered more than 2097152 bytes"),
    ],
    ids=["half", "drops", "10 MB"],
)
async def test_an_answer_that_does_not_end_well_is_none(autojump_clock, registry, stream, reason):
    registry.instead = lambda _request: httpx.Response(200, stream=stream)
    with pytest.raises(RegistryAway, match=reason):
        await client_of(registry, timeout_ms=500).look_up(TOPIC, {})


@pytest.mark.parametrize("content", [b"\xff\x00\xfe", "t\u00f6ken".encode(), b"a\nb"])
async def test_a_file_that_holds_no_token_is_an_outage_and_not_shown(registry, tmp_path, content):
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    with pytest.raises(RegistryAway, match=r"schema\.token_file: .* does not hold a token"):
        await client_of(registry, token_file=str(secret)).look_up(TOPIC, {})
    assert registry.asked == []


@pytest.mark.parametrize("numbers", [{"version": 0}, {"version": 2**31}, {"id": 2**40}])
async def test_a_version_that_no_record_has_room_for_is_not_told_the_nodes(registry, numbers):
    answer = {"id": 7, "version": 3} | numbers
    registry.instead = lambda _request: httpx.Response(200, json=answer)
    with pytest.raises(Unavailable, match="31 bits"):
        await client_of(registry).register(TOPIC, Schema(SchemaKind.AVRO, "{}"))


async def test_of_many_versions_the_newest_are_known(registry):
    for number in range(1, LISTED_MAX + 51):
        registry.put(number, number)
    found = await client_of(registry).look_up(TOPIC, {})
    assert list(found.versions) == list(range(51, LISTED_MAX + 51))
    registry.asked.clear()
    await client_of(registry).look_up(TOPIC, found.versions)
    assert len(registry.asked) == 2, "what is known is not asked for again"


async def test_a_schema_is_found_by_its_id_alone(autojump_clock, registry):
    registry.put(1, 11)
    async with following(registry) as schemas:
        assert schemas.by_id(11) is None
        await trio.sleep(1)
        assert schemas.by_id(11) == Schema(SchemaKind.AVRO, '"string"')
        assert schemas.by_id(99) is None


@pytest.mark.parametrize("kind", ["user", "token"])
async def test_credentials_are_sent_and_never_shown(registry, tmp_path, kind, caplog):
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    fields = (
        {"token_file": str(secret)}
        if kind == "token"
        else {"user": "hermes", "password_file": str(secret)}
    )
    client = client_of(registry, **fields)
    await client.look_up(TOPIC, {})
    sent = registry.asked[0].headers["authorization"]
    assert sent in ("Bearer hunter2", "Basic aGVybWVzOmh1bnRlcjI=")
    secret.write_text("changed")
    await client.look_up(TOPIC, {})
    assert registry.asked[1].headers["authorization"] != sent
    assert "hunter2" not in caplog.text + repr(client) + repr(config_of(**fields))


async def test_a_schema_is_registered(registry):
    def answer(request):
        body = json.loads(request.content)
        assert body == {"schema": "{}", "schemaType": "JSON"}
        is_lookup = not request.url.path.endswith("/versions")
        return httpx.Response(200, json={"id": 7, **({"version": 3} if is_lookup else {})})

    registry.instead = answer
    version = await client_of(registry).register(TOPIC, Schema(SchemaKind.JSON, "{}"))
    assert (version.number, version.id) == (3, 7)


async def test_what_the_registry_refuses_is_refused_with_its_words(registry):
    answer = {"error_code": 42201, "message": "age is no int"}
    registry.instead = lambda _request: httpx.Response(422, json=answer)
    with pytest.raises(Refused, match="age is no int") as refused:
        await client_of(registry).register(TOPIC, Schema(SchemaKind.AVRO, "{}"))
    assert refused.value.code.name == "SCHEMA_BAD_REQUEST"


async def test_a_registry_that_is_away_registers_nothing(registry):
    registry.instead = lambda _request: httpx.Response(401)
    with pytest.raises(Unavailable, match="401"):
        await client_of(registry).register(TOPIC, Schema(SchemaKind.AVRO, "{}"))
