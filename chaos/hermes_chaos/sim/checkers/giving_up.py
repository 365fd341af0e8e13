"""Promises about given-up messages: there is a cause, and the letter is kept until delivered."""

from itertools import repeat
from math import inf

from hermes_actors.model.dead_letter import DiscardReason, Letter, MarkKind
from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.checkers.sequencing import ENVELOPE_BYTES
from hermes_chaos.sim.history.events import Answer, Closed, Event, Lettered, Lettering
from hermes_chaos.sim.history.settlements import Settlements
from hermes_chaos.sim.workload.subject import Subject


class LettersHaveCauses(Checker):
    """A message is given up only for a reason in its subscription's policy and answers."""

    name = "dead letters have causes"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._by_name = subject.by_name
        self._answers: set[tuple[str, str, str, int]] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Answer(dc, name, message_id, status):
                self._answers.add((dc, name, message_id, status))
            case Lettered(dc, letter):
                self.examined += 1
                fault = self._fault(dc, letter)
                if fault:
                    self.violations.append(
                        f"{letter.subscription} gave {letter.message_id} up ({letter.reason}, "
                        f"{letter.status} after {letter.attempts} attempts): {fault}"
                    )
            case _:
                pass

    def _fault(self, dc: str, letter: Letter) -> str:
        audience, status = self._by_name[letter.subscription], letter.status
        heard = dc, letter.subscription, letter.message_id, status
        if not audience.keeps_letters:
            return "it wants no dead letters"
        if status and heard not in self._answers:
            return "nobody answered that"
        match letter.reason:
            case DiscardReason.CLIENT_ERROR if audience.ends(status):
                return ""
            case DiscardReason.DISCARD_STATUS if status in audience.discard_on:
                return ""
            case DiscardReason.ATTEMPTS if letter.attempts == audience.attempts_max:
                return ""
            # Longer than a run.
            case DiscardReason.EXPIRED if audience.ttl_s < 60:
                return ""
            case DiscardReason.TOO_LARGE if audience.batch is not None:
                size_max = audience.batch[1] - ENVELOPE_BYTES
                return "" if len(letter.value) > size_max else "it would fit"
        return "that is no reason"


class LettersCloseByDelivery(Checker):
    """A dead letter is closed as re-driven only if its message was delivered after it was last
    given up. If storing a letter was not acknowledged, it is stored again unchanged. Such a copy,
    which may follow the delivery, does not count as giving up; a different letter does. A message
    given up later than a mark's time stays open.
    """

    name = "dead letters close by delivery"
    is_rare = True

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._settlements = Settlements(subject)
        # By id, the first of the latest equal letters.
        self._letters: dict[tuple[str, str, str], Lettered] = {}
        self._known: set[Letter] = set()
        # When each letter was first handed to the log; it had been given up by then.
        self._handed_s: dict[Letter, float] = {}

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Lettering(letter=letter, at_s=at_s):
                self._handed_s.setdefault(letter, at_s)
            case Lettered(dc, letter):
                if letter not in self._known:
                    self._known.add(letter)
                    self._letters[dc, letter.subscription, letter.id] = event
            case Answer():
                self._settlements.watch(event)
            case Closed(dc, name, MarkKind.REDRIVEN):
                times_ms = event.up_to_ms or repeat(inf)
                for each, up_to_ms in zip(event.ids, times_ms, strict=False):
                    lettered = self._letters[dc, name, each]
                    if lettered.letter.at_ms <= up_to_ms:
                        self._check(event, lettered)
            case _:
                pass

    def _check(self, closed: Closed, lettered: Lettered) -> None:
        self.examined += 1
        dc, name, letter = closed.dc, closed.subscription, lettered.letter
        given_up_s = self._handed_s.get(letter, lettered.at_s)
        if self._settlements.delivered_s(dc, name, letter.message_id) < given_up_s:
            self.violations.append(
                f"{name}: the dead letter {letter.id} was closed at {closed.at_s:.3f}, and its "
                "message had not been delivered since"
            )
