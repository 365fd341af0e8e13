"""The first proof: Spark compares both datacentres' logs with the acknowledged messages."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from examples.flights.publishing import Datacentre
from hermes_actors.cli.publishing.publisher import PublishResult
from hermes_local.failures import LaunchFailed

SPARK = (sys.executable, "-m", "hermes_actors", "spark", "reconcile")
_LOST = 1


def spark_is_missing() -> str:
    """Why the reconciliation cannot run here, and the remedy. Empty string if it can."""
    try:
        from hermes_spark.session import require_spark

        require_spark()
    except LaunchFailed as missing:
        return str(missing)
    return ""


def reconcile(
    dcs: Sequence[Datacentre],
    topic: str,
    outcomes: Sequence[PublishResult],
    report: Path,
    console: Console,
) -> bool:
    """Reconcile, and show the result and the report's path. False if something is lost.

    Without Spark, or if the logs are unknown, prints a line that says so and returns True.
    """
    reason = spark_is_missing()
    if reason or not all(dc.log for dc in dcs):
        # The remedy has brackets, and is a command to copy.
        line = f"no reconciliation by Spark: {reason or 'the logs are not named'}"
        console.print(line, markup=False, soft_wrap=True)
        return True
    console.print("reconciling both datacentres' logs with what was acknowledged, by Spark …")
    report.mkdir(parents=True, exist_ok=True)
    listed = report / "acknowledged.ndjson"
    with listed.open("w") as file:
        for each in outcomes:
            fields = {
                "topic": topic,
                "messageId": each.message_id,
                "status": each.status,
                "sentMs": each.sent_ms,
            }
            file.write(json.dumps(fields) + "\n")
    command = [*SPARK, "--acknowledged", str(listed), "--topic", topic, "--output", str(report)]
    for dc in dcs:
        command += ["--dc", f"{dc.name}={dc.log}"]
    sys.stdout.flush()
    done = subprocess.run(command, check=False)
    return done.returncode != _LOST
