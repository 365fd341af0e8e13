"""Tells which nodes may own something, and whether they have room for more."""

from collections.abc import Collection

from msgspec import Struct

from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Member

SETTING = "consumers.balancer.tasks_per_node_max"


class OwnershipLimits(Struct, frozen=True):
    """How many tasks a node may have, and how many owners a subscription is to have where nobody
    has asked for another number.
    """

    tasks_max: int = 1_000
    owners_default: int = 2


DEFAULT_LIMITS = OwnershipLimits()


def drained(state: CoordinationState, asked: Collection[str]) -> tuple[str, ...]:
    """The nodes that are to own nothing, sorted, of those for which that was asked. None, when no
    other node takes part, but for some that are about to leave: what is drained then carries
    everything, rather than nobody.
    """
    if all(member.node in asked for member in _staying(state)):
        return ()
    return tuple(sorted(asked))


def is_drain_ignored(state: CoordinationState, asked: Collection[str]) -> bool:
    """True when nodes that take part were to own nothing, and own all because no others do."""
    return bool(asked and _staying(state)) and not drained(state, asked)


def no_room(
    state: CoordinationState, draining: Collection[str], limits: OwnershipLimits
) -> str | None:
    """Why nothing more can be owned, and the way out; None while there is room, or no node.
    `draining` as `drained` gives them.
    """
    nodes = [each for each in _staying(state) if each.node not in draining]
    if not nodes or any(len(state.grants_of(each.boot)) < limits.tasks_max for each in nodes):
        return None
    return (
        f"no node has room: nodes: {len(nodes)}, each with as many tasks as it may have "
        f"({limits.tasks_max}); start more nodes, or raise {SETTING}"
    )


def _staying(state: CoordinationState) -> list[Member]:
    """The members that are not about to leave."""
    return [member for member in state.members.values() if not member.is_stopping]
