"""Retransmissions and re-drives of subscriptions' lives that are over go; no other one ever does.

Each life has keys of its own, so a deletion cannot meet a newer one of a later life on its way.
"""

from collections.abc import Callable

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import Absent, Alive, Change, StampIs, delete
from hermes_actors.metadata.keys import life_of, parse_key, subscription_key
from hermes_actors.metadata.redrives import REDRIVE
from hermes_actors.metadata.state import Register


def left_behind(
    catalog: Catalog, register_of: Callable[[str], Register | None], count_max: int
) -> list[Change]:
    """The deletions of what lives that are certainly over have left, `count_max` at most."""
    redrives = [key for key in sorted(catalog.others) if key.startswith(f"{REDRIVE}/")]
    changes: list[Change] = []
    for key in (*catalog.seek_keys(), *redrives):
        if len(changes) == count_max:
            break
        life = life_of(parse_key(key))
        register = register_of(key)
        if life is None or register is None or not register.is_alive:
            continue
        name, incarnation = life
        parent = subscription_key(name)
        subscription = register_of(parent)
        # A subscription that is not there at all may be on its way from another datacentre.
        if subscription is None or subscription.incarnation <= incarnation:
            continue
        # Were the deletion lost with a log, the life would go on.
        is_over = Alive(parent, subscription.incarnation)
        changes.append(
            delete(
                key,
                StampIs(key, register.stamp),
                is_over if subscription.is_alive else Absent(parent),
            )
        )
    return changes
