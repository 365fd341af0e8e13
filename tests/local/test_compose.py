"""The compose launcher without its processes: what it reads, refuses, rewrites and orders."""

import fcntl
import json
import os
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hermes_local import compose_commands, composefile
from hermes_local.compose import COMPOSE_FILE, NODE_WORDS, Topology, kafka_settings
from hermes_local.failures import LaunchFailed

NODES = 10


def parsed(services, variables=None, **top):
    return composefile.parse({"services": services, **top}, variables or {})


# The shipped file


@pytest.mark.slow
def test_the_file_holds_to_the_compose_specification(tmp_path):
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    # Without a network: a proxy where nobody listens would be asked for whatever is not on disk.
    environment = os.environ | {"https_proxy": "http://127.0.0.1:1", "HOME": str(tmp_path)}
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE_FILE.read_text().replace("read_only:", "readonly:"))
    done = subprocess.run(
        [*check, "--output-format", "json", str(COMPOSE_FILE), str(wrong)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert {each["filename"] for each in found["errors"]} == {str(wrong)}
    assert found["parse_errors"] == []


@pytest.fixture
def topology(tmp_path):
    return Topology(data=tmp_path, variables={})


def test_the_shipped_file_becomes_ten_nodes_and_two_brokers(topology):
    assert len(topology.services) == NODES + 2
    assert set(topology.skipped) == {"otel-collector", "prometheus", "grafana"}
    assert {"read_only", "cap_drop", "restart", "networks"} <= set(topology.not_applied)
    assert len(set(topology.addresses.values())) == NODES + 5


def test_a_node_of_the_shipped_file_is_run_as_its_container_would_be(topology):
    node = topology.services["frontend-dc2-1"]
    topology.write(node)
    config = node.folder / "files/etc/hermes/node.toml"
    assert node.plan.words == (*NODE_WORDS, str(config))
    assert node.plan.environment == {
        "HERMES_NODE": "frontend-dc2-1",
        "HERMES_ROLES": "frontend",
        "HERMES_SPOOL_DIRECTORY": str(topology.folder / "volumes/spool-dc2-1/spool"),
        "HERMES_FRONTEND_MEMORY_HOST": node.host,
        "HERMES_FRONTEND_MEMORY_PORT": "8072",
        "HERMES_FRONTEND_MEMORY_URL": f"http://{node.host}:8072",
    }
    assert node.plan.check == (
        sys.executable,
        str(COMPOSE_FILE.parent / "healthcheck.py"),
        f"http://{node.host}:8080/status/ready",
    )
    text = config.read_text()
    assert f'host = "{node.host}"' in text
    assert f'bootstrap_servers = ["{topology.addresses["kafka-dc1"]}:9092"]' in text
    assert "0.0.0.0" not in text
    assert (config.stat().st_mode & 0o077) == 0


def test_a_rewritten_configuration_is_one_that_a_node_takes(topology):
    from hermes_actors import config

    for name, service in topology.services.items():
        if name.startswith("kafka"):
            continue
        topology.write(service)
        path = service.folder / "files/etc/hermes/node.toml"
        node = config.load(path, service.plan.environment)
        assert node.node == name
        assert node.frontend.host == node.management.host == node.status.host == service.host


def test_only_what_was_asked_for_and_what_that_needs_is_run(tmp_path):
    topology = Topology(data=tmp_path, variables={}, wanted=["management-dc2"])
    assert list(topology.services) == ["kafka-dc2", "management-dc2"]
    # The address does not depend on what else is run.
    assert topology.services["management-dc2"].host == topology.addresses["management-dc2"]
    with pytest.raises(LaunchFailed, match="there is no service 'frontend'"):
        Topology(data=tmp_path, variables={}, wanted=["frontend"])


def test_what_compose_publishes_is_known_with_where_it_is_here(tmp_path):
    topology = Topology(data=tmp_path, variables={"PUBLISH_PORT_DC1_1": "9000"})
    node = topology.services["frontend-dc1-1"]
    assert node.plan.published == {"127.0.0.1:9000": f"{node.host}:8080"}


def test_nothing_is_written_before_a_start(topology):
    assert list(topology.folder.iterdir()) == []


# Variables


def test_a_variable_is_put_in_and_else_its_default():
    for variables, image in (({}, "a:1.0"), ({"TAG": ""}, "a:1.0"), ({"TAG": "2"}, "a:2")):
        assert parsed({"a": {"image": "a:${TAG:-1.0}"}}, variables)["a"].image == image


# What is not known


@pytest.mark.parametrize(
    ("tree", "place", "named"),
    [
        ({"services": {}, "include": []}, "compose file", "include"),
        ({"services": {}, "secrets": {}}, "compose file", "secrets"),
        ({"services": {}, "networks": {"n": {"driver": "x"}}}, "compose file", "networks"),
        ({"services": {}, "volumes": {"v": {"external": True}}}, "compose file", "volumes"),
        (["services"], "compose file", "array"),
    ],
)
def test_what_the_launcher_does_not_know_is_an_error_that_names_it(tree, place, named):
    with pytest.raises(LaunchFailed, match=f"^{place}: .*{named}.* supports only what"):
        composefile.parse(tree, {})


def test_any_key_made_up_is_refused_wherever_it_stands_in_the_shipped_file():
    tree = yaml.safe_load(COMPOSE_FILE.read_text())
    places = [("services", name) for name in tree["services"]]
    places += [(), ("services", "frontend-dc1-1", "healthcheck")]
    for place in places:
        # By way of JSON, which takes apart what anchors share.
        changed = json.loads(json.dumps(tree))
        at = changed
        for key in place:
            at = at[key]
        at["made_up"] = 1
        with pytest.raises(LaunchFailed, match="made_up") as refusal:
            composefile.parse(changed, {})
        assert refusal.value.message.startswith(".".join(place[:2]))


def test_a_file_that_is_not_there_or_not_yaml_is_one_sentence(tmp_path):
    with pytest.raises(LaunchFailed, match="cannot be read"):
        composefile.read(tmp_path / "none.yaml", {})
    wrong = tmp_path / "compose.yaml"
    wrong.write_text("a: [")
    with pytest.raises(LaunchFailed, match="not valid YAML"):
        composefile.read(wrong, {})
    wrong.write_text("services: {}")
    (tmp_path / ".env").write_text("A=1")
    with pytest.raises(LaunchFailed, match=r"\.env: Compose would read"):
        composefile.read(wrong, {})


# Order


def order(dependencies, wanted):
    services = {
        name: {
            "image": "x",
            "depends_on": {other: {"condition": "service_healthy"} for other in others},
        }
        for name, others in dependencies.items()
    }
    return composefile.in_order(parsed(services), wanted)


@given(st.data())
def test_each_service_comes_once_after_all_it_depends_on(data):
    names = [f"s{n}" for n in range(data.draw(st.integers(1, 8)))]
    # Only on earlier ones, so that there is no circle.
    dependencies = {
        name: data.draw(st.lists(st.sampled_from(names[:n]), unique=True)) if n else []
        for n, name in enumerate(names)
    }
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1))
    result = order(dependencies, wanted)
    assert len(set(result)) == len(result)
    assert set(wanted) <= set(result)
    for name in result:
        assert all(result.index(other) < result.index(name) for other in dependencies[name])


# Kafka


def test_kafkas_variables_become_its_settings_at_its_own_address(topology):
    service = topology.services["kafka-dc1"]
    settings = kafka_settings(service.plan.environment)
    listens = f"PLAINTEXT://{service.host}:9092"
    assert settings == {
        "advertised.listeners": listens,
        "auto.create.topics.enable": "false",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{service.host}:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"{listens},CONTROLLER://{service.host}:9093",
        "log.dirs": str(topology.folder / "volumes/kafka-dc1"),
        "node.id": "1",
        "offsets.topic.replication.factor": "1",
        "process.roles": "broker,controller",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.replication.factor": "1",
        "unclean.leader.election.enable": "false",
    }
    assert service.plan.check[-1] == f"{service.host}:9092"
    assert service.plan.ports == (9092, 9093)


def test_a_setting_is_named_as_the_image_names_it():
    assert kafka_settings({"KAFKA_A_B__C___D": "1", "A": "2"}) == {"a.b_c-d": "1"}


# Commands


def test_one_up_or_down_of_a_data_folder_is_at_work_at_a_time(tmp_path, monkeypatch):
    data, locks = tmp_path / "data", tmp_path / "locks"
    locks.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(locks))
    seen = []

    def look(folder, *_):
        (lock,) = locks.iterdir()
        with lock.open("a") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(folder)
        raise LaunchFailed("seen")

    for command, reads in ((compose_commands.up, "read_state"), (compose_commands.down, "found")):
        monkeypatch.setattr(compose_commands, reads, look)
        with pytest.raises(LaunchFailed, match="seen"):
            command(data=data)
    assert seen == [data, data]
