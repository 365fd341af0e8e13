"""The benchmarks run, on so little that their figures say nothing: a change elsewhere broke one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(660)]

ROOT = Path(__file__).parents[2]
SMALL = {
    "actors": ("--rounds 1", "tell, read in batches"),
    "append": ("--rounds 1 --directory {folder}", "EmbeddedLog"),
    "balancer": (
        ("--nodes 5 --seeds 1 --hours 0.5 --json {folder}/figures.json --svg {folder}/figures.svg"),
        "One node at half its speed",
    ),
    "filters": ("--messages 3000", "by library"),
    "fsyncs": ("--messages 50", "201 before its fsync"),
    "spool": (
        "--rounds 1 --seconds 0.05 --entries 500 --directory {folder}",
        "bytes of memory each",
    ),
    "schemas": ("--rounds 1 --seconds 0.3 --connections 4 --cases 30", "checking"),
    "telemetry": (
        "--rounds 1 --seconds 0.5 --connections 4 --subscriptions 100",
        "push of 100 subscriptions",
    ),
    "over_grpc": ("--seconds 1 --drained 1000", "live, 100 a frame"),
    "hedging": ("--seconds 2 --seeds 1", "adaptive"),
    "publish": (
        (
            "--logs embedded --seconds 1.2 --bytes 100 --connections 4 "
            "--batch-connections 1 --chunk 20 --rates 300 --spacing constant "
            "--json {folder}/figures.json --svg {folder}/figures.svg"
        ),
        "Open loop",
    ),
}
"""Arguments, and a word of the table's last part."""
DELIVER = (
    "--messages 500 --path-log embedded --rates 100 --seconds 0.5 --subscriptions 12 "
    "--isolation-rate 200 --rounds 1 --slow-ms 200 --crash-rate 200 --crash-seconds 2 "
    "--json {folder}/figures.json"
)
ON_KAFKA = {
    "publish": (
        (
            "--logs kafka --seconds 0.3 --bytes 100 --protocols http1 "
            "--connections 4 --rates 50% --starts 1 --delivered"
        ),
        "first answered publish",
    ),
    "idle_subscriptions": ("--subscriptions 4 --topics 2 --seconds 1", "aiokafka"),
    "stalled_partition": ("--rounds 2", "p99 moves by"),
    "sizing": ("--rate 100 --topics 2 --subscriptions 2 --seconds 1", "planned_cores"),
}


ON_SPARK = {
    "spark": ("--records 2000 --fold 4000 --logs embedded", "latency"),
}


def may_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    traced = ["strace", "-f", "-o", os.devnull, "true"]
    return subprocess.run(traced, capture_output=True, check=False).returncode == 0


def run(name: str, small: tuple[str, str], folder: Path) -> None:
    arguments, word = small
    ended = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks" / f"{name}.py"),
            *(each.format(folder=folder) for each in arguments.split()),
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert word in ended.stdout


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(SMALL.keys() - {"balancer", "publish"}))
def test_a_benchmark_prints_its_table(name: str, tmp_path: Path) -> None:
    if name == "over_grpc" and shutil.which("go") is None:
        pytest.skip("no go on the PATH, so its client cannot be built")
    if name == "fsyncs" and not may_trace():
        pytest.skip("strace is not installed, or may not trace here")
    run(name, SMALL[name], tmp_path)


def test_a_short_benchmark_measures_what_is_published(tmp_path: Path) -> None:
    """All others are run by `make soak`."""
    short = "--logs embedded --seconds 0.3 --bytes 100 --connections 4 --protocols http1 --rates 50"
    run(
        "publish",
        (f"{short} --spacing constant --json {tmp_path}/figures.json", "Open loop"),
        tmp_path,
    )
    figures = json.loads((tmp_path / "figures.json").read_text())
    for rows in (figures["closed"], figures["open"]):
        (row,) = (each for each in rows if each["log"] == "embedded")
        assert row["messages_per_s"] > 0
        assert row["errors"] == {}


@pytest.mark.soak
def test_publish_measures_each_protocol_in_both_loops_and_draws_it(tmp_path: Path) -> None:
    run("publish", SMALL["publish"], tmp_path)
    figures = json.loads((tmp_path / "figures.json").read_text())
    for rows in (figures["closed"], figures["open"]):
        measured = {row["protocol"]: row for row in rows if row["log"] == "embedded"}
        assert set(measured) == {"http1", "http2", "batch"}
        for row in measured.values():
            assert row["messages_per_s"] > 0
            assert row["errors"] == {}
            assert row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    picture = ET.parse(tmp_path / "figures.svg").getroot()
    # Three protocols and two empty apps, in three panels.
    assert len(picture.findall(".//{*}polyline")) == 15


@pytest.mark.soak
def test_balancer_compares_the_planner_with_others_and_draws_it(tmp_path: Path) -> None:
    run("balancer", SMALL["balancer"], tmp_path)
    figures = json.loads((tmp_path / "figures.json").read_text())
    over = {row["algorithm"]: row["over_ideal_worst"] for row in figures["even"]}
    assert 1 <= over["ours, 1 round"] <= 1.02 < over["start: by count"]
    joined = {row["algorithm"]: row for row in figures["joins"]}
    assert 0 < joined["ours"]["least"] <= joined["ours"]["moves"]
    assert all(row["moves_an_hour"] >= 0 for row in figures["days"])
    picture = ET.parse(tmp_path / "figures.svg").getroot()
    assert len(picture.findall(".//{*}g")) == len(figures["even"])


@pytest.mark.soak
@pytest.mark.parametrize("log", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_deliver_measures_each_part_and_a_killed_node_loses_nothing(
    log: str, tmp_path: Path
) -> None:
    run("deliver", (f"--logs {log} {DELIVER}", "killed at"), tmp_path)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [row["what"] for row in figures["path"]] == ["bare sender", "whole path"]
    (sustained,) = figures["sustained"]
    assert sustained["deliveries"] == 500
    assert sustained["more_than_once"] == 0
    (latency,) = figures["latency"]
    assert latency["missing"] == 0
    assert latency["published"]["errors"] == {}
    assert latency["p50_ms"] <= latency["p99_ms"] <= latency["max_ms"]
    new, resumed = figures["start"]
    assert new["missed"] == 0
    assert resumed["max_ms"] > 0
    (isolation,) = figures["isolation"]
    assert [each["is_calm"] for each in isolation["rounds"]] == [True, False]
    assert all(each["deliveries"] > 0 for each in isolation["rounds"])
    (crash,) = figures["crash"]
    assert crash["acknowledged"] > 200
    assert crash["lost"] == 0
    # One second of traffic until the next commit, as much for a machine that is late with it, and
    # what was under way.
    assert crash["twice"] <= 2 * 200 + 100


@pytest.mark.kafka
@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(ON_KAFKA))
def test_a_benchmark_on_kafka_prints_its_table(name: str, tmp_path: Path) -> None:
    run(name, ON_KAFKA[name], tmp_path)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(ON_SPARK))
def test_a_benchmark_on_spark_prints_its_table(name: str, tmp_path: Path) -> None:
    run(name, ON_SPARK[name], tmp_path)


def test_each_benchmark_is_run_by_make_bench_and_by_these_tests() -> None:
    names = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    (line,) = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "for name in" in line
    ]
    listed = set(line.partition(" in ")[2].partition(";")[0].split())
    assert listed == names == set(SMALL) | set(ON_KAFKA) | set(ON_SPARK) | {"deliver", "failover"}
