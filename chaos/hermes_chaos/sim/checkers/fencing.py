"""The promise of a lease: a node that has not read its own heartbeat for 2 s does nothing visible
to others. Judged from heartbeats alone, so it is stricter than ownership.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.environment.clock import EPOCH_MS
from hermes_chaos.sim.history.events import Attempted, Committing, Event, Lettering
from hermes_chaos.sim.history.pulling import HandedOut
from hermes_chaos.sim.history.standing import Renewed, Skewed

_FENCE_S = 2.0
_ROUNDED_S = 0.002


class FencesAreKept(Checker):
    """A life of a node pushes, commits, gives up and keeps dead letters only within 2 s after
    sending the last of its heartbeats that it has read in the coordination log. The time in the
    dead letter counts as the time of giving up. Examined are actions after more than half of that
    time.
    """

    name = "fences are kept"
    is_rare = True

    def __init__(self) -> None:
        super().__init__()
        # By life: when it read a heartbeat, and until when that lets it act.
        self._read_s: dict[str, list[float]] = defaultdict(list)
        self._until_s: dict[str, list[float]] = defaultdict(list)
        # By node: from when its wall clock was off, and by how much.
        self._skews: dict[str, list[Skewed]] = defaultdict(list)
        self._letters: set[tuple[str, str, int]] = set()

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Renewed(life, sent_s, at_s):
                until_s = self._until_s[life]
                self._read_s[life].append(at_s)
                until_s.append(max(sent_s + _FENCE_S, until_s[-1] if until_s else 0.0))
            case Attempted(node=life, at_s=at_s):
                what = f"pushed {event.message_id} to {event.subscription}"
                self._check(life, what, at_s)
            case HandedOut(life=life, at_s=at_s):
                self._check(life, f"handed out {event.ack_id} of {event.subscription}", at_s)
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
        """Until when the heartbeats read so far let the life act; -inf without any."""
        at = bisect_right(self._read_s[life], at_s) - 1
        return self._until_s[life][at] if at >= 0 else float("-inf")


def _shown(wall_ms: int, skews: Iterable[Skewed], before_s: float) -> Iterator[float]:
    """When a clock showed that time: several times if it was set meanwhile."""
    since_s, skew_ms = float("-inf"), 0
    for each in (*skews, Skewed("", 0, before_s)):
        at_s = (wall_ms - skew_ms - EPOCH_MS) / 1_000
        if since_s - _ROUNDED_S <= at_s <= each.at_s + _ROUNDED_S:
            yield at_s
        since_s, skew_ms = each.at_s, each.skew_ms
