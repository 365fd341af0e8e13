"""Linux' files about a process' CPU: how long it ran and waited, and what it is let use.

Elsewhere there are no such files: then it has waited for nothing, and there is no limit.
"""

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from hermes_actors.runtime.cpu_share import CpuSample

_SCHEDULED = "proc/thread-self/schedstat"
_GROUPS = "proc/self/cgroup"
_MOUNT = "sys/fs/cgroup"
_DEPTH_MAX = 32
"""Of control groups in each other; Linux lets nobody nest them for ever either."""


class CpuFiles:
    """The files, read anew each time: a quota may be set, and the process be moved to another
    group, while it runs. They are small and in memory, so reading them takes some ten microseconds
    each.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """`root`: where `proc` and `sys` are."""
        self._root = root
        # For good: the difference of two sources' figures would be nonsense.
        self._is_scheduled_told = scheduled(_text(root / _SCHEDULED)) is not None

    def sample(self, at_s: float, used_s: float) -> CpuSample | None:
        """Read a sample. `used_s`, the CPU that the process has used, counts where the files do not
        tell of the calling thread, the one that it runs in. None: they cannot be read now.
        """
        groups = list(self._groups())
        quota = min((quota_of(group) for group in groups), default=math.inf)
        if not self._is_scheduled_told:
            throttled_s = max((throttled_s_of(group) for group in groups), default=0.0)
            return CpuSample(at_s, used_s, throttled_s, quota)
        found = scheduled(_text(self._root / _SCHEDULED))
        return None if found is None else CpuSample(at_s, *found, quota)

    def quota(self) -> float:
        """How many cores its control groups let it use; infinite where they do not say."""
        return min((quota_of(group) for group in self._groups()), default=math.inf)

    def _groups(self) -> Iterator[Path]:
        """The folders of its groups that may bound its CPU, each with those that it is in."""
        mount = self._root / _MOUNT
        for line in _text(self._root / _GROUPS).splitlines() or ["0::/"]:
            _number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers:
                roots = [mount, mount / "unified"]
            elif "cpu" in controllers.split(","):
                roots = [mount / controllers, mount / "cpu"]
            else:
                continue
            for root in roots:
                yield from _with_outer(root, path)


def _with_outer(root: Path, path: str) -> Iterator[Path]:
    """Give the group's folder and those around it that exist, the root last: a container sees its
    own group as the root, whatever its path says.
    """
    inner = PurePosixPath(path.lstrip("/"))
    if ".." not in inner.parts:
        for each in (inner, *inner.parents)[:_DEPTH_MAX]:
            if each.parts and (root / each).is_dir():
                yield root / each
    yield root


def quota_of(group: Path) -> float:
    """How many cores a control group is let use, in version 2 or 1; infinite when it is not said,
    or as much as there is.
    """
    told = _text(group / "cpu.max").split() or [
        *_text(group / "cpu.cfs_quota_us").split(),
        *_text(group / "cpu.cfs_period_us").split(),
    ]
    try:
        allowed, period = (int(each) for each in told)
    except ValueError:
        # No such file, or "max".
        return math.inf
    # Version 1 says -1 for no limit.
    return allowed / period if allowed > 0 and period > 0 else math.inf


def throttled_s_of(group: Path) -> float:
    """For how long a control group was kept from running, its quota used up; 0 when not told."""
    for line in _text(group / "cpu.stat").splitlines():
        name, _, value = line.partition(" ")
        unit = {"throttled_usec": 1e-6, "throttled_time": 1e-9}.get(name)
        if unit is not None:
            try:
                return max(0.0, int(value) * unit)
            except ValueError:
                return 0.0
    return 0.0


def scheduled(told: str) -> tuple[float, float] | None:
    """For how long a thread ran and waited to run, in seconds, by the text of its `schedstat`; None
    where that does not tell.
    """
    try:
        ran_ns, waited_ns, _times = (int(each) for each in told.split())
    except ValueError:
        return None
    return ran_ns / 1e9, waited_ns / 1e9


def _text(path: Path) -> str:
    """The file's text; "" where it cannot be read."""
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
