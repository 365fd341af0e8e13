"""Which node consumed which partition when, from a datacentre's whole coordination log."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from math import ceil

from hermes_actors.coordination.commands import COORDINATION_TOPIC, Undecodable, decode
from hermes_actors.coordination.state import CoordinationState
from hermes_actors.log.base import Log
from hermes_chaos.live.logs import read_all

Partition = tuple[str, int]
"""Subscription and partition."""


@dataclass
class Owners:
    """For each partition its owners' names, each with the time from when on it owned it (Unix
    epoch).
    """

    since_ms: dict[Partition, list[tuple[int, str]]] = field(default_factory=dict)

    def at(self, at_ms: int) -> dict[Partition, str]:
        """The owner of each partition at that time."""
        found = {}
        for partition, owners in self.since_ms.items():
            before = [name for since_ms, name in owners if since_ms <= at_ms]
            if before:
                found[partition] = before[-1]
        return found

    def moved_ms(self, begin_ms: int, end_ms: int) -> list[int]:
        """When partitions changed their owners in that time, sorted; one entry for each change."""
        return sorted(
            since_ms
            for owners in self.since_ms.values()
            for since_ms, _ in owners[1:]
            if begin_ms < since_ms <= end_ms
        )

    def each_has(self, at_ms: int) -> list[int]:
        """The numbers of partitions that the owners have at that time, sorted."""
        return sorted(Counter(self.at(at_ms).values()).values())

    def least_without(self, leaving: Collection[str], at_ms: int) -> int:
        """The least possible moves if these nodes leave."""
        return sum(name in leaving for name in self.at(at_ms).values())

    def least_with(self, joining: int, at_ms: int) -> int:
        """The least possible moves if so many nodes join, and no node may then have more
        partitions than needed.
        """
        has = self.each_has(at_ms)
        share = ceil(sum(has) / (len(has) + joining))
        return sum(max(0, each - share) for each in has)


async def read_owners(log: Log) -> Owners:
    """Fold the log of this datacentre, which must still have all its records."""
    state, owners = CoordinationState(), Owners()
    for record in await read_all(log, COORDINATION_TOPIC):
        try:
            said = decode(record.value)
        except Undecodable:
            said = None
        for name in state.apply(record.offset, record.timestamp_ms, said).subscriptions:
            for grant in state.grants(name):
                node = state.node_of(grant.boot)
                for partition in grant.partitions:
                    past = owners.since_ms.setdefault((name, partition), [])
                    if not past or past[-1][1] != node:
                        past.append((record.timestamp_ms, node))
    return owners
