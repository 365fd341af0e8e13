"""The compose launcher without its processes: what it reads, refuses, rewrites and orders."""

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hermes_local import compose_commands, composefile
from hermes_local.compose import COMPOSE_FILE, Topology
from hermes_local.composefile import Mount, Port
from hermes_local.dockerfile import instructions
from hermes_local.interpolation import ComposeWrong
from hermes_local.kafka_image import plan_of, setting_of

NODES = 10
HERE = Path("/project/deploy/compose.yaml")


def parsed(services, **top):
    return composefile.parse({"services": services, **top}, HERE, {})


def one(**service):
    return parsed({"a": {"image": "x", **service}}).services["a"]


# The shipped file


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
    assert topology.file.name == "hermes"
    assert len(set(topology.addresses.values())) == NODES + 5


def test_a_node_of_the_shipped_file_is_run_as_its_container_would_be(topology):
    node = topology.services["frontend-dc2-1"]
    config = node.folder / "files/etc/hermes/node.toml"
    assert node.command.words == (
        *(sys.executable, "-m", "hermes_actors.cli", "node", "--config"),
        str(config),
    )
    assert node.command.environment == {
        "HERMES_NODE": "frontend-dc2-1",
        "HERMES_ROLES": "frontend",
        "HERMES_SPOOL_DIRECTORY": str(topology.data / "volumes/spool-dc2-1/spool"),
    }
    assert node.check.test == (
        sys.executable,
        str(COMPOSE_FILE.parent / "healthcheck.py"),
        f"http://{node.address}:8080/status/ready",
    )
    text = config.read_text()
    assert f'host = "{node.address}"' in text
    assert f'bootstrap_servers = ["{topology.addresses["kafka-dc1"]}:9092"]' in text
    assert "0.0.0.0" not in text
    # Names without a port are names.
    assert 'replicator = "management-dc2"' in text
    assert (config.stat().st_mode & 0o077) == 0


def test_a_rewritten_configuration_is_one_that_a_node_takes(topology):
    from hermes_actors import config

    for name, service in topology.services.items():
        if name.startswith("kafka"):
            continue
        path = service.folder / "files/etc/hermes/node.toml"
        node = config.load(path, service.command.environment)
        assert node.node == name
        assert node.frontend.host == node.management.host == node.status.host == service.address


def test_only_what_was_asked_for_and_what_that_needs_is_run(tmp_path):
    topology = Topology(data=tmp_path, variables={}, wanted=["management-dc2"])
    assert list(topology.services) == ["kafka-dc2", "management-dc2"]
    # The address does not depend on what else is run.
    assert topology.services["management-dc2"].address == topology.addresses["management-dc2"]
    with pytest.raises(ComposeWrong, match="there is no service 'frontend'"):
        Topology(data=tmp_path, variables={}, wanted=["frontend"])


def test_overrides_reach_one_node_and_name_only_services_that_are_there(tmp_path):
    override = {"frontend-dc1-1": {"HERMES_FRONTEND_SERVER": "hypercorn"}}
    services = Topology(data=tmp_path, variables={}, overrides=override).services
    assert services["frontend-dc1-1"].command.environment["HERMES_FRONTEND_SERVER"] == "hypercorn"
    assert "HERMES_FRONTEND_SERVER" not in services["frontend-dc1-2"].command.environment
    with pytest.raises(ComposeWrong, match="there is no service 'front'"):
        Topology(data=tmp_path, variables={}, overrides={"front": {}})


def test_what_compose_publishes_is_known_with_where_it_is_here(tmp_path):
    from hermes_local.compose_state import published

    topology = Topology(data=tmp_path, variables={"PUBLISH_PORT_DC1_1": "9000"})
    node = topology.services["frontend-dc1-1"]
    assert published(node) == {"127.0.0.1:9000": f"{node.address}:8080"}


# Parsing


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("8080", Port(8080)),
        ("9000:8080", Port(8080, 9000)),
        ("127.0.0.1:9000:8080/tcp", Port(8080, 9000, "127.0.0.1")),
        (
            {"target": 8080, "published": "9000", "host_ip": "127.0.0.1"},
            Port(8080, 9000, "127.0.0.1"),
        ),
    ],
)
def test_ports_are_read_in_every_form(given, expected):
    assert one(ports=[given]).ports == (expected,)


@pytest.mark.parametrize("given", ["8080/udp", "9000-9001:80", "a:1:2", {"published": 1}])
def test_a_port_that_is_not_understood_is_refused(given):
    with pytest.raises(ComposeWrong, match="is not understood"):
        one(ports=[given])


def test_environment_is_read_in_both_forms():
    expected = {"A": "1", "B": "x=y", "C": ""}
    assert one(environment={"A": 1, "B": "x=y", "C": ""}).environment == expected
    assert one(environment=["A=1", "B=x=y", "C="]).environment == expected


@pytest.mark.parametrize("given", [{"A": True}, {"A": None}, ["A"]])
def test_an_environment_that_is_not_whole_is_refused(given):
    with pytest.raises(ComposeWrong, match=r"environment\.A"):
        one(environment=given)


def test_mounts_are_read_in_both_forms():
    volumes = [
        "./a.toml:/etc/a.toml:ro",
        "v:/data",
        {"type": "bind", "source": "../b", "target": "/b", "read_only": True},
    ]
    spec = parsed({"a": {"image": "x", "volumes": volumes}}, volumes={"v": None}).services["a"]
    assert spec.mounts == (
        Mount("/project/deploy/a.toml", "/etc/a.toml", is_bind=True),
        Mount("v", "/data", is_bind=False),
        Mount("/project/b", "/b", is_bind=True),
    )


def test_commands_and_checks_are_read():
    assert one(command="node --config 'a b'").command == ("node", "--config", "a b")
    assert one(command=["node", 1]).command == ("node", "1")
    check = one(healthcheck={"test": ["CMD", "python", "x"], "interval": "1m30s"}).healthcheck
    assert (check.test, check.interval_s, check.retries) == (("python", "x"), 90.0, 3)
    assert one(healthcheck={"test": ["NONE"]}).healthcheck is None
    assert one(healthcheck={"disable": True}).healthcheck is None


@pytest.mark.parametrize("test", ["python x", ["CMD-SHELL", "python x"], ["CMD"]])
def test_a_check_that_needs_a_shell_is_refused(test):
    with pytest.raises(ComposeWrong, match="only the form"):
        one(healthcheck={"test": test})


@pytest.mark.parametrize(
    ("text", "expected"), [("45s", 45), ("1h1m1s", 3661), ("500ms", 0.5), ("1.5s", 1.5)]
)
def test_durations_are_read(text, expected):
    assert one(stop_grace_period=text).stop_grace_s == expected


@pytest.mark.parametrize("text", ["", "5", "5 s", "s", "-1s", 5])
def test_a_duration_without_a_unit_is_refused(text):
    with pytest.raises(ComposeWrong, match="is not a duration"):
        one(stop_grace_period=text)


# What is not known


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ({"services": {}, "include": []}, "include"),
        ({"services": {}, "secrets": {}}, "secrets"),
        ({"services": {}, "networks": {"n": {"driver": "x"}}}, r"networks\.n\.driver"),
        ({"services": {}, "volumes": {"v": {"external": True}}}, r"volumes\.v\.external"),
        ({"services": {"a": {"image": "x", "env_file": "f"}}}, r"services\.a\.env_file"),
        ({"services": {"a": {"image": "x", "extends": "b"}}}, r"services\.a\.extends"),
        (
            {"services": {"a": {"image": "x", "healthcheck": {"cmd": 1}}}},
            r"services\.a\.healthcheck\.cmd",
        ),
        (
            {"services": {"a": {"image": "x", "build": {"secrets": 1}}}},
            r"services\.a\.build\.secrets",
        ),
        (
            {"services": {"a": {"image": "x", "depends_on": {"a": {"required": False}}}}},
            r"services\.a\.depends_on\.a\.required",
        ),
    ],
)
def test_what_the_launcher_does_not_know_is_an_error_that_names_it(tree, named):
    with pytest.raises(ComposeWrong, match=named):
        composefile.parse(tree, HERE, {})


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ({}, r"image: is missing"),
        ({"image": "x", "networks": ["n"]}, "there is no network 'n'"),
        ({"image": "x", "volumes": ["v:/v"]}, "'v' is not named under volumes"),
        ({"image": "x", "volumes": ["/v"]}, "is not understood"),
        ({"image": "x", "volumes": ["./v:v"]}, "does not begin with /"),
        ({"image": "x", "depends_on": ["b"]}, "there is no service 'b'"),
        (
            {"image": "x", "depends_on": {"b": {"condition": "service_completed_successfully"}}},
            "is not known to this launcher",
        ),
        ({"image": "x", "ports": "8080"}, "expected a list"),
    ],
)
def test_a_service_that_cannot_be_is_refused(service, message):
    with pytest.raises(ComposeWrong, match=message):
        parsed({"a": service})


def test_any_key_made_up_is_refused_wherever_it_stands_in_the_shipped_file():
    tree = yaml.safe_load(COMPOSE_FILE.read_text())
    places = [("services", name) for name in tree["services"]]
    places += [(), ("networks", "dc1"), ("volumes", "grafana")]
    places += [("services", "frontend-dc1-1", key) for key in ("build", "healthcheck")]
    for place in places:
        # By way of JSON, which takes apart what anchors share.
        changed = json.loads(json.dumps(tree))
        at = changed
        for key in place:
            at = at[key]
        at["made_up"] = 1
        with pytest.raises(ComposeWrong, match=re.escape(".".join((*place, "made_up")))):
            composefile.parse(changed, COMPOSE_FILE, {})


def test_an_image_that_nobody_knows_and_a_program_that_is_not_in_ours_are_refused(tmp_path):
    file = tmp_path / "compose.yaml"
    for service, message in (
        ({"image": "redis:8"}, "'redis:8' is not known"),
        (node_of("sh", tmp_path), r"services\.a\.entrypoint: 'sh' is not known"),
        (
            {**node_of("hermes", tmp_path), "healthcheck": {"test": ["CMD", "curl", "x"]}},
            r"services\.a\.healthcheck\.test: 'curl' is not known",
        ),
    ):
        file.write_text(yaml.safe_dump({"services": {"a": service}}))
        with pytest.raises(ComposeWrong, match=message):
            Topology(file, data=tmp_path / "data", variables={})


def node_of(entrypoint, folder):
    name = f"Dockerfile.{entrypoint}"
    (folder / name).write_text(f'FROM x\nENTRYPOINT ["{entrypoint}"]\n')
    return {"image": "ours", "build": {"context": ".", "dockerfile": name}}


def test_a_file_that_is_not_there_or_not_yaml_is_one_sentence(tmp_path):
    with pytest.raises(ComposeWrong, match="cannot be read"):
        composefile.read(tmp_path / "none.yaml", {})
    wrong = tmp_path / "compose.yaml"
    wrong.write_text("a: [")
    with pytest.raises(ComposeWrong, match="not valid YAML"):
        composefile.read(wrong, {})
    wrong.write_text("services: {}")
    (tmp_path / ".env").write_text("A=1")
    with pytest.raises(ComposeWrong, match=r"\.env: is not read"):
        composefile.read(wrong, {})


# Order


def order(dependencies, wanted):
    services = {
        name: {"image": "x", "depends_on": list(others)} for name, others in dependencies.items()
    }
    return composefile.in_order(parsed(services).services, wanted)


def test_a_circle_is_shown():
    with pytest.raises(ComposeWrong, match="a → b → c → a"):
        order({"a": "b", "b": "c", "c": "a"}, ["a"])


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


# Dockerfiles


def test_a_dockerfile_is_read_with_continued_lines_and_without_comments():
    text = '# FROM nothing\nFROM a AS b\nrun x \\\n    # why\n    && y\nCMD ["z"]\n'
    assert instructions(text) == [("FROM", "a AS b"), ("RUN", "x && y"), ("CMD", '["z"]')]


# Kafka


def kafka_spec(**changes):
    spec = composefile.read(COMPOSE_FILE, {}).services["kafka-dc1"]
    environment = {**spec.environment, **changes}
    return composefile.ServiceSpec(
        spec.name,
        spec.image,
        environment={name: value for name, value in environment.items() if value is not None},
    )


def test_kafkas_environment_becomes_its_settings():
    plan = plan_of(kafka_spec())
    assert (plan.port, plan.controller_port, plan.heap_mb) == (9092, 9093, 512)
    assert plan.cluster_id == "aGVybWVzLWRjMS1rYWZrYQ"
    assert plan.log_dirs == "/var/lib/kafka/data"
    assert plan.settings == {
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }


def test_a_setting_is_named_as_the_image_names_it():
    assert setting_of("KAFKA_A_B__C___D") == "a.b_c-d"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KAFKA_PROCESS_ROLES", "broker"),
        ("KAFKA_NODE_ID", "2"),
        ("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9092"),
        ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT"),
        ("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:9092"),
        ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@kafka-dc1:9093,2@kafka-dc2:9093"),
        ("CLUSTER_ID", None),
        ("KAFKA_LOG_DIRS", None),
        ("OTHER", "1"),
    ],
)
def test_a_kafka_that_the_launcher_cannot_run_is_refused_by_the_variable(name, value):
    with pytest.raises(ComposeWrong, match=name):
        plan_of(kafka_spec(**{name: value}))


def test_one_up_or_down_of_a_folder_is_at_work_at_a_time(tmp_path, capsys):
    with (tmp_path / "lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for command in (compose_commands.up, compose_commands.down):
            with pytest.raises(ComposeWrong, match=f"{tmp_path}: another `hermes compose up`"):
                command(data=tmp_path)
    compose_commands.down(data=tmp_path, removes_volumes=False)
    compose_commands.down(data=tmp_path / "none", removes_volumes=False)
    assert not (tmp_path / "none").exists()
    assert not (tmp_path / "lock").exists()
    assert capsys.readouterr().out.splitlines() == [
        f"nothing is up from {tmp_path}",
        f"nothing is up from {tmp_path}/none",
    ]
