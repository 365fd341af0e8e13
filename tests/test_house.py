"""The rules of the house that no linter knows."""

import re
import subprocess
import sys
import tomllib
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_actors.config import Config

ROOT = Path(__file__).parent.parent
LINES_MAX = 500


def tracked() -> list[Path]:
    """The files under version control; in an unpacked archive, all but the generated ones."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(p.startswith(".") or p == "__pycache__" for p in path.parts)
        ]
    return [path for path in paths if path.is_file()]


@cache
def texts() -> list[tuple[str, str]]:
    contents = [(str(path.relative_to(ROOT)), path.read_bytes()) for path in tracked()]
    return [(name, content.decode()) for name, content in contents if b"\0" not in content[:8_000]]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_there_is_something_to_check() -> None:
    names = {name for name, _text in texts()}
    assert {"Makefile", "pyproject.toml", "hermes_actors/config/tree.py"} <= names


def test_nothing_is_left_to_do_in_the_source() -> None:
    # Put together, so that this file does not find itself.
    mark = re.compile(r"\b(?:" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
    assert [
        f"{name}: {line.strip()}"
        for name, text in texts()
        if not name.startswith("LICENSE") and not name.endswith("requirements.lock")
        for line in text.splitlines()
        if mark.search(line)
    ] == []


def test_no_file_points_outside_the_project() -> None:
    outside = re.compile(r"\.\./" + r"shared\b|(?<![\w.])/" + r"work(?:/|\b(?!\w))")
    assert [name for name, text in texts() if outside.search(text)] == []


@pytest.mark.parametrize("name", ["requirements.lock", "spark/requirements.lock"])
def test_the_lock_holds_hashes_and_no_address(name: str) -> None:
    lock = (ROOT / name).read_text()
    assert "://" not in lock
    assert "--index-url" not in lock
    assert "--find-links" not in lock
    requirements = re.split(r"\n(?=\S)", lock.strip())
    assert len(requirements) > 20
    assert [each for each in requirements if "--hash=sha256:" not in each] == []


def dependencies() -> dict[str, list[str]]:
    settings = project()["project"]
    return {"": settings["dependencies"], **settings["optional-dependencies"]}


def test_each_direct_dependency_says_why_it_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for requirement in (each for part in dependencies().values() for each in part):
        assert re.search(re.escape(f'"{requirement}",') + r" +# \w.{10,}", text), requirement


def test_each_direct_dependency_is_in_the_lock() -> None:
    for extra in ("", "dev", "spark", "testing"):
        lock = ROOT / ("spark/requirements.lock" if extra == "spark" else "requirements.lock")
        locked = set(re.findall(r"^([a-z0-9._-]+)==", lock.read_text(), re.MULTILINE))
        for requirement in dependencies()[extra]:
            assert distribution(requirement) in locked, requirement


def test_what_spark_shares_with_the_product_is_locked_alike() -> None:
    pin = re.compile(r"^([a-z0-9._-]+)==(\S+)", re.MULTILINE)
    product = dict(pin.findall((ROOT / "requirements.lock").read_text()))
    spark = dict(pin.findall((ROOT / "spark/requirements.lock").read_text()))
    shared = product.keys() & spark.keys()
    assert {"msgspec", "typer"} <= shared
    assert {name: spark[name] for name in shared} == {name: product[name] for name in shared}


def test_what_the_product_imports_is_a_direct_dependency() -> None:
    product, testing = (
        {distribution(each) for extra in extras for each in dependencies()[extra]}
        for extras in (("",), ("", "testing"))
    )
    known = sys.stdlib_module_names | {"hermes_actors", "__future__"}
    imported = re.compile(r"^ *(?:import (\w+)|from (\w+)[\w.]* import )", re.MULTILINE)
    for name, text in texts():
        if name.startswith("hermes_actors/") and name.endswith(".py"):
            declared = testing if "/testing/" in name else product
            for top in {"".join(found) for found in imported.findall(text)} - known:
                is_declared = distribution(CALLED.get(top, top)) in declared
                assert is_declared, f"{name} imports {top}"


CALLED = {
    "google": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "jwt": "pyjwt",
    "argon2": "argon2-cffi",
    "opentelemetry": "opentelemetry-sdk",
    "strawberry": "strawberry-graphql",
    "yaml": "pyyaml",
}
"""Distributions that are called otherwise than what is imported from them."""


def distribution(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return name[0].lower().replace("_", "-").rstrip("-.")


@pytest.mark.parametrize("word", ["manager", "helper", "util", "service", "handler", "processor"])
def test_files_are_named_after_what_they_hold(word: str) -> None:
    sources = [path for path in tracked() if path.suffix == ".py"]
    assert [path.name for path in sources if word in path.stem] == []


def test_no_source_file_outgrows_a_reader() -> None:
    assert [
        f"{name}: {text.count(chr(10))} lines"
        for name, text in texts()
        if name.endswith(".py") and text.count("\n") > LINES_MAX
    ] == []


def fields(struct: type[msgspec.Struct], section: str = "") -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(struct):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from fields(field.type, f"{section}{field.name}.")
        elif typing.get_origin(field.type) is dict:
            # A table by datacentre; its entries have the fields.
            yield from fields(typing.get_args(field.type)[1], f"{section}{field.name}.<dc>.")
        elif field.default is not msgspec.NODEFAULT:
            yield section + field.name, field.default
        else:
            assert callable(field.default_factory)
            yield section + field.name, field.default_factory()


def documented() -> dict[str, list[str]]:
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in rows}


def test_each_field_of_the_configuration_is_documented_and_nothing_else() -> None:
    rows = documented()
    for path, default in fields(Config):
        assert path in rows, f"docs/configuration.md has no row for {path}"
        shown, meaning = rows.pop(path)
        assert msgspec.json.decode(shown.strip("`")) == msgspec.to_builtins(default), path
        assert len(meaning) > 15, path
    assert rows == {}, "docs/configuration.md has rows of no field"


def test_each_field_of_the_configuration_is_read_by_something() -> None:
    package = ROOT / "hermes_actors"
    source = "\n".join(
        path.read_text() for path in package.rglob("*.py") if path.parent != package / "config"
    )
    unread = [
        path
        for path, _ in fields(Config)
        if not re.search(rf"\.{path.rpartition('.')[2]}\b", source)
    ]
    assert unread == []


def slugs_in(text: str) -> set[str]:
    """The anchors of a document's headings, as they are made from their texts."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_links_between_documents_lead_to_files_and_headings_that_are_there() -> None:
    documents = {name: text for name, text in texts() if name.endswith(".md")}
    # Code is no prose: brackets and round ones beside each other are no link there.
    prose = {
        name: re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
        for name, text in documents.items()
    }
    links = [
        (name, *link)
        for name, text in prose.items()
        for link in re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)", text)
    ]
    assert len(links) > 100
    lost = []
    for name, target, anchor in links:
        path = (ROOT / name).parent / target if target else ROOT / name
        if not path.exists() or (anchor and anchor not in slugs_in(path.read_text())):
            lost.append(f"{name}: {target}#{anchor}")
    assert lost == []
