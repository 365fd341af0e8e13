"""Checks folds: all nodes compute the same state from a log, however they read it."""

from collections import defaultdict

from hermes_chaos.sim.checkers.checker import Checker
from hermes_chaos.sim.history.events import Event, Forgotten, Rested
from hermes_chaos.sim.history.standing import Folded

_METADATA = "metadata"


class FoldsAgree(Checker):
    """Two nodes' folds of a datacentre's coordination or metadata are equal at equal log positions,
    whether a node read everything or started with a snapshot. Examined are folds at a position
    where another life has been.
    """

    name = "folds agree"

    def __init__(self) -> None:
        super().__init__()
        # By datacentre and kind: position → the first fold there.
        self._known: dict[tuple[str, str], dict[int, Folded]] = defaultdict(dict)
        # Folds of a log that was emptied or is read anew, with their `begun`.
        self._past: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
        self._present: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Folded():
                self._check(event)
            case Forgotten(dc):
                place = dc, "coordination"
                self._past[place] |= self._present[place]
                self._known[place].clear()
            case _:
                pass

    def _check(self, fold: Folded) -> None:
        place, who = (fold.dc, fold.kind), (fold.life, fold.begun)
        if who in self._past[place]:
            return
        self._present[place].add(who)
        first = self._known[place].setdefault(fold.position, fold)
        if first.life == fold.life:
            return
        self.examined += 1
        if first.content != fold.content:
            self.violations.append(
                f"{fold.life} and {first.life} have read the {fold.kind} of {fold.dc} up to "
                f"{fold.position}, and made different things of it"
            )


class RegistersConverge(Checker):
    """No register is overwritten by an older value, whatever the order of changes. At rest all
    nodes of all datacentres hold the same registers. A log that is read anew starts anew.
    """

    name = "registers converge"

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, Folded] = {}
        self._is_at_rest = False

    def watch(self, event: Event) -> None:
        """Note and check the event."""
        match event:
            case Folded(kind="metadata"):
                before = self._last.get(event.life.partition("#")[0])
                if before is not None and (before.life, before.begun) == (event.life, event.begun):
                    self._compare(before, event)
                self._last[event.life.partition("#")[0]] = event
            case Rested():
                self._is_at_rest = True
            case _:
                pass

    def _compare(self, before: Folded, now: Folded) -> None:
        for key, old in before.registers.items():
            new = now.registers.get(key)
            self.examined += new != old
            if new is None or new[:3] < old[:3]:
                self.violations.append(
                    f"{now.life} held {old[:3]} for {key} at {before.position}, and "
                    f"{None if new is None else new[:3]} at {now.position}"
                )

    def finish(self) -> None:
        """Judge what is only known at the end."""
        if not self._is_at_rest:
            return
        folds = sorted(self._last.values(), key=lambda fold: fold.life)
        for fold in folds[1:]:
            self.examined += 1
            first = folds[0]
            keys = sorted(
                key
                for key in {*first.registers, *fold.registers}
                if first.registers.get(key) != fold.registers.get(key)
            )
            if keys:
                self.violations.append(
                    f"{first.life} and {fold.life} hold different registers at rest: {keys[:5]}"
                )
