"""Why a subscription runs where it runs, and why a node has what it has, in sentences."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct

from hermes_actors.coordination.room import DEFAULT_LIMITS, SETTING, OwnershipLimits, no_room
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.coordination.values import Departed, Move, Resignation
from hermes_actors.coordination.views import MemberView, SubscriptionView, unassigned_reason
from hermes_actors.management.balancing.placements import move_of
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.workload import NodeDrain

DRAIN_IGNORED = (
    "that does not count now: no node takes part that is not drained, so it keeps its work, and "
    "deliveries go on"
)


class Subject(Struct, frozen=True):
    """The subject of a question: a subscription, a node, or nothing in particular."""

    subscription: str = ""
    node: str = ""


def is_about(move: Move, subject: Subject) -> bool:
    """Whether the move concerns it."""
    if subject.subscription:
        return move.subscription == subject.subscription
    return not subject.node or subject.node in (*move.before, *move.after)


def departure_view(departed: Departed) -> dict[str, Any]:
    """The end of a node's life."""
    return {
        "node": departed.node,
        "boot": departed.boot,
        "leftAt": departed.at_ms / 1_000,
        "cause": "its lease ran out" if departed.is_expired else "it left",
    }


def resignation_view(resignation: Resignation) -> dict[str, Any]:
    """The lead of a term that was given up."""
    return {
        "node": resignation.node,
        "term": resignation.term,
        "resignedAt": resignation.at_ms / 1_000,
        "reason": resignation.reason,
    }


def reasons_of_subscription(
    view: SubscriptionView,
    state: CoordinationState,
    catalog: Catalog,
    draining: Collection[str],
    limits: OwnershipLimits = DEFAULT_LIMITS,
) -> list[str]:
    """Sentences; at least one."""
    name = view.subscription
    said: list[str] = []
    live = catalog.subscriptions.get(name)
    if live is None:
        said.append("it is no more: its nodes are about to release it")
    unassigned = unassigned_reason(state, name, draining, limits)
    if unassigned is not None:
        said.append(f"nobody runs it: {unassigned}")
    for owner in view.owners:
        partitions = _counted(len(owner.partitions), "partition")
        line = f"node {owner.node} has {partitions} of it for {_span(owner.owned_for_s)}"
        move = move_of(state, name, owner.node, owner.epoch)
        line += f": {move.reason or 'no reason was given'}" if move else _long_ago(state)
        if owner.is_to_release:
            line += "; it is to release them"
        said.append(line)
    said += [
        f"node {each.node} is to have it and waits for {each.waits_for}" for each in view.waiting
    ]
    wanted = limits.owners_default
    for constrained in (name, name.rpartition("$")[0]):
        constraint = catalog.constraints.get(constrained)
        if constraint is not None:
            why = f" ({constraint.reason})" if constraint.reason else ""
            nodes = _counted(constraint.consumers_number, "node")
            said.append(f"the constraint of {constrained} asks for {nodes}{why}")
            wanted = constraint.consumers_number
            break
    in_all = sum(len(target.partitions) for target in state.targets_of(name))
    missing = min(wanted, in_all) - len(state.targets_of(name))
    full = no_room(state, draining, limits)
    if unassigned is None and full is not None and missing > 0:
        said.append(f"{_counted(missing, 'node')} more would have it: {full}")
    return said


def reasons_of_node(
    node: str,
    members: Sequence[MemberView],
    state: CoordinationState,
    drain: NodeDrain | None,
    limits: OwnershipLimits = DEFAULT_LIMITS,
) -> list[str]:
    """Sentences; none where the node is not known."""
    said = []
    if drain is not None:
        why = f": {drain.reason}" if drain.reason else ""
        said.append(f"it is drained, by {drain.by or 'somebody'}{why}")
        if any(each.node == node and not each.is_draining for each in members):
            said.append(DRAIN_IGNORED)
    lives = [each for each in members if each.node == node]
    for each in lives:
        said.append(
            f"it takes part for {_span(each.member_for_s)} with {_cores(each.cores)}: "
            f"{_counted(each.tasks, 'task')}, weight {each.weight:.4g}"
            f"{_beside_the_mean(each, members)}"
        )
        if each.tasks >= limits.tasks_max:
            said.append(f"that is as many tasks as a node may have; {SETTING} sets how many")
        if each.targets != each.tasks:
            said.append(f"it is to have {_counted(each.targets, 'task')}")
    if len(lives) > 1:
        said.append("two processes take part under this name; give each its own")
    if not lives and any(each.node == node for each in state.departed):
        said.append("it does not take part any more")
    return said


def _beside_the_mean(one: MemberView, members: Sequence[MemberView]) -> str:
    counted = [each for each in members if not each.is_draining]
    cores = sum(each.cores for each in counted)
    mean = sum(each.weight for each in counted) / cores if cores else 0.0
    if not mean or one.is_draining:
        return ""
    percent = 100 * (one.weight / one.cores / mean - 1)
    if abs(percent) < 1:
        return ", as the mean"
    return f", {abs(percent):.0f} % {'above' if percent > 0 else 'below'} the mean"


def _long_ago(state: CoordinationState) -> str:
    return f"; why is forgotten: it is not among the last {len(state.moves)} moves"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h"


def _cores(count: float) -> str:
    return "1 core" if count == 1 else f"{count:g} cores"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
