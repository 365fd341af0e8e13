"""The examples of docs/testing.md, as they are on the page."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytestmark = pytest.mark.live
ROOT = Path(__file__).parents[2]
# Unless its entry point is installed.
PLUGIN = (
    []
    if "hermes" in entry_points(group="pytest11").names
    else ["-p", "hermes_actors.testing.plugin"]
)
PAGE = (ROOT / "docs" / "testing.md").read_text()


def block(language):
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def run(*command, cwd, **variables):
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    ended = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def test_the_tests_pass_on_asyncio_and_trio_without_a_warning(tmp_path):
    (tmp_path / "test_orders.py").write_text(block("python"))
    ended = run(sys.executable, "-m", "pytest", "-W", "error", *PLUGIN, cwd=tmp_path)
    assert "4 passed" in ended.stdout


def test_the_plugin_imports_nothing_until_a_test_wants_a_broker():
    names = "import sys, pytest, hermes_actors.testing.plugin as plugin; print(*sys.modules)"
    loaded = run(sys.executable, "-c", names, cwd=ROOT).stdout.split()
    assert {each.partition(".")[0] for each in loaded} & {"trio", "anyio", "httpx"} == set()
    assert [each for each in loaded if each.startswith("hermes_actors.")] == [
        "hermes_actors.testing",
        "hermes_actors.testing.plugin",
    ]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_broker_of_another_language_starts_and_leaves_nothing(tmp_path):
    (tmp_path / "broker.mjs").write_text(block("js"))
    hermes = tmp_path / "hermes"
    hermes.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hermes_actors "$@"\n')
    hermes.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ended = run("node", "broker.mjs", cwd=tmp_path, PATH=path, TMPDIR=str(tmp_path))
    assert re.fullmatch(r"200 http://127\.0\.0\.1:\d+\n", ended.stdout)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker.mjs", "hermes"]


def test_the_containers_command_listens_on_all_addresses():
    variables = dict(re.findall(r'"(HERMES_\w+)", "([\d.]+)"', block("java")))
    (arguments,) = re.findall(r"withCommand\((.*)\)", block("java"))
    command = [sys.executable, "-m", "hermes_actors", *re.findall(r'"(.*?)"', arguments)]
    for port in ("8080", "8090"):
        command[command.index(port)] = "0"
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | variables
    ) as broker:
        (dc,) = json.loads(broker.stdout.readline())["dcs"]
        assert dc["publish"].startswith("http://0.0.0.0:")
        assert dc["management"].startswith("http://0.0.0.0:")
