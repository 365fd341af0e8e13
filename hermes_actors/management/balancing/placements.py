"""Tells an operator where subscriptions run and since when, as far as that is of note."""

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Any

from hermes_actors.coordination.reasons import text
from hermes_actors.coordination.room import (
    DEFAULT_LIMITS,
    OwnershipLimits,
    drained,
    is_drain_ignored,
    no_room,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Move
from hermes_actors.coordination.view import Coordination
from hermes_actors.metadata.registry import Metadata

_IN_A_STEP = 1_000


class Placements:
    """Where the datacentres whose coordination is followed here have no node for something.

    `limits` are this node's; the planners go by those of the leaders' nodes.
    """

    def __init__(
        self,
        metadata: Metadata,
        followed: Mapping[str, Coordination] = MappingProxyType({}),
        limits: OwnershipLimits = DEFAULT_LIMITS,
    ) -> None:
        self._metadata = metadata
        self._followed = dict(sorted(followed.items()))
        self._limits = limits

    def missing(self, dc: str, name: str) -> str:
        """Why no node of the datacentre is to have the subscription, where that will not pass by
        itself, and the way out; else "".
        """
        followed = self._followed.get(dc)
        if followed is None or followed.trouble or followed.state.targets_of(name):
            return ""
        return self._full(dc, followed.state) or ""

    def all_missing(self, name: str) -> dict[str, str]:
        """The same for each datacentre where it is so."""
        found = ((dc, self.missing(dc, name)) for dc in self._followed)
        return {dc: reason for dc, reason in found if reason}

    def takeover(self, dc: str, name: str, node: str) -> dict[str, Any]:
        """Since when the node has had the subscription and from whom, as far as it is known."""
        followed = self._followed.get(dc)
        return {} if followed is None or followed.trouble else takeover(followed.state, name, node)

    def notices_in_steps(self) -> Generator[None, None, list[dict[str, Any]]]:
        """Sentences, each of a datacentre; with a pause at each yield, a millisecond apart."""
        found: list[dict[str, Any]] = []
        for dc, followed in self._followed.items():
            state = followed.state
            if followed.trouble:
                continue
            if is_drain_ignored(state, self._metadata.catalog.draining_in(dc)):
                nodes = ", ".join(sorted({each.node for each in state.members.values()}))
                notice = f"all nodes that take part are drained ({nodes}), so they keep the work"
                found.append({"datacenter": dc, "text": notice})
            full = self._full(dc, state)
            if full is None:
                continue
            count = 0
            for at, name in enumerate(list(self._metadata.catalog.subscriptions)):
                count += not state.targets_of(name)
                if at % _IN_A_STEP == _IN_A_STEP - 1:
                    yield
            if count:
                notice = f"subscriptions that nobody runs: {count}: {full}"
                found.append({"datacenter": dc, "text": notice})
        return found

    def _full(self, dc: str, state: CoordinationState) -> str | None:
        draining = drained(state, self._metadata.catalog.draining_in(dc))
        return no_room(state, draining, self._limits)


def takeover(state: CoordinationState, subscription: str, node: str) -> dict[str, Any]:
    """Return `ownedForS`, in log time, with `takenOverFrom` and `takenOverBecause` where that is
    remembered; nothing for a node that owns none of it. A node tells of failures of its own time
    only.
    """
    grants = [each for each in state.grants(subscription) if state.node_of(each.boot) == node]
    if not grants:
        return {}
    grant = max(grants, key=lambda each: each.since_log_ms)
    found: dict[str, Any] = {"ownedForS": (state.clock_ms - grant.since_log_ms) / 1_000}
    move = _move_of(state, subscription, node, grant.epoch)
    if move is not None and (before := [each for each in move.before if each not in move.after]):
        found |= {"takenOverFrom": before, "takenOverBecause": text(move.reasons)}
    return found


def _move_of(state: CoordinationState, subscription: str, node: str, epoch: int) -> Move | None:
    """The one by which the owner got these partitions, as far as it is remembered: the last before
    they became its own, for later ones have left it as it was.
    """
    for move in reversed(state.moves):
        if move.subscription == subscription and node in move.after and move.offset <= epoch:
            return move
    return None
