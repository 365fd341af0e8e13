"""A group of topics as Hermes shows it, with its owners, which Hermes does not have."""

from msgspec import Struct, field

from hermes_actors.model.topic import Owner


class Group(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A group. The fields after the name are left out of JSON if they are not set.

    `owner` owns all topics of the group, in addition to the topics' owners. `subscribers` may
    subscribe to topics of the group that restrict subscribing.
    """

    group_name: str
    owner: Owner | None = None
    subscribers: list[Owner] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
