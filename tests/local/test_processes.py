"""Processes are known for sure, and die with the launcher."""

import signal
import subprocess
import sys

import pytest

from hermes_local.processes import ProcessId, Tether

pytestmark = pytest.mark.live


SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def sleeper():
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_known_until_it_ends_and_not_mistaken_for_another(sleeper):
    process = ProcessId.of(sleeper.pid)
    assert process.is_running
    assert not ProcessId(process.pid, process.began + 1).is_running
    sleeper.kill()
    assert process.wait_ended(30)
    assert not process.is_running


def test_what_is_tethered_dies_with_the_tether_and_nothing_else(sleeper):
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        stranger = ProcessId.of(sleeper.pid)
        tether = Tether()
        tether.hold(ProcessId(stranger.pid, stranger.began + 1))
        tether.hold(ProcessId.of(other.pid))
        # The pipe ends, as when this process dies.
        tether.end()
        assert other.wait(30) == -signal.SIGKILL
        assert sleeper.poll() is None
