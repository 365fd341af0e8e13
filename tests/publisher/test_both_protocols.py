"""The same requests over HTTP/1.1 and HTTP/2 are answered the same, and store the same."""

import re

import pytest
import trio

from tests.publisher.in_process import Answers, chunk, head_of
from tests.publisher.test_http2_connection import PATH, Client

BATCH = {"content-type": "application/vnd.hermes.messages+ndjson"}
PAGES = (
    *("/", "/status/ping", "/status/health", "/status/ready", "/status/details"),
    *("/livez", "/startupz", "/readyz", "/status/prometheus"),
)
EVENT = {"ce-id": "1", "ce-source": "/a", "ce-type": "b", "ce-specversion": "1.0"}


async def over_1(world, method, path, headers, body):
    line = world.connect()
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    line.send(head_of(method, path, pairs))
    line.send(body)
    await trio.sleep(2)
    found = Answers(bytes(line.answered), line.is_closed, method)
    assert method != "HEAD" or line.answered.endswith(b"\r\n\r\n"), "nothing follows a head"
    pairs = [(name.decode().lower(), value.decode()) for name, value in found.headers]
    return found.status, found.body, [each for each in pairs if each[0] != "connection"]


async def over_2(world, method, path, headers, body):
    client = Client(world)
    pairs = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x")]
    pairs += [(name, value.encode("latin-1")) for name, value in headers.items()]
    client.frames.send_headers(1, pairs, end_stream=not body)
    for at in range(0, len(body), 16_000):
        client.frames.send_data(1, body[at : at + 16_000], end_stream=at + 16_000 >= len(body))
    await client.talk(2)
    heads = client.heads.get(1, [])
    return client.statuses.get(1, 0), client.bodies.get(1, b""), heads


def without_ids(status, body, headers):
    """An answer but for what no two have alike."""
    told = re.sub(rb'"(messageId|id)":"[^"]*"', b"", body)
    pairs = [
        (name, "" if name in ("hermes-message-id", "date") else value)
        for name, value in headers
        if name != "transfer-encoding"
    ]
    return status, told, sorted(pairs)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body"),
    [
        ("POST", PATH, {}, b"{}"),
        ("POST", PATH, {"partition-key": "k\xe4"}, b"{}"),
        ("POST", PATH, {"idempotency-key": "k\xe4"}, b"{}"),
        ("POST", PATH, {"idempotency-key": "k"}, b"{}"),
        ("POST", PATH, EVENT, b"{}"),
        ("POST", PATH, {"ce-id": "1"}, b"{}"),
        ("POST", PATH, {}, b""),
        ("POST", PATH, {"content-length": "0"}, b""),
        ("POST", PATH, {}, b"x" * 2_000),
        ("POST", PATH, {}, b"x" * 60_000),
        ("POST", PATH + "/", {}, b"{}"),
        ("POST", PATH + "?a=b", {}, b"{}"),
        ("POST", "http://y" + PATH, {}, b"{}"),
        ("POST", "/topics/shop%2Eorders", {}, b"{}"),
        ("POST", "/topics/%FF", {}, b"{}"),
        ("POST", "/topics/", {}, b"{}"),
        ("POST", "/topics", {}, b"{}"),
        ("POST", "/topics/no.such", {}, b"{}"),
        ("POST", PATH + "/batch", BATCH, b'{"message":{}}\n' * 50),
        ("POST", PATH + "/batch", BATCH, b'{"message":{}}\nnone\n'),
        ("POST", PATH + "/batch", BATCH, b""),
        ("POST", PATH + "/batch", {}, b"{}"),
        ("POST", PATH, {"x-large": "x" * 16_500}, b"{}"),
        ("POST", PATH + "?" + "q" * 8_200, {}, b"{}"),
        ("POST", PATH, {f"x-{number}": "" for number in range(30)}, b"{}"),
        ("PUT", PATH, {}, b"{}"),
        ("GET", PATH, {}, b""),
        ("GET", "/", {}, b""),
        ("GET", "/status/ping", {}, b""),
        ("GET", "/status/ready", {}, b""),
        ("GET", "/livez?verbose", {}, b""),
        ("GET", "/status/details", {}, b""),
        ("GET", "/nothing", {}, b""),
        ("HEAD", "/status/ping", {}, b""),
        ("HEAD", PATH, {}, b""),
        ("HEAD", "/nothing?" + "q" * 8_200, {}, b""),
        ("OPTIONS", "*", {}, b""),
        ("TRACE", "/", {}, b""),
        ("POST", PATH, {"expect": "something"}, b"{}"),
        ("POST", PATH, {"te": "trailers", "cookie": "a=b"}, b"{}"),
    ],
)
async def test_both_answer_and_store_the_same(world, method, path, headers, body, autojump_clock):
    if body:
        headers = {"content-length": str(len(body)), **headers}
    found = []
    for ask in (over_1, over_2):
        world.stored.clear()
        answer = await ask(world, method, path, headers, body)
        found.append((without_ids(*answer), [(each.key, each.value) for each in world.stored]))
        if "idempotency-key" in headers:
            headers = {**headers, "idempotency-key": headers["idempotency-key"] + "2"}
    assert found[0] == found[1]
    assert found[0][0][0]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("ask", [over_1, over_2])
async def test_head_of_a_page_is_its_get_without_the_body(world, ask, path, autojump_clock):
    status, body, headers = without_ids(*await ask(world, "GET", path, {}, b""))
    assert dict(headers)["content-length"] == str(len(body))
    assert without_ids(*await ask(world, "HEAD", path, {}, b"")) == (status, b"", headers)
    *_, headers = await ask(world, "PUT", path, {}, b"")
    assert dict(headers)["allow"] == "GET, HEAD"


@pytest.mark.parametrize("size", [2, 900, 2_000, 60_000])
async def test_a_body_without_a_length_is_taken_like_chunks(world, size, autojump_clock):
    body = b"x" * size
    chunks = await over_1(
        world, "POST", PATH, {"transfer-encoding": "chunked"}, chunk(body) + chunk(b"")
    )
    frames = await over_2(world, "POST", PATH, {}, body)
    assert without_ids(*frames) == without_ids(*chunks)
    assert frames[0] == (201 if size < 1_000 else 400)
    assert [each.value for each in world.stored] == ([body, body] if size < 1_000 else [])
