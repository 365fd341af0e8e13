"""The benchmarks run, on so little that their figures say nothing: a change elsewhere broke one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SMALL = {
    "actors": (["--rounds", "1"], "ask, 100 at a time"),
    "append": (["--rounds", "1", "--directory", "{folder}"], "EmbeddedLog"),
    "deliver": (["--messages", "500", "--log", "embedded"], "whole path"),
    "fsyncs": (["--messages", "50"], "granian"),
    "publish": (["--seconds", "0.3", "--connections", "4", "--bytes", "100"], "granian"),
    "publish_kafka": (["--seconds", "0.3", "--connections", "4"], "granian"),
    "idle_subscriptions": (["--subscriptions", "4", "--topics", "2", "--seconds", "1"], "aiokafka"),
    "stalled_partition": (["--rounds", "2"], "p99 moves by"),
}
"""Arguments, and a word of the table's last part."""
ON_KAFKA = ["publish_kafka", "idle_subscriptions", "stalled_partition"]


def may_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    traced = ["strace", "-f", "-o", os.devnull, "true"]
    return subprocess.run(traced, capture_output=True, check=False).returncode == 0


def run(name: str, folder: Path) -> None:
    arguments, word = SMALL[name]
    ended = subprocess.run(
        [
            sys.executable,
            str(ROOT / "benchmarks" / f"{name}.py"),
            *(argument.format(folder=folder) for argument in arguments),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert word in ended.stdout


@pytest.mark.parametrize("name", sorted(SMALL.keys() - set(ON_KAFKA)))
def test_a_benchmark_prints_its_table(name: str, tmp_path: Path) -> None:
    if name == "fsyncs" and not may_trace():
        pytest.skip("strace is not installed, or may not trace here")
    run(name, tmp_path)


@pytest.mark.kafka
@pytest.mark.parametrize("name", ON_KAFKA)
def test_a_benchmark_on_kafka_prints_its_table(name: str, tmp_path: Path) -> None:
    run(name, tmp_path)


def test_each_benchmark_is_run_by_make_bench_and_by_these_tests() -> None:
    names = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    (line,) = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "for name in" in line
    ]
    assert set(line.partition(" in ")[2].partition(";")[0].split()) == names == set(SMALL)
