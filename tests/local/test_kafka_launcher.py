"""Real brokers: started, stopped, killed, paused, several, secured, and by the command line."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hermes_actors.runtime import guest
from hermes_local.failures import LaunchFailed
from hermes_local.kafka import Cluster, read_state
from hermes_local.lifecycle import Plan, State, found
from hermes_local.ports import free_ports
from hermes_local.probe import live_brokers
from hermes_local.processes import ProcessId

pytestmark = pytest.mark.kafka
LONG_S = 60.0


async def create(servers: list[str], topic: str, replicas: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        configs = {"min.insync.replicas": "2" if replicas > 1 else "1"}
        made = await admin.create_topics([NewTopic(topic, 1, replicas, topic_configs=configs)])
        assert [error[1] for error in made.topic_errors] == [0]
    finally:
        await admin.close()


async def produce(servers: list[str], topic: str, value: bytes, **how: object) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", **how)
    try:
        await producer.start()
        await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def values(servers: list[str], topic: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


def wait_until_ended(process: ProcessId) -> None:
    assert process.wait_ended(LONG_S), f"{process} still runs"


async def test_data_outlives_a_stop_and_a_kill_and_a_paused_broker_answers_nobody(
    make_kafka_cluster,
):
    cluster = make_kafka_cluster()
    (broker,) = cluster.brokers
    servers = cluster.bootstrap_servers
    # Ready means: the first request of all is not refused.
    await guest.call(create, servers, "kept", 1)
    await guest.call(produce, servers, "kept", b"before the stop")
    broker.pause()
    assert broker.process.is_paused
    assert broker.is_running
    assert live_brokers(broker.host, broker.port, timeout_s=0.3) is None
    broker.resume()
    assert live_brokers(broker.host, broker.port, timeout_s=LONG_S) == [broker.node_id]
    broker.pause()
    assert broker.stop(), "ended in an orderly way, though it was paused"
    assert (broker.is_running, broker.pid) == (False, None)
    assert live_brokers(broker.host, broker.port) is None

    cluster.start()
    assert cluster.bootstrap_servers == servers
    await guest.call(produce, servers, "kept", b"before the kill")
    broker.kill()
    assert not broker.is_running
    broker.start()
    broker.wait_healthy()
    assert await guest.call(values, servers, "kept", 2) == [b"before the stop", b"before the kill"]


def test_brokers_die_with_the_process_that_started_them(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from hermes_local.kafka import Cluster\n"
        "cluster = Cluster(Path(sys.argv[1]), heap_mb=256); cluster.start()\n"
        "print(cluster.brokers[0].pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        process = ProcessId.of(int(starter.stdout.readline()))
        assert process.is_running
        starter.send_signal(signal.SIGKILL)
    wait_until_ended(process)


def test_a_taken_port_is_named_before_anything_is_written(tmp_path):
    (port,) = free_ports(1)
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(LaunchFailed, match=f"port {port} of 127.0.0.1 is in use"),
    ):
        Cluster(tmp_path / "new", ports=[port]).start()
    assert not (tmp_path / "new").exists()


def test_a_broker_that_ends_while_it_starts_tells_why(tmp_path):
    cluster = Cluster(tmp_path, heap_mb=256)
    of_another = cluster.brokers[0].folder / "data" / "meta.properties"
    of_another.parent.mkdir(parents=True)
    of_another.write_text("version=1\nnode.id=7\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    with pytest.raises(LaunchFailed, match=r"broker-1 ended while it started: .*Stored node id 7"):
        cluster.start()
    assert not cluster.brokers[0].is_running


def remembered_cluster(folder: Path) -> None:
    plan = Plan("broker-1", "127.0.0.1", tuple(free_ports(3)))
    State({plan.name: plan}).write(folder)


class Shell:
    """`hermes kafka …` as a user runs it, with the clusters in a folder of the test's own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {**os.environ, "XDG_DATA_HOME": str(home)}

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "hermes_actors", "kafka", *arguments],
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def shell(tmp_path):
    yield Shell(tmp_path)
    for folder in (tmp_path / "hermes_actors" / "kafka").glob("*/"):
        for broker in found(folder, "broker-*", read_state)[0].values():
            broker.kill()


async def test_the_command_starts_shows_and_ends_a_cluster_that_outlives_it(shell):
    port = str(free_ports(1)[0])
    code, output, errors = shell("up", "--port", port, "--heap-mb", "256")
    assert code == 0, errors
    assert f"Kafka dc1 runs at 127.0.0.1:{port}" in output
    assert f"HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS=127.0.0.1:{port} hermes node" in output
    servers = [f"127.0.0.1:{port}"]
    await guest.call(create, servers, "kept", 1)
    await guest.call(produce, servers, "kept", b"here")

    code, output, _ = shell("up", "--json")
    again = json.loads(output)
    assert (code, again["alreadyRunning"], again["bootstrapServers"]) == (0, True, servers)
    code, output, errors = shell("up", "--port", "1", "--brokers", "3")
    assert (code, output) == (1, "")
    assert errors == (
        f"hermes: it is already running, with 1 broker and port {port}; end it first: "
        f"hermes kafka down --name dc1 --data {shell.home}/hermes_actors/kafka\n"
    )

    code, output, _ = shell("status", "-o", "json")
    (report,) = json.loads(output)
    (broker,) = report["brokers"]
    assert (code, report["name"], broker["state"]) == (0, "dc1", "running")
    assert broker["address"] == servers[0]
    assert 50 < broker["memoryMib"] < 2_000
    assert Path(broker["folder"]).is_relative_to(shell.home)
    process = ProcessId.of(broker["pid"])
    assert f" {process.pid} " in shell("status")[1]

    assert shell("down")[0] == 0
    assert not process.is_running
    code, output, _ = shell("down")
    assert (code, "did not run" in output) == (0, True)
    assert " down " in shell("status")[1]

    assert shell("up", "--heap-mb", "256")[0] == 0
    assert await guest.call(values, servers, "kept", 1) == [b"here"]
    code, output, _ = shell("down", "--delete-data")
    assert (code, "its data is deleted" in output) == (0, True)
    assert list((shell.home / "hermes_actors" / "kafka").iterdir()) == []


def test_the_command_refuses_in_one_line(shell, tmp_path):
    base = shell.home / "hermes_actors" / "kafka"
    assert shell("down", "--name", "dc7") == (
        1,
        "",
        (
            f"hermes: there is no cluster dc7 in {base}; `hermes kafka status` lists "
            "the clusters there, and --data selects another folder\n"
        ),
    )
    assert shell("up", "--name", "../x") == (
        2,
        "",
        "hermes: --name '../x': use letters, digits, _ and -\n",
    )
    assert shell("up", "--set", "retention")[::2] == (
        2,
        "hermes: --set 'retention': write NAME=VALUE, for example log.retention.hours=1\n",
    )
    assert shell("status")[1] == f"no clusters in {base}; `hermes kafka up` starts one\n"
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        code, _, errors = shell("up", "--port", str(port))
    assert (code, errors) == (
        1,
        (
            f"hermes: broker-1: port {port} of 127.0.0.1 is in use by another process; stop it, "
            "or choose another port or --network\n"
        ),
    )


def test_a_failed_start_leaves_nothing_behind_but_the_log_that_it_names(shell):
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert shell("up", "--port", str(port))[0] == 1
    assert shell("up", "--port", "65535", "--brokers", "2")[0] == 2
    assert list(shell.home.iterdir()) == []
    code, _, errors = shell("up", "--port", str(port), "--set", "min.insync.replicas=two")
    assert (code, "min.insync.replicas" in errors) == (1, True)
    (left,) = [path for path in shell.home.rglob("*") if path.is_file()]
    assert f"see {left}" in errors


def test_a_failed_start_leaves_a_cluster_that_was_there_as_it_was(tmp_path):
    folder = tmp_path / "dc1"
    stored = folder / "broker-1" / "data" / "meta.properties"
    stored.parent.mkdir(parents=True)
    stored.touch()
    remembered_cluster(folder)
    before = (folder / "state.json").read_text()
    other = Cluster(folder, ports=free_ports(1), heap_mb=256, jvm_options=["-XX:NoSuchOption"])
    with pytest.raises(LaunchFailed, match="ended while it started"):
        other.start()
    assert (folder / "state.json").read_text() == before
    assert stored.is_file()


def test_a_damaged_cluster_is_shown_and_can_be_forgotten_and_the_others_go_on(shell):
    base = shell.home / "hermes_actors" / "kafka"
    for name in ("dc1", "dc2"):
        (base / name / "broker-1" / "data").mkdir(parents=True)
        remembered_cluster(base / name)
    damaged = base / "dc1" / "state.json"
    way_out = f"hermes kafka down --name dc1 --data {base} --delete-data"
    for text in ("", "[]", "{}", damaged.read_text().replace('"ports":[', '"ports":[-')):
        damaged.write_text(text)
        code, output, errors = shell("status")
        assert code == 1
        rows = [line.split()[:4] for line in output.splitlines()[1:]]
        assert [row[0] for row in rows] == ["dc1", "dc2"]
        assert ("damaged" in rows[0], "damaged" in rows[1]) == (True, False)
        assert str(damaged) in errors
        assert way_out in errors
    code, output, _ = shell("status", "-o", "json")
    first, second = json.loads(output)
    assert code == 1
    assert way_out in first["damage"]
    assert (second["damage"], second["brokers"][0]["state"]) == ("", "down")
    # Its data stays until that is asked for.
    code, _, errors = shell("down", "--name", "dc1")
    assert (code, way_out in errors) == (1, True)
    assert (base / "dc1" / "broker-1" / "data").is_dir()
    assert shell(*way_out.split()[2:])[0] == 0
    assert shell("status")[0] == 0
    assert [each.name for each in base.iterdir()] == ["dc2"]


def test_a_damaged_cluster_that_runs_is_ended_all_the_same(shell):
    port = str(free_ports(1)[0])
    assert shell("up", "--port", port, "--heap-mb", "256")[0] == 0
    base = shell.home / "hermes_actors" / "kafka"
    damaged = base / "dc1" / "state.json"
    (broker,) = json.loads(shell("status", "-o", "json")[1])[0]["brokers"]
    process = ProcessId.of(broker["pid"])
    damaged.write_text("{")
    assert f" running, damaged  {process.pid} " in shell("status")[1]
    code, _, errors = shell("up")
    assert (code, "is damaged" in errors) == (1, True)
    assert shell("down", "--delete-data")[0] == 0
    assert not process.is_running
    assert not (base / "dc1").exists()
