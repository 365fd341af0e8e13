"""What a broker is told: settings, keys, places. No process is started."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors import config
from hermes_local import kafka_commands
from hermes_local import settings as files
from hermes_local.failures import LaunchFailed
from hermes_local.kafka import Cluster
from hermes_local.lifecycle import Plan, State
from hermes_local.probe import brokers_of

PLANS = [
    Plan(f"broker-{node}", "127.0.0.1", (100 + node, 200 + node, 300 + node)) for node in (1, 2, 3)
]


def settings_of(node: int, folder, plans=PLANS[:1], settings=None, **how: str) -> dict[str, str]:
    return files.broker_settings(node, plans, folder, settings=settings or {}, **how)


def parsed(text: str) -> dict[str, str]:
    """As java.util.Properties reads it."""
    found = {}
    for line in text.splitlines():
        parts = [""]
        at = 0
        while at < len(line):
            if line[at] == "\\":
                at += 1
                if line[at] == "u":
                    parts[-1] += chr(int(line[at + 1 : at + 5], 16))
                    at += 4
                else:
                    parts[-1] += {"n": "\n", "r": "\r", "t": "\t"}.get(line[at], line[at])
            elif line[at] == "=" and len(parts) == 1:
                parts.append("")
            else:
                parts[-1] += line[at]
            at += 1
        key, value = (part.encode("utf-16", "surrogatepass").decode("utf-16") for part in parts)
        found[key] = value
    return found


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from("\n\t"))


@given(st.dictionaries(TEXT, TEXT))
def test_any_setting_survives_the_file(settings):
    text = files.rendered(settings)
    assert text.isascii()
    assert parsed(text) == settings


def test_one_broker_has_one_copy_of_all_and_three_have_three(tmp_path):
    one = settings_of(1, tmp_path)
    three = settings_of(2, tmp_path, PLANS)
    for name in (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ):
        assert (one[name], three[name]) == ("1", "3")
    assert (one["min.insync.replicas"], three["min.insync.replicas"]) == ("1", "2")
    assert three["node.id"] == "2"
    assert three["controller.quorum.voters"] == ("1@127.0.0.1:201,2@127.0.0.1:202,3@127.0.0.1:203")


def test_given_settings_win_but_not_over_the_structure(tmp_path):
    made = settings_of(1, tmp_path, settings={"broker.session.timeout.ms": "9000"})
    assert made["broker.session.timeout.ms"] == "9000"
    with pytest.raises(LaunchFailed, match=r"settings\.log\.dirs: the launcher sets it itself"):
        settings_of(1, tmp_path, settings={"log.dirs": "/x"})


def test_clients_are_told_the_proxy_and_brokers_keep_a_way_past_it(tmp_path):
    made = settings_of(1, tmp_path, advertised="127.0.0.1:9999")
    assert "CLIENTS://127.0.0.1:9999" in made["advertised.listeners"].split(",")
    assert made["inter.broker.listener.name"] == "BROKERS"
    assert "BROKERS://127.0.0.1:301" in made["advertised.listeners"].split(",")


@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), unique_by=lambda pair: pair[0]))
def test_the_ids_of_any_metadata_answer_are_found(brokers):
    host, rack = b"127.0.0.1", b"a"
    answer = struct.pack(">ii", 1, len(brokers))
    for node, has_rack in brokers:
        answer += struct.pack(">ih", node, len(host)) + host + struct.pack(">i", 9092)
        answer += struct.pack(">h", len(rack)) + rack if has_rack else struct.pack(">h", -1)
    assert brokers_of(answer) == sorted(node for node, _ in brokers)


def test_a_folder_remembers_its_brokers_and_ports(tmp_path):
    cluster = Cluster(tmp_path, brokers=3)
    plans = [broker.plan for broker in cluster.brokers]
    State({plan.name: plan for plan in plans}).write(tmp_path)
    assert [broker.plan for broker in Cluster(tmp_path).brokers] == plans
    moved = Cluster(tmp_path, brokers=3, ports=[1, 2, 3])
    assert moved.bootstrap_servers == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]
    assert [broker.plan.ports[1:] for broker in moved.brokers] == [plan.ports[1:] for plan in plans]


def test_a_port_for_some_brokers_only_is_refused(tmp_path):
    with pytest.raises(LaunchFailed, match="ports: 2 for 3 brokers"):
        Cluster(tmp_path, brokers=3, ports=[1, 2])


def test_a_folder_of_another_size_is_refused(tmp_path):
    State({plan.name: plan for plan in PLANS}).write(tmp_path)
    with pytest.raises(LaunchFailed, match="holds a cluster of 3 brokers, not 1"):
        Cluster(tmp_path, brokers=1)


def test_a_damaged_memory_of_a_folder_is_named(tmp_path):
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(LaunchFailed, match=r"state\.json is damaged"):
        Cluster(tmp_path)


def test_how_a_node_is_told_of_a_cluster_can_be_pasted_into_a_shell_and_is_taken():
    for name in ("dc1", "dc2", "us-east", "DC_7"):
        *variables, command, verb = kafka_commands._use(name, "127.0.0.1:9092").split()
        assert (command, verb) == ("hermes", "node")
        environment = dict(each.split("=") for each in variables)
        assert all(each.isidentifier() for each in environment)
        loaded = config.load(None, environment)
        assert loaded.kafka.clusters[loaded.dc].bootstrap_servers == ["127.0.0.1:9092"]
