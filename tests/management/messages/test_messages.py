"""The stream of a topic's messages."""

import base64
import json
import random

import anyio
import httpx
import pytest
import trio
import trio.testing

from hermes_actors.config import Config
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.administration import Administration
from hermes_actors.management.app import build_app
from hermes_actors.management.messages import newest as newest_module
from hermes_actors.management.routes import streams
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime import guest
from hermes_actors.runtime.bridge import open_bridge
from hermes_actors.runtime.clock import SystemClock, seeded_ids
from hermes_actors.runtime.workers import InlinePool
from hermes_actors.security.account import Credentials

START_MS = 1_700_000_000_000
PATH = "/topics/shop.orders/messages"


async def publish(api, *bodies, partition=0, at_ms=START_MS, **fields):
    records = [
        to_record(Message(id=f"id-{body!r}", body=body, published_at_ms=at_ms, dc="dc1", **fields))
        for body in bodies
    ]
    await api.log.append("shop.orders", partition, records, Ack.LEADER)


async def lines(api, **parameters):
    answer = await api.get(PATH, params=parameters)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_message_is_one_line(api):
    await api.with_topic()
    await publish(api, b'{"a":1}', key=b"k", propagated=(("Trace-Id", "t"),), partition=3)
    assert await lines(api) == [
        {
            "partition": 3,
            "offset": 0,
            "timestamp": START_MS,
            "id": "id-b'{\"a\":1}'",
            "key": "k",
            "headers": {"Trace-Id": "t"},
            "body": '{"a":1}',
        }
    ]


async def test_what_is_not_utf_8_comes_in_base64(api):
    await api.with_topic()
    await publish(api, b"\xff\x00", key=b"\xfe")
    (line,) = await lines(api)
    assert base64.b64decode(line["bodyBase64"]) == b"\xff\x00"
    assert base64.b64decode(line["keyBase64"]) == b"\xfe"
    assert "body" not in line
    assert "key" not in line


async def test_a_foreign_record_is_called_by_its_place_and_a_broken_one_says_so(api):
    await api.with_topic()
    foreign = Record(None, b"hello", (), START_MS)
    broken = Record(None, b'{"_w":true,"nothing":1}', (), START_MS)
    await api.log.append("shop.orders", 0, [foreign, broken], Ack.LEADER)
    first, second = await lines(api)
    place = f"{api.log.dc}:shop.orders:0:"
    assert (first["id"], first["key"], first["body"]) == (f"{place}0", None, "hello")
    assert second["id"] == f"{place}1"
    assert second["body"] == '{"_w":true,"nothing":1}'
    assert second["error"]


async def test_headers_of_others_that_are_called_like_those_of_avro_are_passed_over(api):
    await api.with_topic()
    named = [Record(None, b"{}", ((name, b"\xff"),), START_MS) for name in ("sv", "sid")]
    await api.log.append("shop.orders", 0, named, Ack.LEADER)
    assert [(each["body"], "error" in each) for each in await lines(api)] == [("{}", False)] * 2


async def test_all_partitions_are_read_to_where_they_end_now(api):
    await api.with_topic()
    for partition in range(10):
        await publish(api, *(b"%d" % n for n in range(50)), partition=partition)
    found = await lines(api)
    assert len(found) == 500
    for partition in range(10):
        offsets = [line["offset"] for line in found if line["partition"] == partition]
        assert offsets == list(range(50))


@pytest.mark.parametrize("limit", [0, 1, 7, 500, 501])
async def test_the_limit_bounds_the_lines(api, limit):
    await api.with_topic()
    await publish(api, *(b"%d" % n for n in range(500)))
    assert len(await lines(api, limit=limit)) == min(limit, 500)


async def test_a_start_in_time(api):
    await api.with_topic()
    await publish(api, b"early", at_ms=START_MS)
    await publish(api, b"late", at_ms=START_MS + 60_000)
    for start in ("2023-11-14T22:14:00Z", "2023-11-14T22:14:00", "2023-11-14T23:14:00+01:00"):
        assert [line["body"] for line in await lines(api, **{"from": start})] == ["late"]


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"from": "yesterday"}, "yesterday"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"follow": "perhaps"}, "follow"),
    ],
)
async def test_a_bad_parameter_is_refused_by_name(api, parameters, named):
    await api.with_topic()
    answer = await api.get(PATH, params=parameters)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert named in api.message(answer)


class Client:
    """An HTTP client that takes a stream piece by piece and can hang up."""

    def __init__(self, app, path, query):
        self._app = app
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [],
            "server": ("management", 80),
            "client": ("test", 1),
        }
        self._hung_up = trio.Event()
        self._sent, self.events = trio.open_memory_channel(0)
        self._asked = False

    async def run(self):
        async with self._sent:
            await self._app(self._scope, self._receive, self._send)

    async def _send(self, event):
        await self._sent.send(event)
        if event["type"] == "http.response.body" and not event.get("more_body"):
            # What a server tells its app once the answer is out.
            self._hung_up.set()

    async def _receive(self):
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    def hang_up(self):
        self._hung_up.set()


async def test_following_goes_on_until_the_client_leaves(api, autojump_clock):
    await api.with_topic()
    await publish(api, b"old")
    client = Client(api.app, PATH, "from=end&follow=true")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        assert (await client.events.receive())["status"] == 200
        for body in (b"one", b"two"):
            await publish(api, body)
            event = await client.events.receive()
            assert json.loads(event["body"])["body"] == body.decode()
        client.hang_up()
        with trio.fail_after(5):
            # Nothing more comes, and the app's task ends.
            async for event in client.events:
                assert not event.get("body")


async def test_a_quiet_stream_sends_an_empty_line_now_and_then(api, autojump_clock):
    await api.with_topic()
    client = Client(api.app, PATH, "follow=true")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        assert (await client.events.receive())["status"] == 200
        before = trio.current_time()
        for _ in range(2):
            assert (await client.events.receive())["body"] == b"\n"
        assert trio.current_time() - before == pytest.approx(30)
        await publish(api, b"at last")
        assert json.loads((await client.events.receive())["body"])["offset"] == 0
        client.hang_up()
        async for event in client.events:
            assert not event.get("body")


async def test_following_ends_with_its_topic(api, autojump_clock):
    await api.with_topic()
    await publish(api, b"x")
    client = Client(api.app, PATH, "follow=true")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.run)
        assert (await client.events.receive())["status"] == 200
        assert json.loads((await client.events.receive())["body"])["body"] == "x"
        await api.log.topics.delete("shop.orders")
        with trio.fail_after(5):
            async for event in client.events:
                assert not event.get("body")


async def test_no_more_streams_than_the_bound_that_begin_together(api, monkeypatch, autojump_clock):
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    await api.with_topic()
    clients = [Client(api.app, PATH, "follow=true") for _ in range(5)]
    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(client.run)
        starts = [await client.events.receive() for client in clients]
        assert sorted(start["status"] for start in starts) == [200, 200, 503, 503, 503]
        nursery.cancel_scope.cancel()


async def test_retention_that_overtakes_the_reader_skips_what_is_gone(api):
    await api.with_topic()
    await publish(api, *(b"%d" % n for n in range(5)))
    await publish(api, *(b"%d" % n for n in range(5)), at_ms=START_MS + 60_000)
    administration = api.administration
    caller = await administration.security.identify(Credentials())
    tail = await administration.tails.open(caller, "shop.orders", "beginning", False, None)
    api.log.expire(START_MS + 86_400_000 + 1)
    found = []
    while chunk := await tail.next_chunk():
        found += [json.loads(line)["offset"] for line in chunk.splitlines()]
    assert found == [5, 6, 7, 8, 9]


async def test_a_log_without_the_topic_yet_is_unavailable(api):
    await api.with_topic()
    await api.log.topics.delete("shop.orders")
    assert api.refusal(await api.get(PATH)) == (503, "OTHER")


def test_the_app_serves_from_the_asyncio_host_of_a_trio_guest():
    async def on_the_host(app):
        assert anyio.get_cancelled_exc_class().__module__.startswith("asyncio")
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            created = await client.post("/groups", json={"groupName": "shop"})
            listed = await client.get("/groups")
            again = await client.post("/groups", json={"groupName": "shop"})
            return created.status_code, listed.json(), again.json()["code"]

    async def main():
        clock = SystemClock()
        log = MemoryLog("dc1", clock)
        rng = random.Random(1)
        metadata = Metadata(log, clock=clock, ids=seeded_ids(rng), rng=rng)
        stop = trio.Event()
        async with trio.open_nursery() as nursery, open_bridge() as bridge:
            nursery.start_soon(Registry(metadata).run, stop)
            await metadata.wait_current()
            administration = Administration(metadata, log, Config(), clock, pool=InlinePool())
            app = build_app(administration, bridge, Config())
            result = await guest.call(on_the_host, app)
            nursery.cancel_scope.cancel()
        return result

    assert guest.run(main, host="asyncio") == (201, ["shop"], "GROUP_ALREADY_EXISTS")


async def test_the_last_ones_come_by_time_over_all_partitions(api):
    await api.with_topic()
    for at in range(12):
        await publish(api, b"%d" % at, partition=at % 3, at_ms=START_MS + at)
    assert [line["body"] for line in await lines(api, last=5)] == ["7", "8", "9", "10", "11"]
    assert len(await lines(api, last=1_000)) == 12


async def test_of_large_ones_the_last_are_as_many_as_a_bound_of_bytes_takes(api, monkeypatch):
    monkeypatch.setattr(newest_module, "BYTES_MAX", 25)
    await api.with_topic()
    for at in range(4):
        await publish(api, b"%010d" % at, at_ms=START_MS + at)
    assert [int(line["body"]) for line in await lines(api, last=4)] == [2, 3]


@pytest.mark.parametrize("last", [0, -1, 1_001])
async def test_a_number_of_last_ones_has_a_bound(api, last):
    await api.with_topic()
    answer = await api.get(PATH, params={"last": last})
    assert answer.status_code == 400
    assert "last must be from 1 to 1000" in answer.text
