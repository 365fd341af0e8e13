"""`hermes node` as production runs it: a process for each node, Kafka or an embedded log."""

import http.client
import json

import pytest

from tests.live.waiting import wait_until

pytestmark = pytest.mark.live


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def publish(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/topics/shop.orders", b'{"id": 1}')
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def variables(ports: list[int], data: object, **others: str) -> dict[str, str]:
    return {
        "HERMES_FRONTEND_PORT": str(ports[0]),
        "HERMES_MANAGEMENT_PORT": str(ports[1]),
        "HERMES_STATUS_PORT": str(ports[2]),
        "HERMES_LOG_DIRECTORY": str(data),
        "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "5000",
        "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "5000",
        "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
        **others,
    }


def test_a_node_without_kafka_keeps_an_embedded_log(start, shop, ports, data):
    own = ports(3)
    node = start("node", "--json", **variables(own, data))
    assert node.ready["publish"] == f"http://127.0.0.1:{own[0]}"
    shop(node.ready["management"], "http://127.0.0.1:9/nobody")
    assert publish(own[0]) == 201
    assert node.terminate()[0] == 0
    assert (data / "log.sqlite").exists()


def test_a_node_that_only_delivers_shows_its_health_on_the_status_port(start, ports, data):
    own = ports(3)
    node = start("node", "--json", **variables(own, data, HERMES_ROLES="consumers"))
    assert node.ready["status"] == f"http://127.0.0.1:{own[2]}"
    assert get(own[2], "/status/health") == (200, b"UP")
    # It is ready when it takes part, which takes it some seconds.
    wait_until(lambda: get(own[2], "/status/ready") == (200, b"READY"), "ready")
    assert b"hermes_metadata_is_current 1.0" in get(own[2], "/status/prometheus")[1]
    assert node.terminate()[0] == 0


@pytest.mark.parametrize("roles", ["frontend,consumers,management", "consumers"])
def test_a_node_that_waits_for_kafka_says_so_and_can_be_stopped(start, ports, data, roles):
    own, nobody = ports(3), ports(1)[0]
    node = start(
        "node",
        waits=False,
        **variables(
            own,
            data,
            HERMES_ROLES=roles,
            HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS=f"127.0.0.1:{nobody}",
        ),
    )
    pages = own[0] if "frontend" in roles else own[2]
    wait_until(lambda: get(pages, "/status/health")[0], "an answer on the status pages")
    assert get(pages, "/status/health") == (503, b"SHUTDOWN")
    assert get(pages, "/status/ready") == (503, b"NOT_READY")
    details = json.loads(get(pages, "/status/details")[1])
    assert (details["phase"], details["isReady"]) == ("STARTING", False)
    assert details["reason"].startswith("metadata: ")
    if "frontend" in roles:
        assert publish(pages) == 503
    code, output, errors = node.terminate()
    assert (code, output) == (0, "")
    assert "not ready, waits for its metadata" in errors


@pytest.mark.kafka
@pytest.mark.slow
def test_a_node_that_started_while_kafka_was_down_comes_up_by_itself(
    start, shop, ports, data, tmp_path, make_kafka_cluster
):
    own, kafka_port, remote = ports(3), ports(1)[0], ports(1)[0]
    node = start(
        "node",
        "--json",
        waits=False,
        **variables(
            own,
            data,
            HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS=f"127.0.0.1:{kafka_port}",
            # The other datacentre never comes: that keeps nothing of this one from working.
            HERMES_KAFKA_CLUSTERS_DC2_BOOTSTRAP_SERVERS=f"127.0.0.1:{remote}",
        ),
    )
    wait_until(lambda: get(own[0], "/status/ready") == (503, b"NOT_READY"), "not ready")
    make_kafka_cluster(ports=[kafka_port])
    node.wait_ready()
    shop(node.ready["management"], "http://127.0.0.1:9/nobody")
    assert publish(own[0]) == 201
    wait_until(lambda: get(own[0], "/status/ready") == (200, b"READY"), "ready")
    assert node.terminate()[0] == 0
