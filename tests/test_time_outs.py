"""A test that hangs is ended, with the stack of what it waits for, and the others go on."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

HANGING = """
import trio

from hermes_actors.runtime import guest


def test_as_guest():
    guest.run(trio.sleep_forever)


async def test_shielded():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


def test_another():
    pass
"""


@pytest.mark.live
def test_a_test_that_hangs_fails_with_its_stack_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *")
    (tmp_path / "test_hanging.py").write_text(HANGING)
    command = [
        *(sys.executable, "-m", "pytest", str(tmp_path), "-c", str(ROOT / "pyproject.toml")),
        *("-p", "no:cacheprovider", "-n", "1", "-v", "--timeout", "2"),
    ]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert "2 failed, 1 passed" in ended.stdout
    assert ended.returncode == 1
    assert "in test_as_guest" in ended.stderr
