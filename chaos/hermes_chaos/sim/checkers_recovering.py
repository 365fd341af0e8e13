"""What was promised of a datacentre that is away, and of one that is back."""

from collections import defaultdict

from hermes_chaos.sim.checker import Checker, Subject
from hermes_chaos.sim.history import (
    Calmed,
    Event,
    Handed,
    Healed,
    Published,
    Stored,
    Told,
    Troubled,
    readiness_of,
)
from hermes_chaos.sim.nemesis import Fault
from hermes_chaos.sim.troubles import LOG, READINESS, Troubles

_NOTICED_WITHIN_S = 1.0
_ENOUGH = 24
_BEFORE_NOTICED = 14
_PROBES_PERCENT = 35
_BACK_WITHIN_S = 2.5


class LostLogsAreSpared(Checker):
    """A log that has answered nothing for a second gets a message now and then, not all of them.

    Judged of each life of a node in that datacentre, while the other's log works, of messages to
    topics that fall back, where there are enough of them to tell. Those are examined.
    """

    name = "lost logs are spared"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject
        self._troubles = Troubles()
        self._outages: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self._began_s: dict[str, float] = {}
        self._heard_s: dict[tuple[str, str], float] = {}
        self._handed: dict[tuple[str, str], list[Handed]] = defaultdict(list)

    def watch(self, event: Event) -> None:
        """Take note; judged is at the end."""
        match event:
            case Handed() if event.topic in self._subject.falls_back:
                began_s = self._began_s.setdefault(event.life, event.at_s)
                self._take(event, began_s)
            case Told(life=life, dc=dc, stored=stored, at_s=at_s) if stored:
                self._heard_s[life, dc] = at_s
            case Troubled(where=dc, fault=fault, at_s=at_s):
                self._troubles.watch(event)
                if fault == Fault.DC_LOST:
                    self._outages[dc].append((at_s, float("inf")))
            case Calmed(where, at_s):
                self._troubles.watch(event)
                self._outages[where] = [
                    (begin_s, min(end_s, at_s)) for begin_s, end_s in self._outages[where]
                ]
            case _:
                pass

    def _take(self, handed: Handed, began_s: float) -> None:
        """Keep it with the outage of its life's own datacentre that it fell into."""
        own = next(dc for dc in self._subject.dcs if handed.life.startswith(f"{dc}-"))
        at_s = handed.at_s
        if self._heard_s.get((handed.life, own), 0.0) > at_s - _NOTICED_WITHIN_S:
            # It is only slow.
            return
        for begin_s, end_s in self._outages[own]:
            if max(begin_s, began_s) + _NOTICED_WITHIN_S <= at_s <= end_s and not any(
                self._troubles.met(where, faults, at_s - _NOTICED_WITHIN_S, at_s)
                for dc in self._subject.dcs
                if dc != own
                for where, faults in ((dc, LOG), (readiness_of(dc), READINESS))
            ):
                self._handed[handed.life, f"{own} from {begin_s:.3f}"].append(handed)
                return

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for (life, outage), handed in self._handed.items():
            own = outage.partition(" ")[0]
            every = {message_id for each in handed for message_id in each.ids}
            if len(every) < _ENOUGH:
                continue
            self.examined += len(every)
            given = {each for handing in handed if handing.dc == own for each in handing.ids}
            if len(given) > _BEFORE_NOTICED + len(every) * _PROBES_PERCENT / 100:
                self.violations.append(
                    f"{life} gave {len(given)} of {len(every)} messages to the log of {outage} on, "
                    "which did not answer"
                )


class OwnDatacentreServesAgain(Checker):
    """Some time after the last fault is healed each message goes to its own datacentre, and there
    alone. Examined are those to topics that fall back.
    """

    name = "the own datacentre serves again"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject
        self._healed_s = float("inf")
        self._copies: dict[str, list[Stored]] = defaultdict(list)
        self._late: list[Published] = []

    def watch(self, event: Event) -> None:
        """Take note; judged is at the end."""
        match event:
            case Healed(at_s):
                self._healed_s = at_s
            case Stored():
                self._copies[event.message_id].append(event)
            case Published() if (
                event.topic in self._subject.falls_back
                and event.began_s >= self._healed_s + _BACK_WITHIN_S
                and event.node != event.dc
            ):
                self._late.append(event)
            case _:
                pass

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for published in self._late:
            self.examined += 1
            ways = [(each.place[0], each.via) for each in self._copies[published.message_id]]
            if ways != [(published.dc, "local")]:
                self.violations.append(
                    f"message {published.serial} for {published.topic}, published at "
                    f"{published.began_s:.3f} to {published.life}, was answered "
                    f"{published.status} and stored {ways}, long after all was healed"
                )
