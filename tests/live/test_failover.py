"""Nodes that are lost, on a real Kafka under load: others deliver, and nothing is missing.

Short rounds of the benchmark; `python benchmarks/failover.py` shows how long each loss takes.
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

pytestmark = [pytest.mark.kafka, pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(400)]

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "failover.py"
SHORT = (
    "--subscriptions 12 --topics 3 --rate 60 --kills 1 --leaders 1 --stops 1 --still-s 6 "
    "--rest-s 1.5 --after-s 8 --within-s 60"
)
IN_FLIGHT_MAX = 100
STILL_S = 6.0
WITHIN_S = 380.0


def measured(folder: Path, *parts: str) -> dict[str, Any]:
    """The figures of each part. All parts share a fleet, whose start takes longest."""
    file = folder / "figures.json"
    command = [sys.executable, str(BENCHMARK), "--parts", ",".join(parts), *SHORT.split()]
    command += ["--json", str(file), "--folder", str(folder)]
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
    found: dict[str, Any] = json.loads(file.read_text())
    for part in parts:
        assert found[part]["accepted"] > 100
        assert found[part]["missing"] == 0
        if part not in ("broker", "rolling"):
            assert found[part]["lanes"] > 0
            assert found[part]["never"] == 0
    return found


def test_all_that_a_killed_node_delivered_is_delivered_elsewhere(tmp_path: Path) -> None:
    found = measured(tmp_path, "kill")
    assert all(row["back_after_ready_s"] is not None for row in found["kill"]["rounds"])


@pytest.mark.soak
def test_other_losses_move_what_they_must_and_little_comes_twice(tmp_path: Path) -> None:
    found = measured(tmp_path, "leader", "stop", "freeze", "broker", "rolling")
    for part in ("leader", "stop"):
        assert found[part]["duplicates"] <= found[part]["duplicates_bound"]
    assert found["freeze"]["late"] <= IN_FLIGHT_MAX
    assert found["freeze"]["back_s"] is not None
    assert found["broker"]["silent_s"] > STILL_S / 2
    assert found["broker"]["moves"] == 0
    assert found["broker"]["all_again_s"] is not None
    assert 1 <= found["rolling"]["moves_worst"] <= 4
