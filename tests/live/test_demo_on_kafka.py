"""The flights demo on the shipped compose file: real Kafka clusters, every service a process."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep  # noqa: TID251 -- real processes

import pytest

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(400),
]

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, str(ROOT / "examples/flights/demo.py")]
DEMO += ["--compose", str(ROOT / "deploy/compose.yaml"), "--network", "127.0.5.0/24"]


def left_behind(folder):
    """The command lines of processes that name the folder and do not end within some seconds: one
    that was just being started ends when it finds that its starter has gone.
    """
    end_s = monotonic() + 30
    while (found := processes_of(folder)) and monotonic() < end_s:
        sleep(0.1)
    return found


def processes_of(folder):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.spark
def test_nothing_is_missing_by_both_verdicts_and_nothing_stays_behind(tmp_path, tmp_path_factory):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    report = tmp_path_factory.mktemp("report")
    done = subprocess.run(
        [*DEMO, "--limit", "2000", "--report", str(report)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "CLEAN: All acknowledged messages are stored: 2,000 messages" in done.stdout
    assert "Nothing is lost" in (report / "report.html").read_text()
    assert done.stdout.splitlines()[-1:] == ["missing 0"], done.stdout + done.stderr
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert left_behind(tmp_path) == []


def test_ctrl_c_while_it_starts_ends_what_was_started(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*DEMO, "--limit", "10"], stdout=subprocess.PIPE, text=True, env=environment
    ) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("starting the services")
        began = None
        while began is None:
            # The first broker has a process: it is in the middle of the start.
            began = next(tmp_path.glob("*/data/services/kafka*/pid"), None)
            assert demo.poll() is None
        demo.send_signal(signal.SIGINT)
        demo.stdout.read()
    assert demo.returncode == 130
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
