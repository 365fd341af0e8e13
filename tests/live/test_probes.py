"""Kubernetes' probes of two real nodes, one that publishes and one that consumes, whose Kafka goes
away and comes back."""

import http.client
import json

import pytest

from tests.live.waiting import wait_until

pytestmark = pytest.mark.live


def probe(port: int, path: str) -> tuple[int, list[str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().splitlines()
    finally:
        connection.close()


def health(management: int) -> str:
    path = "/topics/shop.orders/subscriptions/sink/health"
    return str(json.loads("".join(probe(management, path)[1]))["status"])


def publish(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/topics/shop.orders", b'{"id": 1}')
        return connection.getresponse().status
    finally:
        connection.close()


def is_told(port: int, start: str) -> bool:
    return any(line.startswith(start) for line in probe(port, "/readyz")[1])


@pytest.mark.kafka
@pytest.mark.slow
def test_a_log_that_goes_away_takes_who_consumes_out_and_who_keeps_what_is_published_not(
    start, shop, ports, data, make_kafka_cluster
):
    cluster = make_kafka_cluster()
    shared = {
        "HERMES_LOG_DIRECTORY": str(data),
        "HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS": ",".join(cluster.bootstrap_servers),
        "HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS": "0",
    }
    publishing, management, consuming = ports(3)
    front = start(
        *("node", "--json"),
        **shared,
        HERMES_NODE="front",
        HERMES_ROLES="frontend,management",
        HERMES_FRONTEND_PORT=str(publishing),
        HERMES_MANAGEMENT_PORT=str(management),
    )
    delivery = start(
        *("node", "--json"),
        **shared,
        HERMES_NODE="delivery",
        HERMES_ROLES="consumers",
        HERMES_STATUS_PORT=str(consuming),
    )
    shop(front.ready["management"], "http://127.0.0.1:9/nobody")
    everywhere = (publishing, management, consuming)
    for port in everywhere:
        wait_until(lambda port=port: probe(port, "/readyz")[0] == 200, f"{port} to be ready")
        assert probe(port, "/startupz")[0] == 200
        assert probe(port, "/livez") == (200, ["ok"])
    assert is_told(consuming, "[+]coordination ok")
    wait_until(lambda: health(management) == "HEALTHY", "a healthy subscription")
    # Nobody listens at its endpoint.
    wait_until(lambda: publish(publishing) == 201, "a publish that is stored")
    wait_until(lambda: health(management) == "UNHEALTHY", "an unhealthy subscription")

    cluster.brokers[0].kill()
    wait_until(lambda: probe(consuming, "/readyz")[0] == 503, "the consuming node not ready")
    assert is_told(consuming, "[-]log: ") or is_told(consuming, "[-]coordination: ")
    wait_until(lambda: is_told(publishing, "[!]log: "), "the publishing node's notice")
    assert probe(publishing, "/readyz")[0] == probe(management, "/readyz")[0] == 200
    assert publish(publishing) == 202
    details = json.loads("".join(probe(consuming, "/status/details")[1]))
    assert details["reason"]
    assert {each["name"] for each in details["dependencies"]} >= {"metadata", "log", "coordination"}
    wait_until(lambda: health(management) == "NO_DATA", "nobody to tell of the subscription")
    # Nobody is restarted for it.
    for port in everywhere:
        assert (probe(port, "/livez")[0], probe(port, "/startupz")[0]) == (200, 200)

    cluster.brokers[0].start()
    wait_until(lambda: probe(consuming, "/readyz")[0] == 200, "the consuming node ready again")
    wait_until(lambda: is_told(publishing, "[+]log ok"), "the log to be well")
    wait_until(lambda: publish(publishing) == 201, "a publish that is stored")
    wait_until(lambda: health(management) == "UNHEALTHY", "an unhealthy subscription again")
    for node in (front, delivery):
        assert node.terminate()[0] == 0
