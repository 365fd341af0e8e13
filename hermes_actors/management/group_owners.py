"""Who owns a group, and so all that is in it."""

import msgspec

from hermes_actors.metadata.catalog import Catalog
from hermes_actors.model.group import Group
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import Owner


def group_named(catalog: Catalog, name: str) -> Group:
    """The group as it is now; one without an owner when it is not there."""
    live = catalog.groups.get(name)
    if live is None:
        return Group(name)
    try:
        return msgspec.convert({**live.attributes, "groupName": name}, Group)
    except msgspec.ValidationError:
        # Written by a later version, or by hand: what cannot be read gives nobody a right.
        return Group(name)


def owners_of(catalog: Catalog, topic: TopicName, *owners: Owner) -> tuple[Owner, ...]:
    """These owners, and the one of the topic's group if it has one."""
    owner = group_named(catalog, topic.group).owner
    return owners if owner is None else (*owners, owner)
