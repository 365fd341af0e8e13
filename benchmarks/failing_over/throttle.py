"""Limits a process to half a core, by a control group's quota, or else by a rival on its core."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HALF = 0.5
_PERIOD_US = 100_000
_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


@contextmanager
def half_a_core(pid: int) -> Iterator[str]:
    """Limit the process for the duration of the block; yields how."""
    group = _group(pid)
    if group is None:
        with _rival(pid):
            yield "a busy process pinned to its core"
        return
    try:
        yield f"a quota of its control group ({group.parent})"
    finally:
        with contextlib.suppress(OSError):
            (group.parent / "cgroup.procs").write_text(str(pid))
        with contextlib.suppress(OSError):
            group.rmdir()


def _group(pid: int) -> Path | None:
    """A new control group with the process in it; None if this user may not create one."""
    for root in _ROOTS:
        group = root / f"hermes-bench-{pid}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(round(_PERIOD_US * HALF)))
            else:
                (group / "cpu.max").write_text(f"{round(_PERIOD_US * HALF)} {_PERIOD_US}")
            (group / "cgroup.procs").write_text(str(pid))
        except OSError:
            group.rmdir()
            continue
        return group
    return None


@contextmanager
def _rival(pid: int) -> Iterator[None]:
    """Both processes share one core, half each while both want it. A process that needs less than
    half is delayed, but not slowed down.
    """
    core = {max(os.sched_getaffinity(0))}
    before = os.sched_getaffinity(pid)
    _pin(pid, core)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    os.sched_setaffinity(busy.pid, core)
    try:
        yield
    finally:
        busy.kill()
        busy.wait()
        with contextlib.suppress(ProcessLookupError):
            _pin(pid, before)


def _pin(pid: int, cores: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)
