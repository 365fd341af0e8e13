"""The compose launcher with real processes: a node on an embedded log, without Kafka."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from hermes_local.compose import Topology
from hermes_local.interpolation import ComposeWrong
from hermes_local.processes import ProcessId
from hermes_local.runnable import DidNotStart

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
HERMES = [sys.executable, "-m", "hermes_actors.cli"]
WITHIN_S = 60


@pytest.fixture
def network():
    """Addresses that no other run of these tests has now."""
    number = os.getpid() % 60_000 + 2_000
    return f"127.{number // 256 + 8}.{number % 256}.0/24"


@pytest.fixture
def file(tmp_path):
    node = {
        "image": "ours",
        "build": {"context": str(ROOT), "dockerfile": "deploy/Dockerfile"},
        "command": ["node"],
        "environment": {
            "HERMES_LOG_DIRECTORY": "/data",
            "HERMES_FRONTEND_HOST": "0.0.0.0",
            "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": 0,
            "HERMES_MANAGEMENT_HOST": "0.0.0.0",
        },
        "volumes": ["data:/data"],
        "ports": ["127.0.0.1:9000:8080", "8090"],
        "stop_grace_period": "30s",
        "healthcheck": {
            "test": [
                *("CMD", "python", "/opt/hermes/healthcheck.py"),
                *("http://localhost:8080/status/ready", "http://node:8090/status/health"),
            ],
            "timeout": "20s",
            "start_interval": "100ms",
        },
        "depends_on": ["watcher"],
    }
    services = {"node": node, "watcher": {"image": "prom/prometheus:v3"}}
    path = tmp_path / "compose.yaml"
    path.write_text(yaml.safe_dump({"services": services, "volumes": {"data": None}}))
    return path


@pytest.fixture
def topology(file, tmp_path, network):
    with Topology(file, data=tmp_path / "data", network=network, variables={}) as topology:
        yield topology


def hermes(*arguments):
    return subprocess.run(
        [*HERMES, "compose", *arguments], capture_output=True, text=True, check=False, timeout=120
    )


def answers(url):
    with urlopen(url, timeout=20) as answer:
        return answer.status == 200


def test_up_status_logs_and_down_work_each_from_a_shell_of_its_own(file, tmp_path, network):
    data = str(tmp_path / "data")
    up = ("up", "--file", str(file), "--data", data, "--network", network)
    try:
        done = hermes(*up)
        assert done.returncode == 0, done.stderr
        assert "watcher: skipped (prom/prometheus:v3)" in done.stdout
        address = network.removesuffix("0/24") + "1"
        assert f"at 127.0.0.1:9000 is here at http://{address}:8080" in done.stdout
        assert answers(f"http://{address}:8080/status/ready")

        (row,) = json.loads(hermes("status", "--data", data, "--output", "json").stdout)
        assert (row["condition"], row["address"]) == ("healthy", address)
        assert row["published"] == {"127.0.0.1:9000": f"{address}:8080"}
        assert f"{address}:8090" in hermes("status", "--data", data).stdout
        logs = hermes("logs", "node", "--data", data).stdout
        assert logs.startswith("node | ")
        assert f"http://{address}:8080" in logs

        again = hermes(*up)
        assert again.returncode == 1
        assert "up already" in again.stderr
        other = hermes(*up[:-4], "--data", f"{data}2", "--network", network)
        assert other.returncode == 1
        assert "is taken" in other.stderr
    finally:
        down = hermes("down", "--data", data)
    assert (down.returncode, down.stdout) == (0, "ended: node\n"), down.stderr
    # Where nobody waits for orphans, what is left of one has its id still.
    with contextlib.suppress(ProcessLookupError):
        assert not ProcessId.of(row["pid"]).is_running
    assert (tmp_path / "data/volumes/data").is_dir()
    assert any((tmp_path / "data/volumes/data").iterdir())
    assert hermes("down", "--volumes", "--data", data).returncode == 0
    assert not (tmp_path / "data/volumes").exists()


def test_status_of_what_was_killed_says_so_and_fails(topology):
    topology.services["node"].kill()
    status = hermes("status", "--data", str(topology.data))
    assert status.returncode == 1
    assert "ended" in status.stdout


def test_a_service_is_killed_started_stopped_and_restarted_at_its_address(topology):
    node = topology.services["node"]
    url = f"{node.url(8080)}/status/ready"
    first = node.pid
    node.kill()
    assert not node.is_running
    assert node.exit_code == -signal.SIGKILL
    assert node.health() == "it does not run"
    node.start()
    with pytest.raises(ComposeWrong, match="runs already"):
        node.start()
    node.wait_healthy(WITHIN_S)
    assert node.pid not in (None, first)
    assert answers(url)
    assert node.stop()
    assert node.exit_code == 0
    node.restart(timeout_s=WITHIN_S)
    assert answers(url)


def test_a_paused_service_runs_answers_nobody_and_ends_when_asked(topology):
    node = topology.services["node"]
    node.pause()
    assert node.is_running
    with pytest.raises(OSError, match="timed out"):
        urlopen(f"{node.url(8080)}/status/ready", timeout=1)
    node.resume()
    assert answers(f"{node.url(8080)}/status/ready")
    node.pause()
    assert topology.stop() == []
    assert node.exit_code == 0


def test_a_service_that_cannot_start_is_shown_with_its_last_words(file, tmp_path, network):
    override = {"node": {"HERMES_FRONTEND_PORT": "many"}}
    topology = Topology(file, data=tmp_path, network=network, variables={}, overrides=override)
    with pytest.raises(DidNotStart, match=r"node ended:\n.*'many' is not a whole number"):
        topology.start()
    assert not topology.services["node"].is_running


def test_what_was_started_dies_with_a_launcher_that_is_killed(file, tmp_path, network):
    code = (
        "import pathlib, signal, sys\n"
        "from hermes_local.compose import Topology\n"
        "file, data, network = sys.argv[1:]\n"
        "topology = Topology(pathlib.Path(file), data=pathlib.Path(data), network=network)\n"
        "topology.start()\n"
        "print(topology.services['node'].pid, flush=True)\n"
        "signal.pause()\n"
    )
    command = [sys.executable, "-c", code, str(file), str(tmp_path / "data"), network]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        node = ProcessId.of(int(launcher.stdout.readline()))
        launcher.kill()
    assert node.wait_ended(WITHIN_S)
