"""What a lease promises: who has not read a heartbeat of its own for 2 s does nothing that others
could see. Told by heartbeats alone, and stricter than that others own it by then.
"""

from bisect import bisect_right
from collections import defaultdict

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.environment.clock import EPOCH_MS
from hermes_chaos.sim.history.events import Attempted, Committing, Event, Lettering
from hermes_chaos.sim.history.standing import Renewed, Skewed

_FENCE_S = 2.0
_ROUNDED_S = 0.002


class FencesAreKept(Checker):
    """A life of a node pushes, commits, gives up and keeps dead letters only within 2 s from the
    sending of the last heartbeat of its own that it has read in the coordination log. A message is
    given up at the time that its dead letter tells. Examined is what was done after more than half
    of that.
    """

    name = "fences are kept"
    is_rare = True

    def __init__(self) -> None:
        super().__init__()
        # Of each life: when it read a heartbeat, and until when that lets it act.
        self._read_s: dict[str, list[float]] = defaultdict(list)
        self._until_s: dict[str, list[float]] = defaultdict(list)
        self._skewed: dict[str, Skewed] = {}
        self._letters: set[tuple[str, str, int]] = set()

    def watch(self, event: Event) -> None:
        """Take note, and check."""
        match event:
            case Renewed(life, sent_s, at_s):
                until_s = self._until_s[life]
                self._read_s[life].append(at_s)
                until_s.append(max(sent_s + _FENCE_S, until_s[-1] if until_s else 0.0))
            case Attempted(node=life, at_s=at_s):
                what = f"pushed {event.message_id} to {event.subscription}"
                self._check(life, at_s, what)
            case Committing(life=life, at_s=at_s):
                self._check(life, at_s, f"committed for {event.group}")
            case Skewed(node):
                self._skewed[node] = event
            case Lettering():
                self._check_letter(event)
            case _:
                pass

    def _check_letter(self, event: Lettering) -> None:
        letter, node = event.letter, event.life.partition("#")[0]
        what = f"handed the dead letter of {letter.message_id} for {letter.subscription} to its log"
        self._check(event.life, event.at_s, what)
        key = event.life, letter.id, letter.at_ms
        skewed = self._skewed.get(node, Skewed(node, 0, float("-inf")))
        if key in self._letters:
            return
        self._letters.add(key)
        decided_s = (letter.at_ms - skewed.skew_ms - EPOCH_MS) / 1_000
        # Else the clock was set since.
        if skewed.at_s < decided_s <= event.at_s:
            what = f"gave {letter.message_id} of {letter.subscription} up"
            self._check(event.life, decided_s, what, _ROUNDED_S)

    def _check(self, life: str, at_s: float, what: str, later_s: float = 0.0) -> None:
        """`later_s`: perhaps it was so much later."""
        at = bisect_right(self._read_s[life], at_s + later_s) - 1
        until_s = self._until_s[life][at] if at >= 0 else float("-inf")
        self.examined += at_s > until_s - _FENCE_S / 2
        if at_s > until_s:
            self.violations.append(
                f"{life} {what} at {at_s:.3f}; its heartbeats let it act until {until_s:.3f}"
            )
