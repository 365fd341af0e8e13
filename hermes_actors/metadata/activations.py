"""Activations of subscriptions' lives that are over go; one of a life that goes on never does.

Each datacentre deletes its own only, which nobody else writes: so a newer life's activation and the
deletion lie in one log, and the precondition decides. A datacentre that deleted another's could
meet a newer one on its way, which a deletion beats.
"""

from collections.abc import Callable

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, delete
from hermes_actors.metadata.keys import activation_key, subscription_key
from hermes_actors.metadata.state import Register


def stale_activations(
    catalog: Catalog,
    register_of: Callable[[str], Register | None],
    dc: str,
    count_max: int,
) -> list[Change]:
    """The deletions of this datacentre's activations of lives that are certainly over, `count_max`
    at most.
    """
    changes: list[Change] = []
    for name, incarnation in catalog.activations_in(dc):
        if len(changes) == count_max:
            break
        parent = subscription_key(name)
        own = activation_key(name, dc)
        subscription, activation = register_of(parent), register_of(own)
        # A subscription that is not there at all may be on its way from another datacentre.
        if subscription is None or activation is None or subscription.incarnation <= incarnation:
            continue
        # Were the deletion lost with a log, the life would go on.
        is_over = Alive(parent, subscription.incarnation)
        changes.append(
            delete(
                own,
                StampIs(own, activation.stamp),
                is_over if subscription.is_alive else Absent(parent),
            )
        )
    return changes
