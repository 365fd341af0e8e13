"""Who owns a group, and so all that is in it."""

import msgspec

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.group import Group
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Owner

NOBODY = Owner("", "")
"""The owner of a group whose owner cannot be read: administrators alone have rights there."""


def group_named(catalog: Catalog, name: str) -> Group:
    """The group as it is now; one without an owner when it is not there.

    What cannot be read, written by a later version or by hand, gives nobody a right: an owner is
    then NOBODY, since a group without one is open to all.
    """
    live = catalog.groups.get(name)
    if live is None:
        return Group(name)
    owner, subscribers = live.attributes.get("owner"), live.attributes.get("subscribers")
    try:
        known_owner = msgspec.convert(owner, Owner | None)
    except msgspec.ValidationError:
        known_owner = NOBODY
    try:
        known_subscribers = msgspec.convert(subscribers or [], list[Owner])
    except msgspec.ValidationError:
        known_subscribers = []
    return Group(name, known_owner, known_subscribers)


def owners_of(catalog: Catalog, topic: TopicName, *owners: Owner) -> tuple[Owner, ...]:
    """These owners, and the one of the topic's group if it has one."""
    owner = group_named(catalog, topic.group).owner
    return owners if owner is None else (*owners, owner)
