"""Decides which nodes may own tasks, and whether they have room for more."""

from collections.abc import Collection

from msgspec import Struct

from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Member

SETTING = "consumers.balancer.tasks_per_node_max"


class OwnershipLimits(Struct, frozen=True):
    """The maximum number of tasks on a node, and the default number of owners of a subscription."""

    tasks_max: int = 1_000
    owners_default: int = 2


DEFAULT_LIMITS = OwnershipLimits()


def drained(state: CoordinationState, asked: Collection[str]) -> tuple[str, ...]:
    """The nodes that must own nothing, sorted, from those in `asked`.

    Empty if no other node takes part, apart from nodes that are stopping: the drained nodes then
    carry everything, rather than nobody.
    """
    if all(member.node in asked for member in _staying(state)):
        return ()
    return tuple(sorted(asked))


def is_drain_ignored(state: CoordinationState, asked: Collection[str]) -> bool:
    """True if the draining is ignored because no other nodes take part."""
    return bool(asked and _staying(state)) and not drained(state, asked)


def no_room(
    state: CoordinationState, draining: Collection[str], limits: OwnershipLimits
) -> str | None:
    """Why no node can own more tasks, and the remedy; None if there is room, or no node. `draining`
    is the result of `drained`.
    """
    nodes = [each for each in _staying(state) if each.node not in draining]
    if not nodes or any(len(state.grants_of(each.boot)) < limits.tasks_max for each in nodes):
        return None
    return (
        f"no node has room: nodes: {len(nodes)}, each with its maximum of tasks "
        f"({limits.tasks_max}); start more nodes, or raise {SETTING}"
    )


def _staying(state: CoordinationState) -> list[Member]:
    """The members that are not stopping."""
    return [member for member in state.members.values() if not member.is_stopping]
