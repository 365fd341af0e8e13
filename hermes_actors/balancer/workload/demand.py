"""Decides how many owners each subscription gets, and why not more, so that the nodes have room for
all.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes_actors.balancer.workload.problem import PlannerSettings, Work


class OwnerDemand(Struct, frozen=True):
    """The number of owners, the cause (see `OWNERS` in coordination/reasons), and how many more
    were wanted but have no room.
    """

    owners: int
    cause: str
    missing: int = 0


def demands(works: Sequence[Work], nodes: int, settings: PlannerSettings) -> list[OwnerDemand]:
    """The demand of each work, for `nodes` that may own tasks.

    If the nodes lack room, each work gets its first owner before any gets a second.
    """
    wanted = [_wanted(work, nodes, settings) for work in works]
    room = nodes * settings.tasks_max
    if sum(each.owners for each in wanted) <= room:
        return wanted
    given = [0] * len(works)
    for number in range(max(each.owners for each in wanted)):
        asking = [at for at, each in enumerate(wanted) if each.owners > number]
        # Works that already have this owner come first, so that nothing moves in favour of an
        # equal.
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
    elif work.is_pulled:
        asked = OwnerDemand(1, "pull")
    elif work.constraint is not None:
        asked = OwnerDemand(max(1, work.constraint), "constraint")
    else:
        asked = OwnerDemand(settings.owners_default, "default")
    limits = (asked, OwnerDemand(work.partitions, "partitions"), OwnerDemand(nodes, "nodes"))
    return min(limits, key=lambda each: each.owners)
