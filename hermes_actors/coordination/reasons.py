"""The reasons why a subscription's owners change: codes with parameters, and their text."""

from collections.abc import Sequence

from msgspec import Struct

REASONS_MAX = 20

NEW = "new"
GONE = "gone"
NODE_LEFT = "node-left"
NODE_STOPS = "node-stops"
NODE_DRAINED = "node-drained"
NODE_FULL = "node-full"
NO_ROOM = "no-room"
OWNERS = "owners"
"""Its `cause` is suspended, pull, constraint, default, partitions, nodes or room."""
PARTITIONS = "partitions"
BALANCE = "balance"
DIVIDED = "divided"
SHARES = "shares"

_TEXTS = {
    NEW: "new, owners: {owners}",
    GONE: "it no longer exists",
    NODE_LEFT: "node {node} left",
    NODE_STOPS: "node {node} stops",
    NODE_DRAINED: "node {node} is drained",
    NODE_FULL: "node {node} has its maximum of {tasks} tasks",
    NO_ROOM: "owners missing for lack of room: {missing}",
    OWNERS: "owners: {owners} (decided by: {cause})",
    PARTITIONS: "partitions: {partitions}",
    BALANCE: "weight {weight} from {source} to {sink}",
    DIVIDED: "its partitions are divided evenly",
    SHARES: "new shares of its rate",
}


class Reason(Struct, frozen=True):
    """One reason for a change. An unknown code, from another version, is shown unchanged."""

    code: str
    params: dict[str, str | int | float] = {}


def text(reasons: Sequence[Reason]) -> str:
    """The reasons as text, the most important first."""
    return "; ".join(map(_one, reasons))


def _one(reason: Reason) -> str:
    try:
        return _TEXTS[reason.code].format_map(reason.params)
    except (KeyError, ValueError, IndexError):
        return " ".join([reason.code, *(f"{name}={each}" for name, each in reason.params.items())])
