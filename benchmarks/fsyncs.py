"""Counts fsyncs: strace's fdatasync calls compared with the log's commits, each before its 201s.

Runs `hermes dev` under strace, publishes with 1 and with 32 connections, and prints for each:
messages, commits (the log's own count), fdatasync calls (strace's), messages per fsync, and how
many 201s were sent without an fdatasync since their request was read. That last number must be 0.
Needs strace; Linux only.

    python benchmarks/fsyncs.py
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from hermes_chaos.wanted import topic_body

CALLS = "fdatasync,fsync,read,recvfrom,recvmsg,write,writev,sendto,sendmsg"


def main() -> int:
    """Print the table; return 1 if a 201 was sent before its fsync."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=2_000)
    options = parser.parse_args()
    if shutil.which("strace") is None:
        print("strace is not installed; on Debian: apt-get install strace", file=sys.stderr)
        return 2
    print(
        f"{'conns':>5} {'messages':>8} {'commits':>8} {'fdatasync':>9} "
        f"{'messages/fsync':>14} {'201 before its fsync':>20}"
    )
    early = 0
    for connections in (1, 32):
        early += measure(connections, options.messages)
    return 1 if early else 0


def measure(connections: int, messages: int) -> int:
    """Print one row of the table; return how many 201s came before their fsync."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        with dev(Path(folder) / "data", trace) as ready:
            publish, management = ready["dcs"][0]["publish"], ready["dcs"][0]["management"]
            create_topic(management)
            commits = -counter(publish, "hermes_log_commits_total")
            publish_all(publish, connections, 1)
            mark = trace.stat().st_size
            commits = -counter(publish, "hermes_log_commits_total")
            publish_all(publish, connections, messages)
            commits += counter(publish, "hermes_log_commits_total")
        syncs, early = examine(trace, mark)
    print(
        f"{connections:5} {messages:8} {commits:8.0f} {syncs:9} "
        f"{messages / max(syncs, 1):14.1f} {early if connections == 1 else '-':>20}"
    )
    return early if connections == 1 else 0


@contextlib.contextmanager
def dev(data: Path, trace: Path):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Run `hermes dev` with one datacentre under strace; yields its ready line."""
    command = ["strace", "-f", "-y", "-e", f"trace={CALLS}", "-s", "40", "-o", str(trace)]
    command += [sys.executable, "-m", "hermes_actors", "dev", "--json", "--dcs", "dc1"]
    command += ["--data", str(data)]
    command += ["--publish-port", "0", "--management-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        # strace forwards no signals; the traced process is its child.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGTERM)
        process.wait(timeout=30)


def create_topic(management: str) -> None:
    """Create the topic bench.t, ready to publish to."""
    ask(management, "/groups", {"groupName": "bench"})
    ask(management, "/topics", topic_body("bench.t"))


def ask(base: str, path: str, body: object) -> None:
    """Send a POST that must be answered 201."""
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=30)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 201, text


def publish_all(publish: str, connections: int, messages: int) -> None:
    """Publish that many messages over that many connections; each must be answered 201."""
    failures: list[str] = []

    def work(count: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(publish).netloc, timeout=30)
        for _ in range(count):
            connection.request("POST", "/topics/bench.t", b"x" * 100)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 201:
                failures.append(f"{answer.status} {text.decode()}")
        connection.close()

    threads = [
        threading.Thread(target=work, args=(max(1, messages // connections),))
        for _ in range(min(connections, messages))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def counter(publish: str, name: str) -> float:
    """One metric of the node."""
    connection = http.client.HTTPConnection(urlsplit(publish).netloc, timeout=30)
    connection.request("GET", "/status/prometheus")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found, f"{name} is not among the metrics"
    return float(found.group(1))


def examine(trace: Path, mark: int) -> tuple[int, int]:
    """The log's fdatasync calls after the mark, and the 201s without one since their request."""
    syncs = early = 0
    is_synced = True
    with trace.open("rb") as file:
        file.seek(mark)
        for line in file:
            if b"fdatasync(" in line or b"fsync(" in line:
                syncs += 1
            # The end of the call counts; if strace shows it in two parts, the second.
            if (b"fdatasync(" in line or b"fdatasync resumed" in line) and b"= 0" in line:
                is_synced = True
            elif b"POST /topics/" in line:
                is_synced = False
            elif b"HTTP/1.1 201" in line and not is_synced:
                early += 1
    return syncs, early


if __name__ == "__main__":
    sys.exit(main())
