"""A real process on a real disk is killed: what it had acknowledged is found by the next."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from hermes_actors.fallback.spool.store import open_segment_store
from hermes_actors.runtime.clock import IdSource

SCRIPT = Path(__file__).with_name("spooling_process.py")

pytestmark = pytest.mark.live


async def load(folder: Path) -> set[int]:
    async with open_segment_store(folder, IdSource(), segment_bytes_max=50_000) as store:
        loaded = await store.load()
        assert not loaded.set_aside.total()
        read = await store.read([each.place for each in loaded.entries])
        assert None not in read
        assert [each.sequence for each in loaded.entries] == sorted(
            each.sequence for each in loaded.entries
        )
        return {each.sequence for each in loaded.entries}


@pytest.mark.parametrize("kill_after_s", [0.05, 0.15, 0.3])
def test_after_kill_9_everything_acknowledged_is_there(tmp_path, kill_after_s):
    folder = tmp_path / "spool"
    kept = 0
    for _life in range(2):
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        threading.Event().wait(kill_after_s)
        process.kill()
        output, _ = process.communicate(timeout=10)
        # A line that was cut short was not told to anybody.
        lines = output.splitlines() if output.endswith("\n") else output.splitlines()[:-1]
        kept += len(lines)
        assert len(trio.run(load, folder)) >= kept
    assert kept > 10
