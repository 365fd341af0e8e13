"""The base class of checkers."""

from collections.abc import Sequence

from hermes_chaos.sim.history.events import Event

SHOWN_MAX = 5
"""Maximum number of culprits that a violation names."""


class Checker:
    """One promise. It watches a history and counts what it examines.

    A checker that examined nothing is a violation, too, unless `is_rare`: then its subject does not
    occur in every run.
    """

    name = ""
    is_rare = False

    def __init__(self) -> None:
        self.examined = 0
        self.violations: list[str] = []

    def watch(self, event: Event) -> None:
        """Handle an event when it happens."""

    def finish(self) -> None:
        """Judge what is only known at the end, when nothing more will happen."""


def shown(culprits: Sequence[object]) -> str:
    """The first few, with a sign if there are more."""
    text = ", ".join(str(each) for each in culprits[:SHOWN_MAX])
    return f"{text}, …" if len(culprits) > SHOWN_MAX else text
