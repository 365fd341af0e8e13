"""`hermes node --processes`: nodes of one configuration in supervised processes, over Kafka."""

import http.client
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from hermes_local.kafka import Cluster
from tests.live.endpoint import Endpoint
from tests.live.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(240)]

MESSAGES = 600


def page(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def children_of(pid: int) -> dict[str, int]:
    """The running processes, by their nodes' names."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        name = next(each for each in variables if each.startswith(b"HERMES_NODE="))
        found[name.partition(b"=")[2].decode()] = int(child)
    return found


class Publisher(threading.Thread):
    """Publishes numbers, each on a new connection, and keeps those that were acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.acknowledged: set[int] = set()
        self._port = port

    def run(self) -> None:
        for number in range(MESSAGES):
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            try:
                connection.request("POST", "/topics/shop.orders", json.dumps({"id": number}))
                if connection.getresponse().status in (201, 202):
                    self.acknowledged.add(number)
            except (OSError, http.client.HTTPException):
                pass  # The process that was killed had this connection; nothing was acknowledged.
            finally:
                connection.close()


def test_a_killed_process_is_started_again_and_nothing_acknowledged_is_lost(
    start, shop, ports, tmp_path
):
    delivered: set[int] = set()

    def take(_headers: dict[str, str], body: bytes) -> int:
        delivered.add(json.loads(body)["id"])
        return 200

    cluster = Cluster(tmp_path / "kafka", brokers=1, heap_mb=256)
    cluster.start()
    endpoint = Endpoint(take)
    try:
        # The second process takes the next port of management and status.
        publish, management, _, status, _ = ports(5)
        nodes = start(
            "node", "--json", "--processes", "2",
            HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS=cluster.bootstrap_servers[0],
            HERMES_FRONTEND_PORT=str(publish),
            HERMES_MANAGEMENT_PORT=str(management),
            HERMES_STATUS_PORT=str(status),
            HERMES_FRONTEND_IDLE_TIMEOUT_MS="5000",
            HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS="5000",
            HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS="0",
        )  # fmt: skip
        for at in (status, status + 1):
            wait_until(lambda at=at: page(at, "/readyz")[0] == 200, "it")
            assert b"hermes_" in page(at, "/status/prometheus")[1]
        shop(f"http://127.0.0.1:{management}", endpoint.url)
        wait_until(lambda: page(publish, "/readyz")[0] == 200, "it")
        first = children_of(nodes.popen.pid)
        assert sorted(first) == ["node1-1", "node1-2"]
        publishers = [Publisher(publish) for _ in range(4)]
        for each in publishers:
            each.start()
        wait_until(lambda: len(publishers[0].acknowledged) > MESSAGES / 10, "it")
        os.kill(first["node1-2"], signal.SIGKILL)
        for each in publishers:
            each.join()
        wait_until(lambda: page(status + 1, "/readyz")[0] == 200, "it")
        again = children_of(nodes.popen.pid)
        assert again["node1-1"] == first["node1-1"]
        assert again["node1-2"] != first["node1-2"]
        acknowledged = set().union(*(each.acknowledged for each in publishers))
        assert len(acknowledged) > MESSAGES * 0.9
        wait_until(lambda: acknowledged <= delivered, "it")
        assert nodes.terminate()[0] == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in again.values())
    finally:
        endpoint.__exit__()
        cluster.kill()
