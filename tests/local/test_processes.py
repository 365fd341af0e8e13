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
    stranger = ProcessId(process.pid, process.began + 1)
    assert not stranger.is_running
    stranger.send(signal.SIGKILL)
    assert process.is_running
    process.send(signal.SIGKILL)
    assert process.wait_ended(30)
    assert not process.is_running


def test_what_is_tethered_dies_with_the_tether_unless_it_was_let_go(sleeper):
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        kept, lost = Tether(), Tether()
        kept.hold(ProcessId.of(sleeper.pid))
        lost.hold(ProcessId.of(other.pid))
        kept.let_go()
        # As when this process died: the pipe ends without a word.
        lost._process.stdin.close()
        assert lost._process.wait(30) == 0
        assert other.wait(30) == -signal.SIGKILL
        assert sleeper.poll() is None
