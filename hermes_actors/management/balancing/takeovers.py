"""Since when a node has had a subscription, and from whom: what failed before is not its own."""

from typing import Any

from hermes_actors.coordination.state import State
from hermes_actors.coordination.values import Move


def takeover(state: State, subscription: str, node: str) -> dict[str, Any]:
    """`ownedForS`, in log time, with `takenOverFrom` and `takenOverBecause` where that is
    remembered; nothing for who owns none of it. A node tells of failures of its own time only.
    """
    grants = [each for each in state.grants(subscription) if state.node_of(each.boot) == node]
    if not grants:
        return {}
    grant = max(grants, key=lambda each: each.since_log_ms)
    found: dict[str, Any] = {"ownedForS": (state.clock_ms - grant.since_log_ms) / 1_000}
    move = move_of(state, subscription, node, grant.epoch)
    if move is not None and (before := [each for each in move.before if each not in move.after]):
        found |= {"takenOverFrom": before, "takenOverBecause": move.reason}
    return found


def move_of(state: State, subscription: str, node: str, epoch: int) -> Move | None:
    """The one by which the owner got these partitions, as far as it is remembered: the last before
    they became its own, for later ones have left it as it was.
    """
    for move in reversed(state.moves):
        if move.subscription == subscription and node in move.after and move.offset <= epoch:
            return move
    return None
