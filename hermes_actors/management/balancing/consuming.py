"""Which consuming nodes there are, by what they tell of themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from hermes_actors.runtime.clock import Clock
from hermes_actors.status.fold import StatusFold

CONSUMERS = "consumers"
"""The role of a node that delivers."""


class ConsumingNodes:
    """The nodes of the given datacentres whose role is to consume, by their status records and by
    `members`: for each datacentre whose coordination is followed, who takes part.
    """

    def __init__(
        self,
        datacenters: Iterable[str],
        fold: StatusFold | None,
        clock: Clock,
        members: Callable[[], Mapping[str, Sequence[str]]] = dict,
    ) -> None:
        self._datacenters = sorted(set(datacenters))
        self._fold = fold
        self._clock = clock
        self._members = members

    def by_datacenter(self) -> dict[str, list[str]]:
        """For each datacentre the nodes that are there, sorted. Of a datacentre that cannot be
        heard now: those that were.
        """
        found: dict[str, set[str]] = {dc: set() for dc in self._datacenters}
        if self._fold is not None:
            for view in self._fold.nodes(self._clock.monotonic_s()):
                header = view.header
                may_be_there = view.is_there or view.is_unknown
                if may_be_there and CONSUMERS in header.roles and header.dc in found:
                    found[header.dc].add(header.node)
        for dc, members in self._members().items():
            found.setdefault(dc, set()).update(members)
        return {dc: sorted(nodes) for dc, nodes in found.items()}
