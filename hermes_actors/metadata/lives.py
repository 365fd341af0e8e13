"""Deletes the registers of ended incarnations of subscriptions: re-drives, retransmissions,
activations.
"""

from collections.abc import Callable

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, delete
from hermes_actors.metadata.keys import (
    REDRIVE,
    activation_key,
    life_of,
    parse_key,
    subscription_key,
)
from hermes_actors.metadata.state import Register
from hermes_actors.model.names import SubscriptionName

RegisterOf = Callable[[str], Register | None]


def left_behind(catalog: Catalog, register_of: RegisterOf, count_max: int) -> list[Change]:
    """Return deletions for re-drives and retransmissions of incarnations that are certainly over,
    at most `count_max`.

    Each incarnation has separate keys, so a deletion cannot hit a register of a later one.
    """
    redrives = [key for key in sorted(catalog.others) if key.startswith(f"{REDRIVE}/")]
    changes: list[Change] = []
    for key in (*catalog.seek_keys(), *redrives):
        if len(changes) == count_max:
            break
        life, register = life_of(parse_key(key)), register_of(key)
        if life is not None and register is not None and register.is_alive:
            changes += _deletion(key, register, *life, register_of)
    return changes


def stale_activations(
    catalog: Catalog, register_of: RegisterOf, dc: str, count_max: int
) -> list[Change]:
    """Return deletions for this datacentre's activations of incarnations that are certainly over,
    at most `count_max`.

    Each datacentre deletes only its own activations, which no other datacentre writes. So the
    deletion and a newer activation are in one log, and the precondition decides. If a datacentre
    deleted another's activation, a newer one on its way would lose against the deletion.
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
    """The deletion of a key of that incarnation; empty while the incarnation may continue."""
    parent = subscription_key(name)
    subscription = register_of(parent)
    # A missing subscription may still arrive from another datacentre.
    if subscription is None or subscription.incarnation <= incarnation:
        return []
    # The precondition protects against the loss of the subscription's deletion with a log: the
    # incarnation would then continue.
    is_over = Alive(parent, subscription.incarnation)
    return [
        delete(
            key,
            StampIs(key, register.stamp),
            is_over if subscription.is_alive else Absent(parent),
        )
    ]
