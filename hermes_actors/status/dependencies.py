"""A node's dependencies, their state, and the answers to Kubernetes' probes. Pure."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

LIVE, STARTED, READY = PROBES = ("/livez", "/startupz", "/readyz")
"""The paths of the probes, on each HTTP port of a node."""


class Dependency(Struct, frozen=True):
    """One dependency of a node. `trouble` says why it does not work; empty string if it does. A
    node is not ready while a dependency that `is_needed` has trouble.
    """

    name: str
    trouble: str = ""
    is_needed: bool = False

    @property
    def told(self) -> str:
        """The name and the trouble in one line."""
        return f"{self.name}: {' '.join(self.trouble.split())}"


def reasons(found: Sequence[Dependency]) -> list[str]:
    """Why the node is not ready; empty if it is."""
    return [each.told for each in found if each.trouble and each.is_needed]


def notices(found: Sequence[Dependency]) -> list[str]:
    """Problems that do not keep the node from working."""
    return [each.told for each in found if each.trouble and not each.is_needed]


def shown(found: Sequence[Dependency]) -> list[dict[str, Any]]:
    """Each dependency as JSON."""
    return [
        {
            "name": each.name,
            "isWorking": not each.trouble,
            "isNeeded": each.is_needed,
            "reason": each.trouble,
        }
        for each in found
    ]


class ProbeAnswer(Struct, frozen=True):
    """The answer to a probe: its status (200 or 503) and its text."""

    status: int
    text: str


def probed(path: str, found: Sequence[Dependency] = (), *, is_started: bool = True) -> ProbeAnswer:
    """The answer to the probe at this path (one of PROBES).

    LIVE passes if the process answers at all: a restart solves no dependency's problem. STARTED
    passes once the first start has finished. READY passes if no needed dependency has trouble; its
    text has a line for each dependency, like Kubernetes' own `/readyz?verbose`.
    """
    if path == LIVE:
        return ProbeAnswer(200, "ok\n")
    is_well = is_started if path == STARTED else not reasons(found)
    end = f"{path.removeprefix('/')} check {'passed' if is_well else 'failed'}"
    return ProbeAnswer(200 if is_well else 503, "\n".join([*map(_line, found), end, ""]))


def _line(each: Dependency) -> str:
    if not each.trouble:
        return f"[+]{each.name} ok"
    return f"[-]{each.told}" if each.is_needed else f"[!]{each.told} (not needed)"
