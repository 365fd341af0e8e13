"""Deletes what lives of subscriptions left behind: re-drives, expiries, retransmissions,
activations.
"""

from collections.abc import Callable

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, delete
from hermes_actors.metadata.keys import activation_key, life_of, parse_key, subscription_key
from hermes_actors.metadata.redrives import EXPIRY, REDRIVE
from hermes_actors.metadata.state import Register
from hermes_actors.model.names import SubscriptionName

RegisterOf = Callable[[str], Register | None]


def left_behind(catalog: Catalog, register_of: RegisterOf, count_max: int) -> list[Change]:
    """The deletions of what lives that are certainly over have left, `count_max` at most.

    Each life has keys of its own, so a deletion cannot meet a newer one of a later life on its way.
    """
    orders = (f"{REDRIVE}/", f"{EXPIRY}/")
    letters = [key for key in sorted(catalog.others) if key.startswith(orders)]
    changes: list[Change] = []
    for key in (*catalog.seek_keys(), *letters):
        if len(changes) == count_max:
            break
        life, register = life_of(parse_key(key)), register_of(key)
        if life is not None and register is not None and register.is_alive:
            changes += _deletion(key, register, *life, register_of)
    return changes


def stale_activations(
    catalog: Catalog, register_of: RegisterOf, dc: str, count_max: int
) -> list[Change]:
    """The deletions of this datacentre's activations of lives that are certainly over, `count_max`
    at most.

    Each datacentre deletes its own only, which nobody else writes: so a newer life's activation and
    the deletion lie in one log, and the precondition decides. A datacentre that deleted another's
    could meet a newer one on its way, which a deletion beats.
    """
    changes: list[Change] = []
    for name, incarnation in catalog.activations_in(dc):
        if len(changes) == count_max:
            break
        own = activation_key(name, dc)
        activation = register_of(own)
        if activation is not None:
            changes += _deletion(own, activation, name, incarnation, register_of)
    return changes


def _deletion(
    key: str,
    register: Register,
    name: SubscriptionName,
    incarnation: int,
    register_of: RegisterOf,
) -> list[Change]:
    """The deletion of a key of that life; none while the life may go on."""
    parent = subscription_key(name)
    subscription = register_of(parent)
    # A subscription that is not there at all may be on its way from another datacentre.
    if subscription is None or subscription.incarnation <= incarnation:
        return []
    # Were the deletion lost with a log, the life would go on.
    is_over = Alive(parent, subscription.incarnation)
    return [
        delete(
            key,
            StampIs(key, register.stamp),
            is_over if subscription.is_alive else Absent(parent),
        )
    ]
