"""How many owners each subscription is to have, and why not more, so that all of them have room."""

from collections.abc import Sequence

from msgspec import Struct

from hermes_actors.balancer.workload.problem import PlannerSettings, Work


class OwnerDemand(Struct, frozen=True):
    """How many owners, what decided it (see `OWNERS` in coordination/reasons), and for how many
    more there is no room.
    """

    owners: int
    cause: str
    missing: int = 0


def demands(works: Sequence[Work], nodes: int, settings: PlannerSettings) -> list[OwnerDemand]:
    """The demand of each work, with `nodes` that may own something.

    Where the nodes have not room for all, each gets its first owner before any gets a second.
    """
    wanted = [_wanted(work, nodes, settings) for work in works]
    room = nodes * settings.tasks_max
    if sum(each.owners for each in wanted) <= room:
        return wanted
    given = [0] * len(works)
    for number in range(max(each.owners for each in wanted)):
        asking = [at for at, each in enumerate(wanted) if each.owners > number]
        # Those who have so many already keep them: nothing moves to make room for a mere equal.
        asking.sort(key=lambda at: (len(works[at].owners) <= number, works[at].name))
        for at in asking[:room]:
            given[at] += 1
        room -= min(room, len(asking))
    return [
        each if count == each.owners else OwnerDemand(count, "room", each.owners - count)
        for each, count in zip(wanted, given, strict=True)
    ]


def _wanted(work: Work, nodes: int, settings: PlannerSettings) -> OwnerDemand:
    if work.is_suspended:
        asked = OwnerDemand(1, "suspended")
    elif work.constraint is not None:
        asked = OwnerDemand(max(1, work.constraint), "constraint")
    else:
        asked = OwnerDemand(settings.owners_default, "default")
    limits = (asked, OwnerDemand(work.partitions, "partitions"), OwnerDemand(nodes, "nodes"))
    return min(limits, key=lambda each: each.owners)
