"""Partitions among a subscription's owners: even, covering, and as they were where they can be.

An owner whose partitions change has to start anew, so a set is kept whole whenever its size is one
of the two that an even division has.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from hermes_actors.balancer.workload.problem import PlannedOwner
from hermes_actors.balancer.workload.restarts import MOVES_MAX


class Restarting(Struct, frozen=True):
    """The restart that is under way: whose nodes have been restarted, by boot id, and how often
    each partition has moved since it began.
    """

    restarted: frozenset[str]
    moves: Mapping[int, int]

    def order(self, boot: str, partition: int) -> int:
        """Which of its partitions the boot keeps or takes first, the least value: where they stay,
        those that have moved most often; where they must leave again, those that have least.
        """
        moves = self.moves.get(partition, 0)
        return -moves if boot in self.restarted else moves

    def keeps(self, owner: PlannedOwner) -> int:
        """How many of its partitions it should keep: those that must not move again, or those that
        need not yet.
        """
        moves = [self.moves.get(each, 0) for each in owner.partitions]
        if owner.boot in self.restarted:
            return sum(each >= MOVES_MAX for each in moves)
        return sum(not each for each in moves)


class Slot(Struct, frozen=True):
    """A set of partitions for one owner: `boot` keeps it or takes it, "" if that is still open.
    `share` is that of who had it, None if nobody had.
    """

    partitions: tuple[int, ...]
    boot: str = ""
    share: float | None = None


def divide(
    partitions: int,
    count: int,
    owners: Sequence[PlannedOwner],
    kept: frozenset[str],
    restarting: Restarting | None = None,
) -> list[Slot]:
    """`count` slots that cover partitions 0 to `partitions`, in the order of their lowest one.

    `owners` are those by the last plan, `kept` the boot ids of at most `count` of them that stay;
    the sets of the others are open, and stay as they are if they can.
    """
    assert 0 < count <= partitions
    assert len(kept) <= count
    # Who stays chooses first: the others' sets have no consumer that would have to start anew.
    ranked = sorted(owners, key=lambda owner: (owner.boot not in kept, owner.partitions))
    left, free = _sizes(partitions, count), set(range(partitions))
    whole: list[Slot] = []
    broken: list[PlannedOwner] = []
    for owner in ranked:
        if left.get(len(owner.partitions), 0) and free.issuperset(owner.partitions):
            left[len(owner.partitions)] -= 1
            free.difference_update(owner.partitions)
            boot = owner.boot if owner.boot in kept else ""
            whole.append(Slot(tuple(sorted(owner.partitions)), boot, owner.share))
        else:
            broken.append(owner)
    if restarting is not None and any(owner.boot in kept for owner in broken):
        # Who keeps its set whole might leave others to give away what must stay.
        whole, broken = [], ranked
        left, free = _sizes(partitions, count), set(range(partitions))
    # Who stays must not be left without a slot because a set without an owner was kept whole.
    staying = sum(owner.boot in kept for owner in broken)
    while sum(left.values()) < staying:
        slot = next(slot for slot in reversed(whole) if not slot.boot)
        whole.remove(slot)
        left[len(slot.partitions)] += 1
        free.update(slot.partitions)
    cut = _cut(broken, kept, left, free, restarting)
    return sorted(whole + cut, key=lambda slot: slot.partitions)


def _sizes(partitions: int, count: int) -> dict[int, int]:
    """The sizes of an even division, and how many slots have each."""
    small, larger = divmod(partitions, count)
    return {small + 1: larger, small: count - larger}


def _cut(
    broken: Sequence[PlannedOwner],
    kept: frozenset[str],
    left: dict[int, int],
    free: set[int],
    restarting: Restarting | None,
) -> list[Slot]:
    """The remaining sizes, from what is free: each owner keeps of its own what fits."""
    sizes = sorted((size for size, times in left.items() for _ in range(times)), reverse=True)
    cut: list[tuple[PlannedOwner | None, list[int]]] = []
    for holder, size in zip(_holders(broken, kept, sizes, restarting), sizes, strict=True):
        own = (
            _first(free.intersection(holder.partitions), size, holder, restarting) if holder else []
        )
        free.difference_update(own)
        cut.append((holder, own))
    slots = []
    for (holder, own), size in zip(cut, sizes, strict=True):
        more = _first(free, size - len(own), holder, restarting)
        free.difference_update(more)
        own = own + more
        boot = holder.boot if holder and holder.boot in kept else ""
        slots.append(Slot(tuple(sorted(own)), boot, holder.share if holder else None))
    return slots


def _holders(
    broken: Sequence[PlannedOwner],
    kept: frozenset[str],
    sizes: Sequence[int],
    restarting: Restarting | None,
) -> list[PlannedOwner | None]:
    """Return the owners for slots of these sizes, the largest first; None: nobody had any of it."""
    ranked = sorted(broken, key=lambda owner: -len(owner.partitions))
    staying = [owner for owner in ranked if owner.boot in kept]
    others: list[PlannedOwner | None] = [owner for owner in ranked if owner.boot not in kept]
    free = len(sizes) - len(staying)
    others = [*others, *[None] * free][:free]
    if restarting is None:
        return [*staying, *others]
    full = [owner for owner in staying if restarting.keeps(owner) > sizes[-1]]
    return [*full, *others, *[owner for owner in staying if owner not in full]]


def _first(
    partitions: Collection[int],
    count: int,
    holder: PlannedOwner | None,
    restarting: Restarting | None,
) -> list[int]:
    """Return `count` of the partitions, those first that this owner should have."""
    if restarting is None or holder is None:
        return sorted(partitions)[:count]
    return sorted(partitions, key=lambda each: (restarting.order(holder.boot, each), each))[:count]
