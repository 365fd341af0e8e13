"""When something was broken, for checkers whose promises hold only while it works."""

from hermes_chaos.sim.faults.strikes import Fault
from hermes_chaos.sim.history.events import Calmed, Event, Troubled

_AFTERMATH_S = 0.1
"""How long after its end a trouble is still an explanation, because queued work is stored first."""
_SLOW_AFTERMATH_S = 0.35
"""The same for a slow log, whose last slow append takes up to 0.32 s."""
_LOOKUP_AFTERMATH_S = 1.1
"""The same if reads failed: a producer that has just started tries again after a second."""

LOG = {
    Fault.LOG_SLOW: _SLOW_AFTERMATH_S,
    Fault.LOG_FAILING: _AFTERMATH_S,
    Fault.LOG_SILENT: _AFTERMATH_S,
    Fault.LOG_CUT: _LOOKUP_AFTERMATH_S,
    Fault.ACKS_LOST: _AFTERMATH_S,
    Fault.PARTIAL: _AFTERMATH_S,
    Fault.READS_FAILING: _LOOKUP_AFTERMATH_S,
    Fault.LEADER_CHANGE: _AFTERMATH_S,
    Fault.DC_LOST: _LOOKUP_AFTERMATH_S,
    Fault.BLACKOUT: _LOOKUP_AFTERMATH_S,
}
"""Faults of a log that a publish may meet, and how long after their end they still explain."""
NODE = {Fault.ACTOR_CRASH: _AFTERMATH_S, Fault.NODE_KILL: 0.0, Fault.NODE_PAUSE: _AFTERMATH_S}
"""The same for a node. An orderly stop must not cause failures."""
_DISK_AFTERMATH_S = 1.2
"""The same for a disk: after a failure it is not used for a second."""

DISK = {
    Fault.DISK_FULL: _DISK_AFTERMATH_S,
    Fault.DISK_FAILING: _DISK_AFTERMATH_S,
    Fault.DISK_SLOW: _DISK_AFTERMATH_S,
    Fault.ACTOR_CRASH: _AFTERMATH_S,
}
"""The same for a node's disk, and for the actor that writes to it."""
READINESS = {Fault.NOT_READY: 2.5}
"""The same for a datacentre that must not be used for fallback: nodes check that only
now and then.
"""

_ALL = {**LOG, **NODE, **DISK, **READINESS}


class Troubles:
    """The troubles of a run that a publish can meet: not those of commits, retention, subscribers
    and wall clocks.

    `where` is a datacentre, a node, its disk or a datacentre's readiness.
    """

    def __init__(self) -> None:
        self._troubles: list[Troubled] = []
        self._ends_s: list[float] = []

    def watch(self, event: Event) -> None:
        """Note the event."""
        match event:
            case Troubled() if event.fault in _ALL:
                self._troubles.append(event)
                self._ends_s.append(event.at_s + event.lasts_s)
            case Calmed(where, at_s):
                for number, trouble in enumerate(self._troubles):
                    if trouble.where == where:
                        self._ends_s[number] = min(self._ends_s[number], at_s)
            case _:
                pass

    def met(
        self,
        where: str,
        faults: dict[Fault, float],
        began_s: float,
        ended_s: float,
        *,
        topic: str = "",
    ) -> bool:
        """True if one of the faults at this place, for this topic, was active in that time or
        shortly before.
        """
        return any(
            trouble.where == where
            and trouble.fault in faults
            and trouble.topic in ("", topic)
            and trouble.at_s <= ended_s
            and began_s <= end_s + faults[Fault(trouble.fault)]
            for trouble, end_s in zip(self._troubles, self._ends_s, strict=True)
        )
