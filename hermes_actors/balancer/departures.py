"""The leader's log lines about members that are gone, each once: lost ones as a warning, those that
left as news.

A leader's own loss is told by the one that follows it.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import LEASE_MS, Departed

_logger = logging.getLogger(__name__)


class Departures:
    """Knows which departures have been told."""

    def __init__(self, dc: str) -> None:
        self._dc = dc
        self._told = ""

    def begin(self, state: CoordinationState, predecessor: str) -> None:
        """Begin to tell departures: those too that came after the predecessor's lead, whose boot
        this is, and its own. "" for none: then all before this are old news.
        """
        boots = [departed.boot for departed in state.departed]
        if predecessor in boots:
            at = boots.index(predecessor)
            self._told = boots[at - 1] if at else ""
        else:
            self._told = boots[-1] if boots else ""

    def tell(self, state: CoordinationState, changed: Iterable[str]) -> None:
        """Log the departures that have not been told. `changed` are the subscriptions that may have
        lost an owner by them; nothing has been planned since.
        """
        new = _after(self._told, state.departed)
        if not new:
            return
        self._told = new[-1].boot
        gone = {departed.boot for departed in new}
        tasks = Counter(
            target.boot
            for name in changed
            for target in state.targets_of(name)
            if target.boot in gone
        )
        present = {member.node for member in state.members.values()}
        for departed in new:
            self._log(departed, tasks[departed.boot], departed.node in present)

    def _log(self, departed: Departed, tasks: int, is_back: bool) -> None:
        what = f"its {tasks} tasks move" if tasks else "it had no tasks"
        if tasks == 1:
            what = "its 1 task moves"
        if not departed.is_expired:
            _logger.info("node %s has left %s; %s", departed.node, self._dc, what)
            return
        _logger.warning(
            "node %s is gone from %s: not heard of for %d s; %s%s",
            departed.node,
            self._dc,
            LEASE_MS // 1_000,
            what,
            "; it has joined again since" if is_back else "",
        )


def _after(boot: str, departed: Sequence[Departed]) -> list[Departed]:
    """The departures after that boot's, oldest first; all when it is not among them any more."""
    return list(takewhile(lambda each: each.boot != boot, reversed(departed)))[::-1]
