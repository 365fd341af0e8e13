"""A real node is killed while its Kafka is down: what it answered 202 is stored all the same."""

import http.client
import json
import os
import re
import subprocess
import sys

import pytest

from tests.live.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.kafka, pytest.mark.slow]

HERMES = [sys.executable, "-m", "hermes_actors"]


def publish(port: int, number: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"Partition-Key": f"k{number % 3}"}
        connection.request("POST", "/topics/shop.orders", b'{"id": %d}' % number, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def ready(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    finally:
        connection.close()


def test_what_was_answered_202_survives_kill_9_and_is_stored_and_delivered(
    start, shop, ports, tmp_path, make_kafka_cluster
):
    kafka_ports, own = ports(1), ports(3)
    cluster = make_kafka_cluster(ports=kafka_ports)
    variables = {
        "HERMES_FRONTEND_PORT": str(own[0]),
        "HERMES_MANAGEMENT_PORT": str(own[1]),
        "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "1000",
        "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "1000",
        "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
        "HERMES_SPOOL_DIRECTORY": str(tmp_path / "spools"),
        "HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": f"127.0.0.1:{kafka_ports[0]}",
    }

    def spool(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HERMES, "spool", *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    node = start("node", "--json", **variables)
    shop(node.ready["management"], "http://127.0.0.1:9/nobody")
    wait_until(lambda: publish(own[0], 0) == 201, "a publish that is stored")
    cluster.brokers[0].kill()
    answers = [publish(own[0], number) for number in range(1, 5)]
    assert set(answers) == {202}
    assert json.loads(spool("status", "--output", "json").stdout)["entries"] == 4
    node.kill()

    left = json.loads(spool("status", "--output", "json").stdout)
    assert (left["entries"], left["pid"]) == (4, "")
    early = spool("drain", "--timeout-s", "2")
    assert early.returncode == 1
    assert "4 messages (" in early.stderr
    assert f"shop.orders 4) stay in {tmp_path / 'spools'}" in early.stderr
    assert f"Kafka of dc1, 127.0.0.1:{kafka_ports[0]}: the connection was refused" in early.stderr

    cluster.brokers[0].start()
    drained = spool("drain")
    assert drained.returncode == 0, drained
    assert "4 messages stored" in drained.stdout
    assert json.loads(spool("status", "--output", "json").stdout)["entries"] == 0

    # And a node that starts with something in its spool sends it by itself.
    node = start("node", "--json", **variables)
    cluster.brokers[0].kill()
    assert publish(own[0], 5) == 202
    node.kill()
    cluster.brokers[0].start()
    node = start("node", "--json", **variables)
    drained = spool("drain")
    assert drained.returncode == 0, drained
    assert "the node runs" in drained.stderr or drained.stdout == "the spool is empty\n"
    found = subprocess.run(
        [*HERMES, "tail", "shop.orders", "--no-follow", "--management", node.ready["management"]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    stored = {int(number) for number in re.findall(r'"id": (\d+)', found.stdout)}
    assert stored == set(range(6)), found

    # As in preStop: the node takes no new traffic before it is stopped.
    assert ready(own[0]) == 200
    drained = spool("drain", "--wait")
    assert (drained.returncode, drained.stdout) == (0, "the spool is empty\n"), drained
    wait_until(lambda: ready(own[0]) == 503, "a node that is not ready")
    assert publish(own[0], 6) == 201
    assert node.terminate()[0] == 0
