"""Every example of the client's pages and docstrings runs, and together they show every name."""

import ast
import doctest
import inspect
import re
import types
from pathlib import Path

import anyio
import pytest

import hermes_client
from hermes_client import sync

ROOT = Path(__file__).parents[2]
PAGES = ("docs/client.md", "client/README.md")
SOURCES = sorted((ROOT / "client" / "hermes_client").glob("*.py"))


def blocks():
    for page in PAGES:
        text = (ROOT / page).read_text()
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL), 1):
            yield pytest.param(block, id=f"{page} {number}")


def docstrings():
    for module in (hermes_client, sync):
        for name, value in vars(module).items():
            found = doctest.DocTestParser().get_examples(inspect.getdoc(value) or "")
            if isinstance(value, type) and value.__module__.startswith("hermes_client") and found:
                source = "".join(each.source for each in found)
                imports = f"from {module.__name__} import {name}\n"
                yield pytest.param(imports + source, id=f"{module.__name__}.{name}")


@pytest.fixture(scope="module")
def shop(broker):
    schema = '{"properties": {"id": {"type": "integer"}}}'
    broker.topic("shop.orders", schema=schema)
    return broker


@pytest.mark.parametrize("source", [*blocks(), *docstrings()])
def test_an_example_runs(shop, source):
    source = source.replace("http://127.0.0.1:8080", shop.publish)
    source = source.replace("http://127.0.0.1:8090", shop.management)
    code = compile(source, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main():
        await eval(code, names)

    names = {"__name__": "example"}
    if code.co_flags & inspect.CO_COROUTINE:
        anyio.run(main)
    else:
        exec(code, names)


def test_each_public_name_is_shown_by_an_example():
    shown = "\n".join(each.values[0] for each in (*blocks(), *docstrings()))
    names = {
        name
        for module in (hermes_client, sync)
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and (module is hermes_client or value.__module__ == sync.__name__)
    }
    assert {"Publisher", "Receiver", "parse"} <= names
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", shown)] == []
