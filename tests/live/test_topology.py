"""The shipped compose file at work: two datacentres on real Kafka, every service a process."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_actors.runtime.clock import SystemClock
from hermes_chaos.wanted import subscription_body, topic_body
from hermes_local.compose import Topology
from tests.live.endpoint import Endpoint

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(400),
]

WITHIN_S = 60.0
clock = SystemClock()
pause = threading.Event()


class Sink:
    """A subscriber that keeps the body of each message it accepts, by message id."""

    def __init__(self) -> None:
        self.taken: dict[str, bytes] = {}
        self.attempts: Counter[str] = Counter()
        self._changed = threading.Condition()
        self.endpoint = Endpoint(self._take)
        self.url = self.endpoint.url

    def _take(self, headers: dict[str, str], body: bytes) -> int:
        with self._changed:
            self.attempts[headers["hermes-message-id"]] += 1
            self.taken[headers["hermes-message-id"]] = body
            self._changed.notify_all()
        return 200

    def wait_for(self, ids: set[str]) -> None:
        """Raises AssertionError when one of them has not come in time."""
        with self._changed:
            self._changed.wait_for(lambda: ids <= self.taken.keys(), timeout=WITHIN_S)
            assert ids - self.taken.keys() == set()


@pytest.fixture
def sink() -> Iterator[Sink]:
    sink = Sink()
    with sink.endpoint:
        yield sink


def ask(method: str, url: str, body: Any = None) -> tuple[int, Any, str]:
    """One JSON request: status, decoded answer, message id."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=30)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, parts.path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        try:
            decoded = json.loads(text) if text else None
        except ValueError:
            decoded = text.decode()
        return answer.status, decoded, answer.headers.get("Hermes-Message-Id", "")
    finally:
        connection.close()


def eventually(holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> float:
    """Ask until it holds; the seconds it took. Raises AssertionError."""
    began_s = clock.monotonic_s()
    while not holds():
        assert clock.monotonic_s() - began_s < within_s, f"not within {within_s:.0f} s: {what}"
        pause.wait(0.02)
    return clock.monotonic_s() - began_s


def management(topology: Topology, dc: str) -> str:
    return topology.services[f"management-{dc}"].url(8090)


def frontends(topology: Topology) -> list[str]:
    return [
        service.url(8080)
        for name, service in topology.services.items()
        if name.startswith("frontend")
    ]


def create(topology: Topology, dc: str, group: str, endpoint: str) -> str:
    """A topic with a subscription, made in one datacentre; its name."""
    base, topic = management(topology, dc), f"{group}.orders"
    assert ask("POST", f"{base}/groups", {"groupName": group})[0] == 201
    made = ask("POST", f"{base}/topics", topic_body(topic, ack="ALL"))
    assert made[0] == 201, made
    subscription = subscription_body(topic, "sink", endpoint, subscriptionPolicy={"rate": 10_000})
    made = ask("POST", f"{base}/topics/{topic}/subscriptions", subscription)
    assert made[0] == 201, made
    return topic


def publish(frontend: str, topic: str, body: Any) -> str:
    """Its message id, when it was answered with 201; until then again, as a publisher would."""
    answers: list[tuple[int, Any, str]] = []

    def is_accepted() -> bool:
        answers.append(ask("POST", f"{frontend}/topics/{topic}", body))
        # 404: this frontend has not read of the topic yet.
        assert answers[-1][0] in (201, 404, 500, 503), answers[-1]
        return answers[-1][0] == 201

    eventually(is_accepted, f"{frontend} accepts a message of {topic}")
    return answers[-1][2]


def test_each_datacentre_is_a_cluster_of_its_own_as_the_file_says(topology):
    for name in ("kafka-dc1", "kafka-dc2"):
        cluster_id = topology.services[name].plan.environment["CLUSTER_ID"]
        properties = (topology.folder / "volumes" / name / "meta.properties").read_text()
        assert f"cluster.id={cluster_id}\n" in properties


def test_what_is_published_at_any_frontend_of_either_datacentre_is_delivered(topology, sink):
    topic = create(topology, "dc1", "everywhere", sink.url)
    bodies = {}
    for count in range(10):
        for frontend in frontends(topology):
            body = {"frontend": frontend, "count": count}
            bodies[publish(frontend, topic, body)] = body
    sink.wait_for(set(bodies))
    assert len(bodies) == 40
    assert {name: json.loads(sink.taken[name]) for name in bodies} == bodies


def test_each_datacentre_stores_what_was_published_in_it(topology, sink):
    topic = create(topology, "dc2", "apart", sink.url)
    here = publish(topology.services["frontend-dc1-2"].url(8080), topic, {"n": 1})
    there = publish(topology.services["frontend-dc2-2"].url(8080), topic, {"n": 2})
    for dc, expected in (("dc1", here), ("dc2", there)):
        status, text, _ = ask("GET", f"{management(topology, dc)}/topics/{topic}/messages")
        assert status == 200
        lines = text if isinstance(text, str) else json.dumps(text)
        assert expected in lines
        assert ({here, there} - {expected}).pop() not in lines
    sink.wait_for({here, there})


def test_what_is_changed_in_one_datacentre_is_seen_in_the_other_both_ways(topology, sink):
    for dc, other, group in (("dc1", "dc2", "first"), ("dc2", "dc1", "second")):
        topic = create(topology, dc, group, sink.url)
        shown = f"{management(topology, other)}/topics/{topic}"
        eventually(lambda url=shown: ask("GET", url)[0] == 200, f"{other} shows {topic}")
        patch = {"description": f"changed in {other}"}
        assert ask("PUT", shown, patch)[0] == 200
        back = f"{management(topology, dc)}/topics/{topic}"
        eventually(
            lambda url=back, patch=patch: ask("GET", url)[1]["description"] == patch["description"],
            f"{dc} shows the change made in {other}",
        )


def test_every_node_shows_its_metrics_where_prometheus_asks(topology):
    import yaml

    from hermes_local.compose import COMPOSE_FILE

    tree = yaml.safe_load((COMPOSE_FILE.parent / "prometheus/prometheus.yml").read_text())
    (job,) = [each for each in tree["scrape_configs"] if each["job_name"] == "hermes"]
    targets = [target for group in job["static_configs"] for target in group["targets"]]
    assert len(targets) == 10
    for target in targets:
        name, _, port = target.partition(":")
        url = topology.services[name].url(int(port)) + job["metrics_path"]
        status, text, _ = ask("GET", url)
        assert status == 200, target
        assert "\nhermes_metadata_is_current 1.0\n" in text, target


def test_a_frontend_that_is_stopped_finishes_what_it_accepted(topology, sink):
    topic = create(topology, "dc1", "drained", sink.url)
    service = topology.services["frontend-dc1-1"]
    publish(service.url(8080), topic, {"n": 0})
    accepted: list[str] = []
    faults: list[str] = []
    started = threading.Event()

    def go_on() -> None:
        connection = HTTPConnection(urlsplit(service.url(8080)).netloc, timeout=30)
        with contextlib.suppress(ConnectionError):
            for count in range(1_000_000):
                connection.request("POST", f"/topics/{topic}", json.dumps({"n": count}))
                answer = connection.getresponse()
                answer.read()
                if answer.status == 201:
                    accepted.append(answer.headers["Hermes-Message-Id"])
                elif answer.status != 503:
                    # Busy or closing is a fair answer of a frontend that drains; no other is.
                    faults.append(f"{answer.status} {answer.reason}")
                if len(accepted) == 20:
                    started.set()
        connection.close()

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert started.wait(WITHIN_S)
        assert service.stop(), service.last_words()
        assert service.exit_code == 0, service.last_words()
    finally:
        service.kill()
        for thread in threads:
            thread.join(WITHIN_S)
        service.start()
        service.wait_healthy(WITHIN_S)
    assert faults == []
    assert len(accepted) >= 20
    sink.wait_for(set(accepted))


def test_a_consumers_node_that_is_stopped_and_started_loses_nothing(topology, sink):
    topic = create(topology, "dc1", "rested", sink.url)
    frontend = topology.services["frontend-dc1-2"].url(8080)
    ids = {publish(frontend, topic, {"n": n}) for n in range(20)}
    for name in ("consumers-dc1-1", "consumers-dc1-2"):
        service = topology.services[name]
        assert service.stop(), service.last_words()
        assert service.exit_code == 0, service.last_words()
        ids |= {publish(frontend, topic, {"n": n, "without": name}) for n in range(20)}
        service.start()
    for name in ("consumers-dc1-1", "consumers-dc1-2"):
        topology.services[name].wait_healthy(WITHIN_S)
    sink.wait_for(ids)
    assert len(ids) == 60


def test_the_whole_topology_drains_in_time_and_goes_on_with_what_it_stored(topology, sink):
    topic = create(topology, "dc2", "kept", sink.url)
    frontend = topology.services["frontend-dc2-1"].url(8080)
    before = publish(frontend, topic, {"n": 1})
    sink.wait_for({before})
    killed = topology.stop()
    try:
        codes = {
            name: service.exit_code
            for name, service in topology.services.items()
            if not name.startswith("kafka")
        }
        assert not any(service.is_running for service in topology.services.values())
    finally:
        topology.start()
    assert killed == []
    assert codes == dict.fromkeys(codes, 0)
    assert len(codes) == 10
    after = publish(frontend, topic, {"n": 2})
    sink.wait_for({after})
    # What was settled before the stop is not sent again.
    assert sink.attempts[before] == 1
