"""The loaded server processes: a `hermes node` with all roles, or an empty app."""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from hermes_chaos.wanted import subscription_body, topic_body
from publishing.messages import TOPIC

PARTITIONS = 10
_ANSWERS_WITHIN_S = 15.0
# A real node's time limits would turn a busy machine's hiccups into 503s.
_PATIENCE_MS = "5000"


class Server:
    """A process that prints a line when it serves; killed at the end of the block.

    It runs in its own folder, where a node's spool is by default. Its imports are those of the
    benchmark's folder, so a copy of another revision measures that revision.
    """

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="hermes-bench-")
        paths = [str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.started_s = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=self._folder.name,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._folder.cleanup()

    def wait_ready(self) -> None:
        """Wait for its ready line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server ended with status {self.process.wait()} before it served"

    def memory_mib(self) -> float:
        """Resident memory, as the system counts it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return round(int(line.split()[1]) / 1_024, 1)


class EmptyServer(Server):
    """The frontend's listener with nothing behind it; answers 201 at once."""

    def __init__(self, port: int) -> None:
        app = str(Path(__file__).resolve().parent / "empty_app.py")
        super().__init__([app, str(port)], {})
        self.publish_port = port


class Node(Server):
    """A `hermes node` with all roles, over Kafka or an embedded log in a folder."""

    def __init__(
        self,
        kafka_servers: str,
        ports: list[int],
        directory: Path | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`variables` are further environment variables."""
        self.publish_port, self.management_port = ports
        environment = {
            "HERMES_FRONTEND_PORT": str(self.publish_port),
            "HERMES_FRONTEND_IDLE_TIMEOUT_MS": _PATIENCE_MS,
            "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": _PATIENCE_MS,
            "HERMES_FRONTEND_MAX_PUBLISH_REQUEST_DURATION_MS": _PATIENCE_MS,
            "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
            "HERMES_MANAGEMENT_PORT": str(self.management_port),
            "HERMES_MANAGEMENT_TOPIC_PARTITIONS": str(PARTITIONS),
            "HERMES_CONSUMERS_ENDPOINTS_ALLOW_LOOPBACK": "true",
            **variables,
        }
        if directory is None:
            environment["HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS"] = kafka_servers
        else:
            environment["HERMES_LOG_DIRECTORY"] = str(directory.resolve())
        super().__init__(["-m", "hermes_actors", "node", "--json"], environment)

    def first_answer(self) -> tuple[int, float]:
        """Status and time since the start of the first publish that gets any answer."""
        while True:
            try:
                status = self._publish(TOPIC)
            except (ConnectionError, http.client.HTTPException):
                time.sleep(0.005)
            else:
                return status, time.perf_counter() - self.started_s

    def wait_publishable(self) -> None:
        """Wait until the topic accepts messages."""
        end_s, status = time.perf_counter() + _ANSWERS_WITHIN_S, 0
        while status != 201:
            assert time.perf_counter() < end_s, f"a publish is still answered {status}"
            status = self._publish(TOPIC)

    def create_topic(self, ack: str, **fields: Any) -> None:
        """Create the loaded topic, for a node that does not have it yet."""
        self.post("/groups", {"groupName": TOPIC.partition(".")[0]})
        self.post("/topics", topic_body(TOPIC, ack=ack) | fields)

    def deliver_to(self, endpoint: str) -> None:
        """Create a subscription to that topic, without an effective rate limit."""
        policy = {"rate": 1_000_000}
        body = subscription_body(TOPIC, "each", endpoint, subscriptionPolicy=policy)
        self.post(f"/topics/{TOPIC}/subscriptions", body)

    def post(self, path: str, body: dict[str, Any]) -> None:
        """Create something through the management API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.management_port, timeout=15)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        connection.close()

    def _publish(self, topic: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.publish_port, timeout=10)
        try:
            connection.request("POST", f"/topics/{topic}", b'{"first": true}')
            return connection.getresponse().status
        finally:
            connection.close()
