"""What publishers were promised: an answer in time, as long as nothing was broken meanwhile."""

from hermes_chaos.sim.checker import Checker, Subject
from hermes_chaos.sim.history import Calmed, Event, Published, Troubled
from hermes_chaos.sim.nemesis import Fault

_AFTERMATH_S = 0.1
"""So long after a trouble has ended it still explains: what has queued up is stored first."""
_SLOW_AFTERMATH_S = 0.35
"""The same for a slow log, whose last slow append takes up to 0.32 s and goes on."""
_LOOKUP_AFTERMATH_S = 1.1
"""The same where reads failed: a producer that has just started looks again after a second."""

_AFTERMATHS_S = {
    Fault.LOG_SLOW: _SLOW_AFTERMATH_S,
    Fault.LOG_FAILING: _AFTERMATH_S,
    Fault.LOG_SILENT: _AFTERMATH_S,
    Fault.LOG_CUT: _LOOKUP_AFTERMATH_S,
    Fault.ACKS_LOST: _AFTERMATH_S,
    Fault.PARTIAL: _AFTERMATH_S,
    Fault.READS_FAILING: _LOOKUP_AFTERMATH_S,
    Fault.LEADER_CHANGE: _AFTERMATH_S,
    Fault.ACTOR_CRASH: _AFTERMATH_S,
    Fault.NODE_KILL: 0.0,
}
"""The faults that explain a failed publish. Commits, retention, subscribers and wall clocks are not
on its path, and an orderly stop fails nobody."""


class PublishesAreAnswered(Checker):
    """No publish runs into its time limit, or into another 5xx, without a cause.

    A cause is a fault of the DC's log, the end of the node, or a crash of the topic's producer,
    during the publish or shortly before; or as many other publishes under way as may wait.
    `waiting_max` is that bound. What is examined are the publishes without a cause.
    """

    name = "publishes are answered in time"

    def __init__(self, subject: Subject, waiting_max: int) -> None:
        super().__init__()
        self._topics = frozenset(subject.acks)
        self._waiting_max = waiting_max
        self._published: list[Published] = []
        self._troubles: list[Troubled] = []
        # When each log's troubles so far have ended; the n-th entry is the n-th trouble's end.
        self._ends_s: list[float] = []

    def watch(self, event: Event) -> None:
        """Take note; judged is at the end."""
        match event:
            case Published() if event.topic in self._topics and event.node != event.dc:
                self._published.append(event)
            case Troubled() if event.fault in _AFTERMATHS_S:
                self._troubles.append(event)
                self._ends_s.append(event.at_s + event.lasts_s)
            case Calmed(where, at_s):
                for number, trouble in enumerate(self._troubles):
                    if trouble.where == where:
                        self._ends_s[number] = min(self._ends_s[number], at_s)
            case _:
                pass

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for published in self._published:
            if self._is_troubled(published):
                continue
            self.examined += 1
            status = published.status
            if (status is None or status >= 500) and not self._is_crowded(published):
                self.violations.append(
                    f"message {published.serial} for {published.topic} was answered {status} "
                    f"{published.code} by {published.node} after {published.lasted_s:.3f} s "
                    f"at {published.ended_s:.3f}, and nothing was broken"
                )

    def _is_troubled(self, published: Published) -> bool:
        return any(
            trouble.where in (published.dc, published.node)
            and trouble.topic in ("", published.topic)
            and trouble.at_s <= published.ended_s
            and published.began_s <= end_s + _AFTERMATHS_S[Fault(trouble.fault)]
            for trouble, end_s in zip(self._troubles, self._ends_s, strict=True)
        )

    def _is_crowded(self, published: Published) -> bool:
        """True when it was refused at once, and rightly, because too many wait already."""
        if published.code != "OTHER":
            return False
        at_s = published.ended_s
        others = sum(
            other.node == published.node
            and other.topic == published.topic
            and other.began_s <= at_s <= other.ended_s
            for other in self._published
            if other is not published
        )
        return others >= self._waiting_max
