"""Starts the demonstration's processes and always ends every one of them, by its id."""

import contextlib
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Longer than draining and ending twelve processes takes.
ENDS_WITHIN_S = 90.0
TOPOLOGY_READY_WITHIN_S = 240.0
POLL_S = 0.05
CONSUMERS = 3
"""Delivering nodes of each datacentre, if all are in one process."""


class DidNotStart(Exception):
    """A process ended, or was silent, before it was ready. The message has its last words."""


DEV = (sys.executable, "-m", "hermes_actors", "dev")


@dataclass
class Child:
    """One process in its own session, so that Ctrl-C reaches only the demonstration.

    Its output goes to files, because a pipe that nobody reads would block it one day.
    """

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    log: Path
    ready: dict[str, Any]

    @classmethod
    def start(cls, name: str, command: list[str], stem: Path, within_s: float) -> "Child":
        """Start it and wait for its ready line, JSON on stdout. Raises DidNotStart."""
        output, log = stem.with_suffix(".out"), stem.with_suffix(".log")
        with output.open("wb") as out, log.open("wb") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        child = cls(name, process, output, log, {})
        try:
            child.ready = child._ready_line(within_s)
        except BaseException:
            child.end()
            raise
        return child

    def _ready_line(self, within_s: float) -> dict[str, Any]:
        """The first line of its output, which must be a JSON object."""
        for _ in range(int(within_s / POLL_S)):
            line, line_end, _ = self.output.read_bytes().partition(b"\n")
            if line_end:
                break
            if self.process.poll() is not None:
                raise DidNotStart(f"{self.name} ended:\n{self.last_words()}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)
        else:
            raise DidNotStart(
                f"{self.name} was not ready within {within_s:.0f} s:\n{self.last_words()}"
            )
        try:
            ready = json.loads(line)
        except ValueError as error:
            raise DidNotStart(f"{self.name} printed no ready line: {line[:200]!r}") from error
        assert isinstance(ready, dict)
        return ready

    def last_words(self) -> str:
        """The end of its stderr."""
        return self.log.read_text(errors="replace")[-2_000:].strip()

    def end(self) -> None:
        """End it with SIGTERM, then SIGKILL; returns when it has ended."""
        # Too long a drain must not hold up the demonstration, and no process may be left.
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            self.process.send_signal(signal_number)
            try:
                self.process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                continue


def start_sinks(directory: Path) -> Child:
    """Start the three subscribers."""
    command = [sys.executable, str(Path(__file__).with_name("sinks.py")), str(directory)]
    return Child.start("the sinks process", command, directory / "sinks", 20.0)


def start_cluster(dev: tuple[str, ...], directory: Path) -> Child:
    """Start two datacentres on free ports in one process."""
    command = [*dev, "--json", "--consumers", str(CONSUMERS)]
    command += ["--publish-port", "0", "--management-port", "0", "--data", str(directory / "data")]
    return Child.start("hermes dev", command, directory / "dev", 30.0)


def start_topology(file: Path, network: str, directory: Path) -> Child:
    """Start the two datacentres of a compose file, on Kafka, each service as a process."""
    command = [sys.executable, str(Path(__file__).with_name("topology.py")), str(file)]
    command += ["--data", str(directory / "data"), "--network", network]
    return Child.start("the topology", command, directory / "topology", TOPOLOGY_READY_WITHIN_S)
