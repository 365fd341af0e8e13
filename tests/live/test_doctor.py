"""`hermes doctor` beside real nodes, and beside a real Kafka."""

import json
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
        and not each["about"].endswith("event loop")
    ]


def configure(folder: Path, more: str = "") -> None:
    publish, management = free_ports(2)
    (folder / "node.toml").write_text(
        f"node = 'n1'\n[frontend]\nport = {publish}\nreuse_port = true\n"
        f"graceful_shutdown_initial_wait_ms = 0\n[management]\nport = {management}\n"
        f"[spool]\ndirectory = '{folder}/spool'\n[log]\ndirectory = '{folder}/log'\n{more}"
    )


def test_a_healthy_node_is_ok_and_another_one_on_its_port_is_not(start, tmp_path, monkeypatch):
    configure(tmp_path)
    start("node", "--config", str(tmp_path / "node.toml"), "--json")
    code, found = doctor(tmp_path)
    assert (code, against(found)) == (0, [])
    assert any("runs and is ready" in each["seen"] for each in found)
    monkeypatch.setenv("HERMES_NODE", "n2")
    code, found = doctor(tmp_path)
    assert code == 1
    (wrong,) = [each for each in found if each["grade"] == "FAIL"]
    assert "node n1 of dc1 runs here" in wrong["seen"]
    assert "HERMES_DC=dc1 HERMES_NODE=n1 hermes doctor" in wrong["wayOut"]


@pytest.mark.kafka
async def test_a_kafka_that_is_set_wrong_and_one_that_is_stopped_are_told(
    make_kafka_cluster, start, tmp_path
):
    cluster = make_kafka_cluster()
    servers = cluster.bootstrap_servers
    configure(tmp_path, f"[kafka.clusters.dc1]\nbootstrap_servers = {servers}\n")
    start("node", "--config", str(tmp_path / "node.toml"), "--json")
    wait_until(
        lambda: any("clocks agree" in each["seen"] for each in doctor(tmp_path)[1]),
        "a status is stored",
    )
    code, found = doctor(tmp_path)
    assert (code, against(found)) == (0, [])
    await alter(servers, "_hermes.metadata", {"cleanup.policy": "compact"})
    code, found = doctor(tmp_path)
    (warning,) = [each for each in found if each["check"] == "start"]
    assert "_hermes.metadata in Kafka of dc1 deletes messages too early" in warning["seen"]
    assert "kafka-configs --alter" in warning["wayOut"]
    assert code == 0
    cluster.kill()
    code, found = doctor(tmp_path)
    assert code == 1
    assert any("the connection was refused" in each for each in against(found))


async def alter(servers: list[str], topic: str, configs: dict[str, str]) -> None:
    async def ask() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)])
        finally:
            await admin.close()

    await guest.call(ask)
