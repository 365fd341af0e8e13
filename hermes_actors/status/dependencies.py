"""A node's dependencies, how each of them fares, and the answers to Kubernetes' probes. Pure."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

LIVE, STARTED, READY = PROBES = ("/livez", "/startupz", "/readyz")
"""The paths of the probes, on each port of a node that answers HTTP."""


class Dependency(Struct, frozen=True):
    """One thing that a node works with. `trouble` says why it does not work, "" when it does; a
    node is not ready while one has trouble that `is_needed`.
    """

    name: str
    trouble: str = ""
    is_needed: bool = False

    @property
    def told(self) -> str:
        """The trouble with the name before it, for people, in one line."""
        return f"{self.name}: {' '.join(self.trouble.split())}"


def reasons(found: Sequence[Dependency]) -> list[str]:
    """Why the node is not ready; empty when it is."""
    return [each.told for each in found if each.trouble and each.is_needed]


def notices(found: Sequence[Dependency]) -> list[str]:
    """Troubles of a node that can do its work all the same."""
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
    """The answer to a probe: its status, 200 or 503, and its text."""

    status: int
    text: str


def probed(path: str, found: Sequence[Dependency] = (), *, is_started: bool = True) -> ProbeAnswer:
    """The answer to the probe at this path of PROBES.

    LIVE is true of every process that answers: a restart mends no dependency. STARTED is true from
    the end of the first start on. READY is true while nothing is in trouble that is needed; its
    text has a line for each dependency, as Kubernetes' own `/readyz?verbose` has.
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
