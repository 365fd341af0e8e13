"""The promise of a lease: a node that has not read a heartbeat of its own for 2 s does nothing that
others could see. Told by heartbeats alone, and stricter than that others own it by then.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

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
        # Of each node: from when on its wall clock was off by how much.
        self._skews: dict[str, list[Skewed]] = defaultdict(list)
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
                self._check(life, what, at_s)
            case Committing(life=life, at_s=at_s):
                self._check(life, f"committed for {event.group}", at_s)
            case Skewed(node):
                self._skews[node].append(event)
            case Lettering():
                self._check_letter(event)
            case _:
                pass

    def _check_letter(self, event: Lettering) -> None:
        letter, life = event.letter, event.life
        which = f"{letter.message_id} of {letter.subscription}"
        self._check(life, f"handed the dead letter of {which} to its log", event.at_s)
        key = life, letter.id, letter.at_ms
        if key in self._letters:
            return
        self._letters.add(key)
        skews = self._skews[life.partition("#")[0]]
        decided = [
            (at_s, self._lasts_until(life, at_s + _ROUNDED_S))
            for at_s in _shown(letter.at_ms, skews, event.at_s)
        ]
        if not decided:
            self.violations.append(f"{life} gave {which} up at a time that its clock never showed")
            return
        self._judge(life, f"gave {which} up", *max(decided, key=lambda each: each[1] - each[0]))

    def _check(self, life: str, what: str, at_s: float) -> None:
        self._judge(life, what, at_s, self._lasts_until(life, at_s))

    def _judge(self, life: str, what: str, at_s: float, until_s: float) -> None:
        self.examined += at_s > until_s - _FENCE_S / 2
        if at_s > until_s:
            self.violations.append(
                f"{life} {what} at {at_s:.3f}; its heartbeats let it act until {until_s:.3f}"
            )

    def _lasts_until(self, life: str, at_s: float) -> float:
        """Return until when the heartbeats that it has read by then let it act; -inf for none."""
        at = bisect_right(self._read_s[life], at_s) - 1
        return self._until_s[life][at] if at >= 0 else float("-inf")


def _shown(wall_ms: int, skews: Iterable[Skewed], before_s: float) -> Iterator[float]:
    """When a clock showed that time: more than once where it was set meanwhile."""
    since_s, skew_ms = float("-inf"), 0
    for each in (*skews, Skewed("", 0, before_s)):
        at_s = (wall_ms - skew_ms - EPOCH_MS) / 1_000
        if since_s - _ROUNDED_S <= at_s <= each.at_s + _ROUNDED_S:
            yield at_s
        since_s, skew_ms = each.at_s, each.skew_ms
