"""Real processes: each test has its own `hermes dev`, ended by its process id."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.compose import Topology
from hermes_local.ports import free_ports

HERMES = [sys.executable, "-m", "hermes_actors"]


class Process:
    """A child process of the test that prints one JSON line when it is ready."""

    def __init__(
        self, arguments: list[str], variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        # Its few warnings go to a pipe that is read at the end.
        self.popen = subprocess.Popen(
            [*HERMES, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> None:
        """Wait for its ready line."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line.startswith("{"):
            _, errors = self.popen.communicate(timeout=10)
            raise AssertionError(f"not ready: {line}{errors}")
        self.ready = json.loads(line)

    def kill(self) -> None:
        self.popen.send_signal(signal.SIGKILL)
        self.popen.communicate(timeout=10)

    def terminate(self) -> tuple[int, str, str]:
        """Drain it; return exit code, output and errors."""
        self.popen.send_signal(signal.SIGTERM)
        output, errors = self.popen.communicate(timeout=30)
        return self.popen.returncode, output, errors

    def end(self) -> None:
        if self.popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.popen.pid, signal.SIGKILL)
            self.popen.communicate(timeout=10)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start `hermes …` with HERMES_… variables; every process is ended with the test."""
    processes: list[Process] = []
    own = {
        "HERMES_SPOOL_DIRECTORY": str(tmp_path / "spools"),
        "HERMES_CONSUMERS_ENDPOINTS_ALLOW_LOOPBACK": "true",
    }

    def start(*arguments: str, waits: bool = True, **variables: str) -> Process:
        process = Process(list(arguments), own | variables)
        processes.append(process)
        if waits:
            process.wait_ready()
        return process

    yield start
    for process in processes:
        process.end()


def ask(method: str, url: str, body: Any = None) -> tuple[int, Any]:
    """Send a JSON request. Return the status and the decoded answer (None if empty)."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=15)
    try:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"} if content is not None else {}
        connection.request(method, parts.path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None
    finally:
        connection.close()


@pytest.fixture
def http() -> Callable[..., tuple[int, Any]]:
    return ask


@pytest.fixture
def ports() -> Callable[[int], list[int]]:
    return free_ports


@pytest.fixture
def shop(http: Callable[..., tuple[int, Any]]) -> Callable[[str, str], None]:
    """Create shop.orders with one subscription: `shop(management, endpoint)`."""

    def create(management: str, endpoint: str) -> None:
        subscription = subscription_body(
            "shop.orders", "sink", endpoint, subscriptionPolicy={"rate": 10_000}
        )
        assert http("POST", f"{management}/groups", {"groupName": "shop"})[0] == 201
        assert http("POST", f"{management}/topics", topic_body("shop.orders"))[0] == 201
        made = http("POST", f"{management}/topics/shop.orders/subscriptions", subscription)
        assert made[0] == 201, made

    return create


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """All services of deploy/compose.yaml as processes, healthy: two Kafkas and ten nodes.

    Tests of one module share it; a test that breaks a service must mend it. The network is not the
    default one, so that it does not clash with a developer's own topology.
    """
    data = tmp_path_factory.mktemp("topology")
    with Topology(data=data, network="127.0.4.0/24", variables={}) as topology:
        yield topology
