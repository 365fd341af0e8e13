"""Which node runs which subscription while shares are static: equal for every node, few moves.

Rendezvous hashing (Thaler and Ravishankar, 1998): each node scores each subscription, the highest
score owns it. When a node joins or leaves, only the subscriptions it gains or had move. Pure.
"""

from collections.abc import Iterable
from hashlib import blake2b


def owner_of(subscription: str, nodes: Iterable[str]) -> str | None:
    """The node that runs this subscription; None when there is no node.

    The same on every node and in every process, whatever the order of `nodes`.
    """
    return max(nodes, key=lambda node: (_score(subscription, node), node), default=None)


def shares(subscriptions: Iterable[str], nodes: Iterable[str]) -> dict[str, list[str]]:
    """For each node the subscriptions that it runs, sorted."""
    known = sorted(set(nodes))
    found: dict[str, list[str]] = {node: [] for node in known}
    for subscription in sorted(subscriptions):
        owner = owner_of(subscription, known)
        if owner is not None:
            found[owner].append(subscription)
    return found


def _score(subscription: str, node: str) -> bytes:
    # Not Python's hash(): it differs between processes. The length keeps the two names apart.
    text = f"{len(node)}:{node}{subscription}"
    return blake2b(text.encode(), digest_size=8).digest()
