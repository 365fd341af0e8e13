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
from hermes_local.processes import ProcessId

pytestmark = pytest.mark.live

HERMES = [sys.executable, "-m", "hermes_actors"]
WITHIN_S = 60


@pytest.fixture
def network():
    """Addresses that no other run of these tests has now."""
    number = os.getpid() % 60_000 + 2_000
    return f"127.{number // 256 + 8}.{number % 256}.0/24"


@pytest.fixture
def file(tmp_path):
    node = {
        "image": "hermes-actors:1",
        "environment": {
            "HERMES_LOG_DIRECTORY": "/data",
            "HERMES_FRONTEND_HOST": "0.0.0.0",
            "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
            "HERMES_MANAGEMENT_HOST": "0.0.0.0",
        },
        "volumes": ["./node.toml:/etc/hermes/node.toml:ro", "data:/data"],
        "ports": ["127.0.0.1:9000:8080"],
        "expose": ["8090"],
        "stop_grace_period": "30s",
        "healthcheck": {
            "test": [
                *("CMD", "python", "/opt/hermes/healthcheck.py"),
                *("http://localhost:8080/status/ready", "http://node:8090/status/health"),
            ],
            "timeout": "20s",
        },
        "depends_on": {"watcher": {"condition": "service_healthy"}},
    }
    services = {"node": node, "watcher": {"image": "prom/prometheus:v3"}}
    (tmp_path / "node.toml").touch()
    path = tmp_path / "compose.yaml"
    path.write_text(yaml.safe_dump({"services": services, "volumes": {"data": {}}}))
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

        # What the command reads of the environment, to paste.
        assert f"\nexport HERMES_MANAGEMENT_URL=http://{address}:8090\n" in done.stdout
        assert f"\nexport HERMES_PUBLISH_URL=http://{address}:8080\n" in done.stdout

        again = hermes(*up)
        assert (again.returncode, again.stderr) == (0, "")
        assert "already running, so everything is up: node\n" in again.stdout
        assert f"\nexport HERMES_PUBLISH_URL=http://{address}:8080\n" in again.stdout
        report = json.loads(hermes(*up, "--output", "json").stdout)
        assert (report["started"], report["alreadyRunning"]) == ([], ["node"])
        assert report["environment"] == {
            "HERMES_MANAGEMENT_URL": f"http://{address}:8090",
            "HERMES_PUBLISH_URL": f"http://{address}:8080",
        }
        (same,) = json.loads(hermes("status", "--data", data, "--output", "json").stdout)
        assert same["pid"] == row["pid"]
        other = hermes(*up[:-4], "--data", f"{data}2", "--network", network)
        assert other.returncode == 1
        assert "is in use" in other.stderr
        assert not (tmp_path / "data2").exists()
    finally:
        down = hermes("down", "--data", data)
    assert (down.returncode, down.stdout) == (0, "stopped: node\n"), down.stderr
    # Where nobody waits for orphans, what is left of one has its id still.
    with contextlib.suppress(ProcessLookupError):
        assert not ProcessId.of(row["pid"]).is_running
    assert (tmp_path / "data/volumes/data").is_dir()
    assert any((tmp_path / "data/volumes/data").iterdir())
    assert hermes("down", "--volumes", "--data", data).returncode == 0
    assert not (tmp_path / "data").exists()


def test_a_service_is_killed_paused_stopped_and_started_again_at_its_address(topology):
    node = topology.services["node"]
    url = f"{node.url(8080)}/status/ready"
    first = node.pid
    node.kill()
    assert not node.is_running
    assert node.exit_code == -signal.SIGKILL
    assert node.health() == "it does not run"
    status = hermes("status", "--data", str(topology.folder))
    assert (status.returncode, "ended" in status.stdout) == (1, True)
    node.start()
    second = node.pid
    node.start()
    node.wait_healthy(WITHIN_S)
    assert node.pid == second != first
    node.pause()
    assert node.is_running
    with pytest.raises(OSError, match="timed out"):
        urlopen(url, timeout=1)
    node.resume()
    assert answers(url)
    node.pause()
    assert topology.stop() == []
    assert node.exit_code == 0


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


# Several nodes of one data folder, each command from a shell of its own


class Shell:
    """`hermes compose …` on one file, data folder and network."""

    def __init__(self, file: Path, data: Path, network: str) -> None:
        self.file = file
        self.data = data
        self._up = ("up", "--file", str(file), "--network", network)

    def __call__(self, command, *arguments):
        words = self._up if command == "up" else (command,)
        return hermes(*words, *arguments, "--data", str(self.data))

    def rows(self):
        done = self("status", "--output", "json")
        return {row["service"]: row for row in json.loads(done.stdout)}

    def kill(self, *names):
        rows = self.rows()
        for name in names:
            process = ProcessId.of(rows[name]["pid"])
            os.kill(process.pid, signal.SIGKILL)
            assert process.wait_ended(WITHIN_S)


@pytest.fixture
def shell(file, tmp_path, network):
    tree = yaml.safe_load(file.read_text())
    node = tree["services"].pop("node")
    del node["depends_on"], node["ports"]
    # One page less, so that three of them start quickly.
    node["environment"]["HERMES_ROLES"] = "frontend"
    node["healthcheck"]["test"] = [
        *("CMD", "python", "/opt/hermes/healthcheck.py", "http://localhost:8080/status/ready")
    ]
    volumes = {}
    for name, needs in (("base", []), ("left", ["base"]), ("right", ["base"])):
        volumes[name] = {}
        needed = {each: {"condition": "service_healthy"} for each in needs}
        mounts = [node["volumes"][0], f"{name}:/data"]
        own = {"volumes": mounts, "expose": ["8080"], "depends_on": needed}
        tree["services"][name] = {**node, **own}
    file.write_text(yaml.safe_dump({**tree, "volumes": volumes}))
    shell = Shell(file, tmp_path / "data", network)
    yield shell
    shell("down")


def test_up_starts_all_that_does_not_run_and_leaves_the_rest_as_it_is(shell, tmp_path):
    assert shell("up", "left").returncode == 0
    before = shell.rows()
    assert set(before) == {"base", "left"}
    shell.kill("base")
    done = shell("up")
    assert done.returncode == 0, done.stderr
    assert "already running: left\n" in done.stdout
    assert done.stdout.index("base: healthy") < done.stdout.index("right: starts")
    after = shell.rows()
    assert {row["condition"] for row in after.values()} == {"healthy"}
    assert after["left"]["pid"] == before["left"]["pid"]
    assert after["base"]["address"] == before["base"]["address"]

    # Another file or network is refused; without these options all is as it was.
    copy = tmp_path / "other.yaml"
    copy.write_text(shell.file.read_text())
    for option, value in (("--file", str(copy)), ("--network", "127.9.9.0/24")):
        refused = hermes("up", option, value, "--data", str(shell.data))
        assert refused.returncode == 1
        assert f"runs from {shell.data} with --file {shell.file} --network " in refused.stderr
    assert hermes("up", "left", "--data", str(shell.data)).returncode == 0
    down = shell("down")
    assert sorted(down.stdout.removeprefix("stopped: ").strip().split(", ")) == [
        *("base", "left", "right")
    ]


def test_a_service_that_fails_to_start_leaves_the_others_and_what_is_known_of_them(shell):
    assert shell("up", "left").returncode == 0
    shell.kill("left")
    before = shell.rows()
    tree = yaml.safe_load(shell.file.read_text())
    right = tree["services"]["right"]
    # A dictionary of its own: by YAML's anchors the services share theirs.
    right["environment"] = {**right["environment"], "HERMES_FRONTEND_PORT": "many"}
    shell.file.write_text(yaml.safe_dump(tree))
    done = shell("up")
    assert done.returncode == 1
    assert "right ended" in done.stderr
    # The log that it names is all that is left of the one that never ran.
    log = shell.data / "services/right/console.log"
    assert str(log) in done.stderr
    assert "many" in log.read_text()
    assert sorted(shell.data.glob("*/right/**")) == [shell.data / "services/right"]
    assert [path.name for path in (shell.data / "services/right").iterdir()] == ["console.log"]
    after = shell.rows()
    assert after == before
    assert {name: row["condition"] for name, row in after.items()} == {
        "base": "healthy",
        "left": "ended",
    }


def test_a_first_start_that_fails_leaves_only_the_log_that_its_error_names(shell):
    tree = yaml.safe_load(shell.file.read_text())
    tree["services"]["base"]["environment"]["HERMES_FRONTEND_PORT"] = "many"
    shell.file.write_text(yaml.safe_dump(tree))
    done = shell("up")
    assert done.returncode == 1
    left = [path for path in shell.data.rglob("*") if not path.is_dir()]
    assert left == [shell.data / "services/base/console.log"]
    assert str(left[0]) in done.stderr


def test_what_runs_is_ended_though_the_state_is_damaged(shell):
    assert shell("up", "base").returncode == 0
    row = shell.rows()["base"]
    process = ProcessId.of(row["pid"])
    state = shell.data / "state.json"
    state.write_text("{")
    for command in ("status", "logs", "up"):
        done = shell(command)
        assert done.returncode == 1
        assert done.stderr.startswith(f"hermes: {state} is damaged (")
    assert process.is_running
    assert shell("down").stdout == "stopped: base\n"
    assert not process.is_running
    assert not state.exists()
