"""`hermes dev` as a user runs it: real processes, real sockets, real files."""

import http.client
import json
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.live.waiting import wait_until

pytestmark = pytest.mark.live


class Load:
    """Publishers that go on through outages; they note what was answered with 201."""

    def __init__(self, publish: str, connections: int = 8) -> None:
        self.acknowledged: list[str] = []
        self._netloc = urlsplit(publish).netloc
        self._enough = threading.Event()
        self._reached = threading.Condition()
        self._threads = [
            threading.Thread(target=self._publish, args=(n,), daemon=True)
            for n in range(connections)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int) -> None:
        """Wait until that many more publishes are acknowledged."""
        with self._reached:
            wanted = len(self.acknowledged) + count
            assert self._reached.wait_for(lambda: len(self.acknowledged) >= wanted, timeout=60)

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(timeout=30)

    def _publish(self, publisher: int) -> None:
        count = 0
        while not self._enough.is_set():
            connection = http.client.HTTPConnection(self._netloc, timeout=5)
            try:
                while not self._enough.is_set():
                    count += 1
                    body = json.dumps({"publisher": publisher, "count": count})
                    connection.request("POST", "/topics/shop.orders", body)
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status == 201:
                        with self._reached:
                            self.acknowledged.append(answer.headers["Hermes-Message-Id"])
                            self._reached.notify_all()
            except (OSError, http.client.HTTPException):
                # The node was killed: unknown, not acknowledged. Try again soon.
                self._enough.wait(0.05)
            finally:
                connection.close()


def delivered(file: Path) -> list[str]:
    """The ids that a sink has written, one for each delivery it accepted."""
    if not file.exists():
        return []
    # The last line may be half-written.
    whole = file.read_text().rpartition("\n")[0]
    return [json.loads(line)["messageId"] for line in whole.splitlines()]


@pytest.mark.slow
def test_every_201_is_delivered_though_the_node_is_killed_under_load(
    start, shop, ports, data, tmp_path
):
    taken = tmp_path / "taken.ndjson"
    sink = start("sink", "--port", "0", "--write", str(taken), "--quiet", "--json")
    first = ports(4)
    arguments = ["dev", "--data", str(data), "--json"]
    arguments += ["--publish-port", str(first[0]), "--management-port", str(first[2])]
    node = start(*arguments)
    shop(node.ready["dcs"][0]["management"], f"{sink.ready['url']}orders")
    load = Load(node.ready["dcs"][0]["publish"])
    for _ in range(2):
        load.wait_for(200)
        node.kill()
        node = start(*arguments)
    load.wait_for(200)
    load.stop()
    acknowledged = set(load.acknowledged)
    assert len(acknowledged) == len(load.acknowledged) >= 600
    wait_until(
        lambda: acknowledged <= set(delivered(taken)), "all that is acknowledged is delivered"
    )


def test_a_second_node_on_the_same_data_or_port_is_refused_in_one_line(start, data):
    arguments = ["dev", "--data", str(data), "--publish-port", "0", "--management-port", "0"]
    node = start(*arguments, "--json")
    assert str(data / "dc1") in _fails(*arguments)
    taken = urlsplit(node.ready["dcs"][0]["publish"]).port
    line = _fails("dev", "--publish-port", str(taken), "--management-port", "0")
    assert str(taken) in line


def test_what_keeps_a_node_from_starting_is_one_line_and_exit_code_1(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    line = _fails("dev", "--data", str(tmp_path / "file"), "--publish-port", "0")
    assert str(tmp_path / "file") in line
    file = tmp_path / "node.toml"
    file.write_text("[frontend]\nidle_timeout = 5\n")
    assert "idle_timeout" in _fails("dev", "--config", str(file))


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_readmes_curl_lines_work_as_pasted(start, shop):
    arguments = ["--publish-port", "0", "--management-port", "0"]
    node = start("dev", *arguments, "--json")
    shop(node.ready["dcs"][0]["management"], "http://127.0.0.1:9/nobody")
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    lines = re.findall(r"curl -i [^`\n]*", readme)
    assert len(lines) == 2
    for line in lines:
        assert "http://127.0.0.1:8080/" in line
        pasted = line.replace("http://127.0.0.1:8080", node.ready["dcs"][0]["publish"])
        answer = subprocess.run(
            shlex.split(pasted), capture_output=True, text=True, timeout=20, check=True
        ).stdout
        assert re.match(r"HTTP/(1\.1|2) 201", answer), answer
        assert re.search(r"(?i)^hermes-message-id: [0-9a-f-]{36}\r?$", answer, re.MULTILINE), answer


def _fails(*arguments: str) -> str:
    """Run a command that must fail: exit code 1, nothing on stdout, one line on stderr."""
    command = [sys.executable, "-m", "hermes_actors", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert ended.stderr.startswith("hermes: ")
    return ended.stderr


def test_a_damaged_log_refuses_the_start_until_that_is_accepted(start, tmp_path: Path) -> None:
    data = ["--publish-port", "0", "--management-port", "0", "--dcs", "dc1", "--data"]
    code, _, errors = start("dev", *data, str(tmp_path), "--json").terminate()
    assert (code, errors) == (0, "")
    with closing(sqlite3.connect(tmp_path / "dc1" / "log.sqlite")) as file, file:
        file.execute("UPDATE chunk SET content = zeroblob(10)")
    ended = subprocess.run(
        [sys.executable, "-m", "hermes_actors", "dev", *data, str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert "dc1/log.sqlite: the log is damaged" in line
    assert "--accept-damage" in line
    node = start("dev", *data, str(tmp_path), "--json", "--accept-damage")
    assert node.ready["dcs"][0]["dc"] == "dc1"
    node.terminate()
    assert start("dev", *data, str(tmp_path), "--json").terminate()[0] == 0


def test_temporary_data_is_gone_also_after_a_second_signal(
    start, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS", "60000")
    ports = ("--publish-port", "0", "--management-port", "0")
    node = start("dev", *ports, "--dcs", "dc1", "--json")
    assert Path(node.ready["data"]).parent == tmp_path
    node.popen.terminate()
    publish = urlsplit(node.ready["dcs"][0]["publish"]).netloc
    is_up = True
    while is_up:
        connection = http.client.HTTPConnection(publish, timeout=5)
        connection.request("GET", "/status/health")
        is_up = connection.getresponse().status == 200
        connection.close()
    assert node.terminate()[0] == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())
