"""The owners of partitions in a datacentre, computed independently from the log for the checkers.

It shares no code with the product's fold, so that an error which all nodes make alike is found too.
It keeps only what checkers need, without shares and loads.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hermes_actors.coordination.commands import (
    Heartbeat,
    Join,
    Leave,
    Plan,
    Release,
    Stopping,
    TermClaim,
)
from hermes_chaos.sim.history.standing import Coordinated

_LEASE_MS = 3_000
_STEP_MAX_MS = 1_000
_IDLE_WEIGHT = 0.2


@dataclass(frozen=True)
class Holding:
    """The partitions of a subscription that one boot owns, since the record at `epoch`."""

    boot: str
    partitions: frozenset[int]
    epoch: int


class Ledger:
    """The state after the last record."""

    def __init__(self, clock_ms: int = 0) -> None:
        self.clock_ms = clock_ms
        """Log time, which may start after forgotten records."""
        self.members: dict[str, str] = {}
        """The living members: boot → node."""
        self.holdings: dict[str, list[Holding]] = {}
        """By subscription."""
        self.moves: list[int] = []
        """The offsets of the plans that changed an intended owner."""
        self._heard_ms: dict[str, int] = {}
        self._gone: set[str] = set()
        self._stopping: set[str] = set()
        self._last_ms: int | None = None
        self._leader = ""
        self._term = 0
        self._plan = -1
        self._targets: dict[str, dict[str, frozenset[int]]] = {}

    def fold(self, record: Coordinated) -> None:
        """Fold the next record."""
        if self._last_ms is not None:
            self.clock_ms += min(_STEP_MAX_MS, max(0, record.timestamp_ms - self._last_ms))
        self._last_ms = record.timestamp_ms
        expired = [b for b, at in self._heard_ms.items() if self.clock_ms - at > _LEASE_MS]
        for boot in expired:
            self._forget(boot)
        if expired:
            # Free partitions go to their targets before the record can change these.
            self._grant(record.offset)
        match record.said:
            case Join(boot=boot, node=node) if boot not in self.members and boot not in self._gone:
                self.members[boot] = node
                self._heard_ms[boot] = self.clock_ms
            case Heartbeat(boot=boot) if boot in self.members:
                self._heard_ms[boot] = self.clock_ms
            case Stopping(boot=boot) if boot in self.members:
                self._stopping.add(boot)
                if self._leader == boot:
                    self._leader = ""
            case Leave(boot=boot):
                self._forget(boot)
            case TermClaim(boot=boot, term=term):
                may_lead = boot in self.members and boot not in self._stopping
                if not self._leader and may_lead and term == self._term + 1:
                    self._leader, self._term = boot, term
            case Plan() as plan:
                self._take(plan, record.offset)
            case Release(boot=boot, subscription=name, epoch=epoch):
                self.holdings[name] = [
                    each
                    for each in self.holdings.get(name, [])
                    if (each.boot, each.epoch) != (boot, epoch)
                ]
            case _:
                pass
        self._grant(record.offset)

    def holding(self, subscription: str, partition: int) -> Holding | None:
        """The owner of the partition and its epoch; None if nobody owns it."""
        for each in self.holdings.get(subscription, ()):
            if partition in each.partitions:
                return each
        return None

    @property
    def planned(self) -> list[str]:
        """The subscriptions that should have owners."""
        return [name for name, targets in self._targets.items() if targets]

    def tasks(self, weights: Mapping[str, float]) -> dict[str, list[float]]:
        """By living boot, the costs of the subscriptions that it owns parts of: its part of the
        subscription's weight, but at least the cost of an idle one.
        """
        found: dict[str, list[float]] = {boot: [] for boot in self.members}
        for name, some in self.holdings.items():
            count = sum(len(each.partitions) for each in some)
            for each in some:
                weight = weights.get(name, 0.0) * len(each.partitions) / max(1, count)
                found[each.boot].append(max(_IDLE_WEIGHT, weight))
        return found

    def _forget(self, boot: str) -> None:
        if self.members.pop(boot, None) is None:
            return
        del self._heard_ms[boot]
        self._gone.add(boot)
        if self._leader == boot:
            self._leader = ""
        for name, some in self.holdings.items():
            self.holdings[name] = [each for each in some if each.boot != boot]

    def _take(self, plan: Plan, offset: int) -> None:
        if not self._leader or (plan.boot, plan.term, plan.base) != (
            self._leader,
            self._term,
            self._plan,
        ):
            return
        self._plan = offset
        before = dict(self._targets)
        for each in plan.assignments:
            targets = {target.boot: frozenset(target.partitions) for target in each.targets}
            self._targets[each.subscription] = targets
        if any(before.get(name, {}) != targets for name, targets in self._targets.items()):
            self.moves.append(offset)

    def _grant(self, offset: int) -> None:
        """Grant a target to a member that is not stopping, once nobody holds any of its
        partitions.
        """
        for name, targets in self._targets.items():
            before = self.holdings.setdefault(name, [])
            if len(before) == len(targets) and all(
                targets.get(each.boot) == each.partitions for each in before
            ):
                continue
            held = {partition for each in before for partition in each.partitions}
            others = {each.boot for each in before} | self._stopping
            granted = [
                Holding(boot, partitions, offset)
                for boot, partitions in targets.items()
                if boot in self.members and boot not in others and held.isdisjoint(partitions)
            ]
            self.holdings[name] = before + granted
