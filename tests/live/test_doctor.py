"""`hermes doctor` beside real nodes, and beside a real Kafka."""

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from hermes_actors.runtime import guest
from hermes_local.ports import free_ports
from tests.live.conftest import HERMES
from tests.live.waiting import wait_until

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def same_spool(tmp_path, monkeypatch):
    """All nodes have their spool in one folder, whatever a file says."""
    monkeypatch.setenv("HERMES_SPOOL_DIRECTORY", str(tmp_path / "spools"))


def doctor(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    command = [*HERMES, "doctor", str(folder / "node.toml"), "--json", "--timeout-s", "20"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""
    return result.returncode, json.loads(result.stdout)["diagnoses"]


def against(found: list[dict[str, Any]]) -> list[str]:
    """All findings that are not OK, but for those of the machine: its disk, and a node that had
    no CPU for a moment.
    """
    return [
        f"{each['grade']} {each['about']}: {each['seen']}"
        for each in found
        if each["grade"] != "OK"
        and each["check"] != "disk"
        and "which is ready all the same: event loop: " not in each["seen"]
    ]


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def configure(folder: Path, more: str = "") -> None:
    publish, management = free_ports(2)
    (folder / "node.toml").write_text(
        f"node = 'n1'\n[frontend]\nport = {publish}\nreuse_port = true\n"
        f"graceful_shutdown_initial_wait_ms = 0\n[management]\nport = {management}\n"
        f"[spool]\ndirectory = '{folder}/spool'\n[log]\ndirectory = '{folder}/log'\n{more}"
    )


def test_beside_a_healthy_node_all_is_ok_and_a_left_over_process_is_seen(start, tmp_path):
    configure(tmp_path)
    process = start("node", "--config", str(tmp_path / "node.toml"), "--json")
    before = files_in(tmp_path / "log")
    code, found = doctor(tmp_path)
    assert (code, against(found)) == (0, [])
    held = next(each["seen"] for each in found if each["about"].startswith("frontend.port"))
    assert f"held by node n1 of dc1 (process {process.popen.pid}" in held
    assert "which is ready" in held
    assert files_in(tmp_path / "log") == before
    port = int(process.ready["publish"].rpartition(":")[2])
    with socket.socket() as left_over:
        left_over.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        left_over.bind(("127.0.0.1", port))
        left_over.listen()
        code, found = doctor(tmp_path)
    assert code == 0
    assert any("2 processes share it" in each for each in against(found))


def test_beside_hermes_dev_the_node_is_named_and_found(start, tmp_path, monkeypatch):
    process = start("dev", "--publish-port", "0", "--management-port", "0", "--json")
    first = process.ready["dcs"][0]
    for name in ("publish", "management"):
        section = "frontend" if name == "publish" else name
        port = first[name].rpartition(":")[2]
        monkeypatch.setenv(f"HERMES_{section.upper()}_PORT", port)
    (tmp_path / "node.toml").write_text("[log]\ndirectory = 'x'\n")
    code, found = doctor(tmp_path)
    assert code == 1
    wrong = next(each for each in found if each["grade"] == "FAIL")
    assert "node dc1-1 of dc1, not node node1 of dc1" in wrong["seen"]
    assert "HERMES_DC=dc1 HERMES_NODE=dc1-1 hermes doctor" in wrong["wayOut"]
    monkeypatch.setenv("HERMES_NODE", "dc1-1")
    code, found = doctor(tmp_path)
    log, spool = against(found)
    assert code == 0
    assert log.startswith("WARN x/log.sqlite: not there, and the node runs as process")
    assert spool.startswith(f"WARN {tmp_path}/spools/dc1.dc1-1: not there")


@pytest.mark.kafka
async def test_a_kafka_that_is_set_wrong_and_one_that_is_stopped_are_told(
    make_kafka_cluster, start, tmp_path
):
    cluster = make_kafka_cluster()
    servers = cluster.bootstrap_servers
    configure(tmp_path, f"[kafka.clusters.dc1]\nbootstrap_servers = {servers}\n")
    start("node", "--config", str(tmp_path / "node.toml"), "--json")
    compared = "of this machine's clock (limit 5.0 s)"
    wait_until(
        lambda: any(compared in each["seen"] for each in doctor(tmp_path)[1]), "a status is stored"
    )
    code, found = doctor(tmp_path)
    assert (code, against(found)) == (0, [])
    names = await topics(servers)
    assert "_hermes.metadata" in names
    assert not [each for each in names if "doctor" in each]
    await alter(servers, "_hermes.metadata", {"cleanup.policy": "compact", "retention.ms": "9000"})
    code, found = doctor(tmp_path)
    assert code == 1
    assert {each.partition(": ")[2][:14] for each in against(found)} == {
        "cleanup.policy",
        "kept for 9.0 s",
    }
    cluster.kill()
    code, found = doctor(tmp_path)
    assert code == 1
    assert any("the connection was refused" in each for each in against(found))


async def topics(servers: list[str]) -> list[str]:
    async def ask() -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            return list(await admin.list_topics())
        finally:
            await admin.close()

    return await guest.call(ask)


async def alter(servers: list[str], topic: str, configs: dict[str, str]) -> None:
    async def ask() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
        finally:
            await admin.close()

    await guest.call(ask)
