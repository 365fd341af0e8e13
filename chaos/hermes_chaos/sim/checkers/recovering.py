"""Promises about a datacentre that is away, and about one that is back."""

from collections import defaultdict
from dataclasses import dataclass, field

from hermes_actors.model.message import Via
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import (
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
from hermes_chaos.sim.history.troubles import LOG, READINESS, Troubles
from hermes_chaos.sim.workload.subject import Subject

_NOTICED_WITHIN_S = 1.0
_SILENT_S = 0.27
"""The cap of the hedge delay (0.25 s), when silence is checked, plus a little."""
_SILENT_MESSAGES = 8
_FAILURES = 5
_ENOUGH = 10
_PROBES = 4
_PROBES_PERCENT = 10
"""Probes begin after an eighth of a second and become rarer; each is a whole batch."""
_BACK_WITHIN_S = 2.5


@dataclass
class _Silence:
    """The appends that a life of a node has handed to its own log since the last acknowledgement.

    `noticed_s`: since when the node must know that the log is away.
    """

    unanswered: list[Handed] = field(default_factory=list)
    failures: int = 0
    noticed_s: float | None = None

    def hand(self, handed: Handed) -> None:
        """Add an append. If many have waited long, the node must have noticed."""
        overdue_s = handed.at_s - _SILENT_S
        messages = sum(len(each.ids) for each in self.unanswered if each.at_s <= overdue_s)
        if messages >= _SILENT_MESSAGES and self.noticed_s is None:
            self.noticed_s = handed.at_s
        self.unanswered.append(handed)

    def fail(self, told: Told) -> None:
        """Record a failed append. One from before the last acknowledgement does not count."""
        for each in self.unanswered:
            if each.ids == told.ids:
                self.unanswered.remove(each)
                self.failures += 1
                break
        if self.failures >= _FAILURES and self.noticed_s is None:
            self.noticed_s = told.at_s


class LostLogsAreSpared(Checker):
    """A log known to be away gets a batch now and then, not all of them.

    A node knows it when eight messages have waited for the cap of the hedge delay, or five appends
    in a row have failed, until one is acknowledged. Judged for each life of a node while another
    datacentre's log works, for messages to fallback topics that are first handed over after the
    node knows, if there are enough. Batches are counted, not messages, because messages waiting
    behind a probe may form the next batch. The spool's repeated attempts do not count, because
    their interval grows with each failure.
    """

    name = "lost logs are spared"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject
        self._troubles = Troubles()
        self._silences: dict[str, _Silence] = defaultdict(_Silence)
        self._begun: dict[str, set[str]] = defaultdict(set)
        self._judged: dict[tuple[str, float], dict[str, bool]] = defaultdict(dict)

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
        match event:
            case Handed() if event.topic in self._subject.falls_back:
                if Via.SPOOL.value not in event.vias:
                    self._take(event)
            case Told(life=life, dc=dc) if event.topic in self._subject.falls_back:
                if dc == self._own(life) and event.stored:
                    self._silences[life] = _Silence()
                elif dc == self._own(life):
                    self._silences[life].fail(event)
            case Troubled() | Calmed():
                self._troubles.watch(event)
            case _:
                pass

    def _take(self, handed: Handed) -> None:
        own, silence = self._own(handed.life), self._silences[handed.life]
        if handed.dc == own:
            silence.hand(handed)
        begun = self._begun[handed.life]
        new = [each for each in handed.ids if each not in begun]
        begun.update(new)
        if silence.noticed_s is None:
            return
        judged = self._judged[handed.life, silence.noticed_s]
        if self._works_elsewhere(own, handed.at_s):
            # Identify a batch by its first message.
            judged.update(dict.fromkeys(new[:1], False))
        if handed.dc == own:
            judged.update({each: True for each in handed.ids if each in judged})

    def _works_elsewhere(self, own: str, at_s: float) -> bool:
        return not any(
            self._troubles.met(where, faults, at_s - _NOTICED_WITHIN_S, at_s)
            for dc in self._subject.dcs
            if dc != own
            for where, faults in ((dc, LOG), (readiness_of(dc), READINESS))
        )

    def _own(self, life: str) -> str:
        return next(dc for dc in self._subject.dcs if life.startswith(f"{dc}-"))

    def finish(self) -> None:
        """Judge what is only known at the end."""
        for (life, noticed_s), judged in self._judged.items():
            if len(judged) < _ENOUGH:
                continue
            self.examined += len(judged)
            given = sum(judged.values())
            if given > _PROBES + len(judged) * _PROBES_PERCENT / 100:
                self.violations.append(
                    f"{life} gave {given} of {len(judged)} batches to its own log from "
                    f"{noticed_s:.3f} on, though it knew that this does not answer"
                )


class OwnDatacentreServesAgain(Checker):
    """Some time after the last fault is healed each message goes to its own datacentre, and only
    there. Examined are messages to fallback topics.
    """

    name = "the own datacentre serves again"

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject
        self._healed_s = float("inf")
        self._copies: dict[str, list[Stored]] = defaultdict(list)
        self._late: list[Published] = []

    def watch(self, event: Event) -> None:
        """Note the event; `finish` judges."""
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
