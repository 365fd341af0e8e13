"""Every example of the client's pages and docstrings runs, and together they show every name."""

import ast
import doctest
import inspect
import re
import types
from pathlib import Path

import anyio
import httpx
import pytest

import hermes_client
from hermes_actors.consumer.recipients.signing import Signer
from hermes_actors.consumer.senders.sender import parse_lines
from hermes_actors.model.signing_secrets import parse_secret
from hermes_actors.runtime.clock import SystemClock
from hermes_client import sync

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ROOT = Path(__file__).parents[2]
TOPICS = ("client.orders", "shop.orders")
PAGES = ("docs/client.md", "client/README.md")
SOURCES = sorted((ROOT / "client" / "hermes_client").glob("*.py"))


def blocks():
    for page in PAGES:
        text = (ROOT / page).read_text()
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1):
            yield pytest.param(block, id=f"{page} {number}")


def public(module):
    """Its names and values; of `sync` those that it defines."""
    for name, value in vars(module).items():
        is_own = module is hermes_client or getattr(value, "__module__", "") == sync.__name__
        if is_own and not name.startswith("_") and not isinstance(value, types.ModuleType):
            yield name, value


def docstrings():
    for module in (hermes_client, sync):
        for name, value in public(module):
            found = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
            if found:
                imports = f"from {module.__name__} import {name}\n"
                source = imports + "".join(each.source for each in found)
                yield pytest.param(source, id=f"{module.__name__}.{name}")


@pytest.fixture(scope="module")
def shop(broker):
    schema = '{"properties": {"id": {"type": "integer"}}}'
    broker.post("/groups", {"groupName": "client"})
    for topic in TOPICS:
        broker.topic(topic, schema=schema)
        broker.subscription(topic, "worker")
    return broker


@pytest.mark.parametrize("source", [*blocks(), *docstrings()])
def test_an_example_runs(shop, source, monkeypatch):
    monkeypatch.setattr("hermes_client.consumer.LAST_WAIT_S", 0.1)
    assert "whsec_" not in source or SECRET in source
    source = source.replace("http://127.0.0.1:8080", shop.publish)
    source = source.replace("http://127.0.0.1:8090", shop.management)
    code = compile(source, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main():
        await eval(code, names)

    # So that a consumer has a message.
    with sync.Publisher(shop.publish) as publisher:
        for topic in TOPICS:
            publisher.publish(topic, {"id": 0})
    names = {"__name__": "example"}
    if code.co_flags & inspect.CO_COROUTINE:
        anyio.run(main)
    else:
        exec(code, names)
    if "app" in names:
        assert anyio.run(push, names["app"]).status_code == 200


async def push(app):
    lines = Signer([parse_secret(SECRET)]).sign("m1", SystemClock().now_ms() // 1_000, b'{"id": 1}')
    headers = {name.decode(): value.decode() for name, value in parse_lines(lines)}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        headers["Hermes-Message-Id"] = "m1"
        return await client.post("http://me.test/", content=b'{"id": 1}', headers=headers)


def test_each_public_name_is_shown_by_an_example():
    shown = "\n".join(each.values[0] for each in (*blocks(), *docstrings()))
    names = {name for module in (hermes_client, sync) for name, _ in public(module)}
    assert {"Publisher", "Receiver", "parse"} <= names
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", shown)] == []
