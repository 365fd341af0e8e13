"""`hermes sizing`: what the calculation promises, what it prints, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from hermes_actors.cli.sizing import measured
from hermes_actors.cli.sizing.calculation import BROKERS_MIN, NODES_MIN, PARTITIONS_MIN, sizing

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "helm" / "hermes-actors"
PAGE = (ROOT / "docs" / "sizing.md").read_text()
COMMAND = next(line.split()[1:] for line in PAGE.splitlines() if line.startswith("    hermes"))

Found = dict[str, Any]

LOAD: dict[str, st.SearchStrategy[Any]] = {
    "rate": st.floats(0.01, 1e6),
    "size": st.floats(1, 1e6),
    "topics": st.integers(1, 5_000),
    "subscriptions": st.integers(20, 10_000),
    "fanout": st.floats(0, 20),
    "busiest": st.floats(1, 100),
    "endpoint_ms": st.floats(0, 1e4),
    "retention_days": st.floats(0.01, 100),
    "replication": st.integers(1, 5),
    "spool_hours": st.floats(0, 24),
    "headroom": st.floats(0, 90),
}
loads = st.fixed_dictionaries(
    LOAD
    | {
        "datacentres": st.integers(1, 5),
        "publishing": st.sampled_from(["single", "batch", "grpc"]),
    }
)


def memory_mib(pod: Found) -> int:
    return int(pod["memory"].removesuffix("Mi"))


def cpu_cores(pod: Found) -> float:
    return int(pod["cpu"].removesuffix("m")) / 1_000


def amounts(found: Found) -> dict[str, tuple[float, int]]:
    """What can only grow with the load, and how much of it is rounding up."""
    pods = {pod["role"]: pod for pod in found["pods"]}
    frontends, brokers = pods["frontend"]["nodes"] - 1, found["brokers"] - 1
    return {
        **{f"{role} nodes": (pod["nodes"], 0) for role, pod in pods.items()},
        **{f"{role} cores": (pod["cores"], 0) for role, pod in pods.items()},
        "spooled": (found["spoolEntries"] * frontends, frontends),
        "brokers": (found["brokers"], 0),
        "replicas": (found["replicas"], 0),
        "partitions": (found["busiestPartitions"], 0),
        "in": (found["brokerInMBPerS"] * brokers, brokers),
        "out": (found["brokerOutMBPerS"] * brokers, brokers),
        "in flight": (found["inFlight"], 0),
    }


@pytest.mark.parametrize("name", LOAD)
@given(data=st.data(), load=loads)
def test_more_of_anything_never_needs_less(name: str, data: st.DataObject, load: Found) -> None:
    less, more = sorted((load[name], data.draw(LOAD[name])))
    before, after = (amounts(sizing(**load | {name: each})) for each in (less, more))
    fewer = {key for key, (was, _) in before.items() if sum(after[key]) < was * (1 - 1e-9)}
    assert fewer == set()


@given(load=loads)
def test_each_role_survives_the_loss_of_one_node(load: Found) -> None:
    found = sizing(**load)
    for pod in found["pods"]:
        survivors = pod["nodes"] - 1
        if pod["role"] != "management":
            assert pod["cores"] <= survivors * (1 - load["headroom"] / 100) + 1e-9
        assert pod["cores"] <= survivors * cpu_cores(pod)
    per_s = load["rate"] / load["datacentres"]
    frontends = found["pods"][0]["nodes"] - 1
    assert found["spoolEntries"] * frontends >= per_s * 3_600 * load["spool_hours"] * (1 - 1e-9)
    consumers = found["pods"][1]
    assert consumers["nodes"] >= consumers["nodesMin"] > load["subscriptions"] * 2 / 1_000
    assert consumers["nodesMin"] > found["busiestNodes"] or found["busiestNodes"] == 2
    assert found["brokers"] >= load["replication"]


@given(load=loads)
def test_one_datacentre_can_carry_all(load: Found) -> None:
    alone = sizing(**load | {"datacentres": 1})
    assert sizing(**load, one_carries_all=True) == alone
    shared, whole = amounts(sizing(**load)), amounts(alone)
    assert all(was <= sum(whole[key]) * (1 + 1e-9) for key, (was, _) in shared.items())


@given(load=loads)
def test_nothing_is_below_the_safe_minimum(load: Found) -> None:
    found = sizing(**load)
    for pod in found["pods"]:
        assert pod["nodes"] >= NODES_MIN
        assert memory_mib(pod) * measured.MIB >= measured.BASE_BYTES
        assert cpu_cores(pod) > 0
    assert found["brokers"] >= max(BROKERS_MIN, load["replication"])
    assert found["topicPartitions"] >= PARTITIONS_MIN
    assert found["busiestPartitions"] >= 2 * found["busiestNodes"] >= 4


def test_the_values_for_helm_are_those_of_the_table(hermes: Callable[..., Result]) -> None:
    found = json.loads(hermes(*COMMAND, "--json").stdout)
    table = hermes(*COMMAND).stdout
    values = yaml.safe_load(table.partition("Helm chart:\n")[2])
    assert values == found["values"]
    assert "AMD EPYC" in table
    for pod in found["pods"]:
        shown = next(line for line in table.splitlines() if line.startswith(pod["role"]))
        assert shown.split() == [
            str(pod[key] or "-") for key in ("role", "nodes", "cpu", "memory", "disk")
        ]
        role = values[pod["role"]]
        assert role["replicas"] == pod["nodes"]
        if pod["role"] != "management":
            scaled = role["autoscaling"]
            assert 2 <= scaled["minReplicas"] <= role["replicas"] < scaled["maxReplicas"]
        limits, requests = role["resources"]["limits"], role["resources"]["requests"]
        assert requests == {"cpu": pod["cpu"], "memory": pod["memory"]}
        assert memory_mib(limits) >= memory_mib(requests)
    assert values["config"]["spool"]["entries_max"] == found["spoolEntries"]
    jsonschema_rs.validate(json.loads((CHART / "values.schema.json").read_text()), values)
    assert values["config"]["spool"]["disk_bytes_max"] >= found["spoolBytes"]


def test_the_page_shows_what_the_command_prints(hermes: Callable[..., Result]) -> None:
    page = PAGE.partition("2,000 services\n")[2].partition("\n\nCPU")[0].replace(":", "")
    page = page.replace(",", "").replace(" MiB", "Mi").replace(" GiB", "Gi").lower()
    heads, _, *rows = (line.split("|")[1:4] for line in page.strip().splitlines())
    for column, command in ((1, ["sizing", *heads[1].strip(" `").split()]), (2, COMMAND)):
        table = hermes(*command).stdout.partition("\n\n")[0].replace(" -", "").lower()
        shown = table.replace("frontend ", "frontends ").splitlines()[1:]
        assert [row.split() for row in shown] == [(row[0] + row[column]).split() for row in rows]


def test_a_topic_too_busy_for_the_defaults_comes_with_its_commands(
    hermes: Callable[..., Result],
) -> None:
    busy = ["sizing", "--rate", "30000", "--busiest", "100", "--subscriptions", "3"]
    found = json.loads(hermes(*busy, "--json").stdout)
    shown = hermes(*busy).stdout
    assert f"--alter --topic TOPIC --partitions {found['busiestPartitions']}\n" in shown
    assert f"\nhermes balancer constrain TOPIC --nodes {found['busiestNodes']}\n" in shown
    assert "balancer constrain" not in hermes(*COMMAND).stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "Missing option '--rate'"),
        (
            "--rate -5",
            "'--rate': -5 is not a number from 0.001 to 1,000,000,000; give messages/s at peak",
        ),
        ("--rate 0", "'--rate': 0 is not a number"),
        ("--rate nan", "'--rate': nan is not a number"),
        ("--rate 5 --topics 0", "'--topics': 0 is not a number from 1"),
        ("--rate 5 --topics 2.5", "'--topics': 2.5 is not a number"),
        (
            "--rate 5 --size 1parsec",
            "'--size': 1parsec is not a number from 1 to 2,097,152; give a",
        ),
        ("--rate 5 --size 5MB", "'--size': 5MB is not a number from 1 to 2,097,152"),
        ("--rate 5 --fanout 3", "--fanout: 3 is more than --subscriptions"),
        ("--rate 5 --busiest 101", "'--busiest': 101 is not a number from 0 to 100; give percent"),
        ("--rate 5 --headroom 95", "'--headroom': 95 is not a number from 0 to 90"),
        ("--rate 5 --publishing fax", "'--publishing'"),
    ],
)
def test_nonsense_is_refused_with_the_option_the_reason_and_a_way_out(
    hermes: Callable[..., Result], words: str, said: str
) -> None:
    result = hermes("sizing", *words.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
