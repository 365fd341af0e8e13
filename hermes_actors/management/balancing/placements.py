"""Explains to operators why a subscription has no owner, and since when a node owns one."""

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
    """Missing owners and takeovers in the datacentres whose coordination log this node follows.

    `limits` are from this node's configuration; the planners use those of the leaders' nodes.
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
        """Why no node of the datacentre can own the subscription, and what to do about it. Empty
        string if it has an owner, or will get one without anybody's help.
        """
        followed = self._followed.get(dc)
        if followed is None or followed.trouble or followed.state.targets_of(name):
            return ""
        return self._full(dc, followed.state) or ""

    def all_missing(self, name: str) -> dict[str, str]:
        """The result of `missing` for each datacentre where it is not empty."""
        found = ((dc, self.missing(dc, name)) for dc in self._followed)
        return {dc: reason for dc, reason in found if reason}

    def takeover(self, dc: str, name: str, node: str) -> dict[str, Any]:
        """The result of `takeover` in this datacentre; empty if its coordination is not followed
        now.
        """
        followed = self._followed.get(dc)
        return {} if followed is None or followed.trouble else takeover(followed.state, name, node)

    def notices_in_steps(self) -> Generator[None, None, list[dict[str, Any]]]:
        """The notices for operators, each with its datacentre. Yields about every millisecond, so
        that other tasks can run.
        """
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
                notice = f"subscriptions that no node runs: {count}: {full}"
                found.append({"datacenter": dc, "text": notice})
        return found

    def _full(self, dc: str, state: CoordinationState) -> str | None:
        draining = drained(state, self._metadata.catalog.draining_in(dc))
        return no_room(state, draining, self._limits)


def takeover(state: CoordinationState, subscription: str, node: str) -> dict[str, Any]:
    """Return `ownedForS`, in log time, and `takenOverFrom` and `takenOverBecause` if the state
    still holds the move. Empty if the node owns nothing of the subscription.
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
    """The move that gave the owner these partitions, if the state still holds it: the last one
    before the grant.
    """
    for move in reversed(state.moves):
        if move.subscription == subscription and node in move.after and move.offset <= epoch:
            return move
    return None
