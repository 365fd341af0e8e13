"""Explains to operators why a subscription has no owner."""

from collections.abc import Generator, Mapping
from types import MappingProxyType
from typing import Any

from hermes_actors.coordination.room import (
    DEFAULT_LIMITS,
    OwnershipLimits,
    drained,
    is_drain_ignored,
    no_room,
)
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.view import Coordination
from hermes_actors.metadata.registry import Metadata

_IN_A_STEP = 1_000


class Placements:
    """Missing owners in the datacentres whose coordination log this node follows.

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
