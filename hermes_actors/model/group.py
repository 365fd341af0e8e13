"""A group of topics as Hermes shows it, and who owns it, which Hermes does not know."""

from msgspec import Struct, field

from hermes_actors.model.topic import Owner


class Group(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A group. Both further fields are left out of JSON when nothing was set.

    `owner` owns all topics of the group beside their own owners. `subscribers` may subscribe to
    the group's topics that restrict subscribing.
    """

    group_name: str
    owner: Owner | None = None
    subscribers: list[Owner] = field(default_factory=list)
