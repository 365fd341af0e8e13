"""The base class of checkers."""

from collections.abc import Sequence

from hermes_chaos.sim.history.events import Event

SHOWN_MAX = 5
"""How many of several culprits a violation names."""


class Checker:
    """One promise. It watches a history and counts what it has examined.

    A checker that examined nothing has checked nothing: that is a violation too, unless `is_rare`:
    what it is about does not come in every run.
    """

    name = ""
    is_rare = False

    def __init__(self) -> None:
        self.examined = 0
        self.violations: list[str] = []

    def watch(self, event: Event) -> None:
        """Take in an event of the history, at the moment when it happens."""

    def finish(self) -> None:
        """Judge what is only known at the end: nothing more will happen."""


def shown(culprits: Sequence[object]) -> str:
    """The first few, and that there are more."""
    text = ", ".join(str(each) for each in culprits[:SHOWN_MAX])
    return f"{text}, …" if len(culprits) > SHOWN_MAX else text
