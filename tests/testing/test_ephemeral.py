"""`hermes dev --json --ephemeral`: what it prints, and that it leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.live
DEV = [sys.executable, "-m", "hermes_actors", "dev", "--json", "--ephemeral"]
IN_BACKGROUND = ["sh", "-c", '"$@" < /dev/null & wait', "sh", *DEV]


def close_stdin(process):
    process.stdin.close()


def terminate(process):
    process.terminate()


def kill(process):
    process.kill()


@pytest.mark.parametrize(
    ("command", "end"), [(DEV, terminate), (DEV, close_stdin), (IN_BACKGROUND, kill)]
)
def test_it_ends_and_its_data_is_gone(command, end, tmp_path):
    pipe = subprocess.PIPE
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as started:
        ready = json.loads(started.stdout.readline())
        (dc,) = ready["dcs"]
        assert httpx.get(f"{dc['publish']}/status/health").status_code == 200
        assert Path(ready["data"]).parent == tmp_path
        end(started)
        # The pipe is closed when the broker, the last process that writes to it, has ended.
        assert started.stdout.read() == ""
    assert started.returncode == (-signal.SIGKILL if end is kill else 0)
    assert list(tmp_path.iterdir()) == []


def test_it_ends_also_while_it_starts(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [*DEV, "-v"], input="", capture_output=True, text=True, env=environment, check=False
    )
    assert (ended.returncode, ended.stdout, list(tmp_path.iterdir())) == (0, "", [])
    assert "its stdin is closed" in ended.stderr


def test_it_does_not_keep_data(tmp_path):
    refused = subprocess.run(
        [*DEV, "--data", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--ephemeral keeps no data" in refused.stderr
