"""Nodes that are lost, on a real Kafka under load: others deliver, and nothing is missing.

Short rounds of the benchmark, with bounds of a machine that has other things to do;
`python benchmarks/failover.py` shows the usual figures.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "failover.py"
SHORT = (
    "--parts kill,leader,stop,freeze,broker,rolling --subscriptions 12 --topics 3 --rate 60 "
    "--kills 1 --leaders 1 --stops 1 --still-s 6 --rest-s 1.5 --after-s 8 --within-s 30"
)
ELSEWHERE_WITHIN_S = 15.0
STOPPED_WITHIN_S = 5.0
RESUMED_WITHIN_S = 20.0
IN_FLIGHT_MAX = 100
STILL_S = 6.0
WITHIN_S = 380.0


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of all parts: they share a fleet, whose start is what costs."""
    folder = tmp_path_factory.mktemp("failover")
    command = [sys.executable, str(BENCHMARK), *SHORT.split()]
    command += ["--json", str(folder / "figures.json"), "--folder", str(folder)]
    # In a session of its own: what it has started ends with it, also when it takes too long.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            shown, errors = process.communicate(timeout=WITHIN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    print(shown)  # noqa: T201 -- for people: pytest -s shows it
    found: dict[str, Any] = json.loads((folder / "figures.json").read_text())
    return found


PARTS = ("kill", "leader", "stop", "freeze", "broker", "rolling")


@pytest.mark.parametrize("part", PARTS)
def test_nothing_that_was_accepted_is_missing(figures: dict[str, Any], part: str) -> None:
    assert figures[part]["accepted"] > 100
    assert figures[part]["missing"] == 0


@pytest.mark.parametrize("part", ["kill", "leader"])
def test_all_of_a_killed_nodes_work_is_delivered_elsewhere(
    figures: dict[str, Any], part: str
) -> None:
    found = figures[part]
    assert found["lanes"] > 0
    assert found["never"] == 0
    assert found["elsewhere_worst_s"] < ELSEWHERE_WITHIN_S
    assert found["duplicates"] <= found["duplicates_bound"]
    assert all(row["back_after_ready_s"] is not None for row in found["rounds"])


def test_a_stopped_nodes_work_moves_without_waiting_for_a_lease(figures: dict[str, Any]) -> None:
    found = figures["stop"]
    assert found["lanes"] > 0
    assert found["never"] == 0
    assert found["waited_worst_s"] < STOPPED_WITHIN_S
    assert found["duplicates"] <= found["duplicates_bound"]


def test_a_node_that_stood_still_sends_nothing_for_its_old_life_and_comes_back(
    figures: dict[str, Any],
) -> None:
    found = figures["freeze"]
    assert found["lanes"] > 0
    assert found["never"] == 0
    assert found["late"] <= IN_FLIGHT_MAX
    assert found["back_s"] is not None


def test_a_coordination_log_that_stands_still_moves_nothing(figures: dict[str, Any]) -> None:
    found = figures["broker"]
    assert found["silent_s"] > STILL_S / 2
    assert found["moves"] == 0
    assert found["all_again_s"] is not None
    assert found["all_again_s"] < RESUMED_WITHIN_S


def test_a_rolling_restart_moves_each_task_a_few_times_at_most(figures: dict[str, Any]) -> None:
    assert 1 <= figures["rolling"]["moves_worst"] <= 4
