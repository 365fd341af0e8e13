"""Nodes whose schemas a registry of somebody else keeps: Apicurio's, or that of another node."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_actors.runtime.clock import SystemClock
from hermes_chaos.wanted import topic_body
from hermes_local.jars import JarSet
from hermes_local.java import java_command
from hermes_local.ports import free_ports
from tests.live.conftest import Process, ask
from tests.live.test_avro import JSON, Broker
from tests.live.waiting import wait_until

pytestmark = [pytest.mark.live, pytest.mark.kafka]

APICURIO = JarSet(
    "Apicurio Registry",
    "apicurio",
    "LOCAL_APICURIO_JARS",
    Path(__file__).with_name("apicurio") / "pom.xml",
    "tests/live/apicurio",
)
PAUSE = threading.Event()
NUMBER = (
    '{"type":"record","name":"User","fields":[{"name":"__metadata",'
    '"type":["null",{"type":"map","values":"string"}],"default":null},'
    '{"name":"age","type":"int"}]}'
)
WIDER = NUMBER.replace('"int"}', '"int"},{"name":"name","type":"string","default":""}')


class Apicurio:
    """Apicurio Registry as a process of the test, its schemas in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        (jar,) = APICURIO.folder().glob("*-runner.jar")
        self.process = subprocess.Popen(
            [
                java_command(owner="Apicurio Registry"),
                f"-Dquarkus.http.port={self.port}",
                "-Dquarkus.http.host=127.0.0.1",
                "-jar",
                str(jar),
            ],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: status_of("GET", f"{self.url}/subjects") == 200, "the registry answers")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=10)


def status_of(method: str, url: str, body: Any = None) -> int:
    try:
        return ask(method, url, body)[0]
    except OSError:
        return 0


class Node:
    """A node as a process, with an embedded log."""

    def __init__(self, folder: Path, **variables: str) -> None:
        ports = free_ports(2)
        self.broker = Broker(ports)
        self.frontend, self.management = (f"http://127.0.0.1:{port}" for port in ports)
        self.process = Process(
            ["node", "--json"],
            {
                "HERMES_FRONTEND_PORT": str(ports[0]),
                "HERMES_MANAGEMENT_PORT": str(ports[1]),
                "HERMES_LOG_DIRECTORY": str(folder / "log"),
                "HERMES_SPOOL_DIRECTORY": str(folder / "spools"),
                # A disk that is slow for a moment is no registry that is away.
                "HERMES_FRONTEND_IDLE_TIMEOUT_MS": "1500",
                "HERMES_FRONTEND_LONG_IDLE_TIMEOUT_MS": "1500",
                **variables,
            },
        )
        self.process.wait_ready()

    def create(self, name: str, schema: str) -> None:
        status_of("POST", f"{self.management}/groups", {"groupName": "shop"})
        body = topic_body(name, contentType="AVRO") | {"schema": schema}
        made = ask("POST", f"{self.management}/topics", body)
        assert made[0] == 201, made

    def publish(self, topic: str, body: Any) -> int:
        return ask("POST", f"{self.frontend}/topics/{topic}", body)[0]

    def outcome(self, topic: str, body: Any, **headers: str) -> str:
        status, error = self.broker.publish(topic, json.dumps(body).encode(), JSON, **headers)
        return f"{status} {error['code'] if error else ''}".strip()


def external(url: str) -> dict[str, str]:
    return {
        "HERMES_SCHEMA_REGISTRY": "http",
        "HERMES_SCHEMA_URLS": url,
        "HERMES_SCHEMA_REFRESH_INTERVAL_MS": "1000",
        # A registry beside other tests' processes may take seconds to store a schema.
        "HERMES_SCHEMA_TIMEOUT_MS": "10000",
    }


@pytest.fixture
def apicurio(tmp_path: Path) -> Iterator[Apicurio]:
    registry = Apicurio(tmp_path)
    try:
        registry.start()
        yield registry
    finally:
        registry.stop()


def register(url: str, subject: str, schema: str) -> None:
    body = {"schema": schema}
    assert ask("POST", f"{url}/subjects/{subject}/versions", body)[0] == 200


@pytest.mark.soak
@pytest.mark.slow
def test_apicurio_keeps_the_schemas_and_may_stop(apicurio: Apicurio, tmp_path: Path) -> None:
    node = Node(tmp_path / "a", **external(apicurio.url))
    try:
        node.create("shop.users", NUMBER)
        wait_until(lambda: node.publish("shop.users", {"age": 1}) == 201, "it is published")
        assert node.publish("shop.users", {"age": "one"}) == 400
        schemas = f"{node.management}/topics/shop.users/schema"
        refused = ask("POST", schemas, {"type": "record", "name": "User", "fields": "none"})
        assert refused[0] == 400, refused

        register(apicurio.url, "shop.users", WIDER)
        wait_until(lambda: status_of("GET", f"{schemas}/versions/2") == 200, "version 2 is there")
        assert ask("GET", f"{node.management}/schema-registry/subjects")[0] == 501

        node.process.end()
        apicurio.stop()
        node = Node(tmp_path / "a", **external(apicurio.url))
        assert node.publish("shop.users", {"age": 1}) == 500, "nothing is known"
        apicurio.start()
        # It keeps them in memory alone: who runs it has restored them.
        register(apicurio.url, "shop.users", NUMBER)
        register(apicurio.url, "shop.users", WIDER)
        wait_until(lambda: node.publish("shop.users", {"age": 1}) == 201, "it is published")

        apicurio.stop()
        for _ in range(50):
            assert node.publish("shop.users", {"age": 1}) == 201, "what is known goes on"
            PAUSE.wait(0.1)
    finally:
        node.process.end()


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_apicurio_hangs_for_a_minute_and_nothing_waits_for_it(
    apicurio: Apicurio, tmp_path: Path
) -> None:
    seldom = {"HERMES_SCHEMA_REFRESH_INTERVAL_MS": "600000"}
    node = Node(tmp_path / "a", **(external(apicurio.url) | seldom))
    unknown = {"Schema_Version": "2"}
    assert apicurio.process is not None
    try:
        node.create("shop.users", NUMBER)
        wait_until(lambda: node.publish("shop.users", {"age": 1}) == 201, "it is published")
        register(apicurio.url, "shop.users", WIDER)
        # It takes connections, and answers none of them.
        apicurio.process.send_signal(signal.SIGSTOP)
        # Whoever comes first waits for the answer, until the limit of publishing.
        wait_until(
            lambda: node.outcome("shop.users", {"age": 1}, **unknown).startswith("500 SCHEMA"),
            "the registry is missed",
        )
        clock = SystemClock()
        end_s = clock.monotonic_s() + 60
        outcomes = set()
        while clock.monotonic_s() < end_s:
            began_s = clock.monotonic_s()
            assert node.outcome("shop.users", {"age": 1}) == "201"
            assert clock.monotonic_s() - began_s < 2
            outcomes.add(node.outcome("shop.users", {"age": 1}, **unknown))
            PAUSE.wait(0.2)
        assert outcomes == {"500 SCHEMA_COULD_NOT_BE_LOADED"}
        apicurio.process.send_signal(signal.SIGCONT)
        wait_until(
            lambda: node.outcome("shop.users", {"age": 1}, **unknown) == "201", "it is published"
        )
    finally:
        node.process.end()


def test_another_nodes_embedded_registry_is_an_external_one(tmp_path: Path) -> None:
    keeper = Node(tmp_path / "keeper")
    node = Node(
        tmp_path / "asks",
        **external(f"{keeper.management}/schema-registry"),
    )
    try:
        node.create("shop.users", NUMBER)
        wait_until(lambda: node.publish("shop.users", {"age": 1}) == 201, "it is published")
        _, versions = ask(
            "GET", f"{keeper.management}/schema-registry/subjects/shop.users/versions"
        )
        assert versions == [1]
    finally:
        node.process.end()
        keeper.process.end()
