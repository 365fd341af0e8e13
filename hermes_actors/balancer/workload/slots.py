"""Divides partitions among a subscription's owners: evenly, completely, and with as few changes as
possible.

An owner whose partitions change has to restart its consumer, so a set is kept whole whenever its
size is one of the two sizes of an even division.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes_actors.balancer.workload.problem import PlannedOwner


class Slot(Struct, frozen=True):
    """A set of partitions for one owner. `boot` is the owner that keeps or takes it; empty string
    if that is open. `share` is its last owner's share; None if it had none.
    """

    partitions: tuple[int, ...]
    boot: str = ""
    share: float | None = None


def divide(
    partitions: int, count: int, owners: Sequence[PlannedOwner], kept: frozenset[str]
) -> list[Slot]:
    """Return `count` slots that cover all partitions, sorted by lowest partition.

    `owners` are those of the last plan; `kept` are the boot ids of the owners that stay, at most
    `count`. The sets of the other owners become open, unchanged if possible.
    """
    assert 0 < count <= partitions
    assert len(kept) <= count
    # Owners that stay choose first: the other sets have no consumer that would have to restart.
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
    # An owner that stays must not be left without a slot because an open set was kept whole.
    staying = sum(owner.boot in kept for owner in broken)
    while sum(left.values()) < staying:
        slot = next(slot for slot in reversed(whole) if not slot.boot)
        whole.remove(slot)
        left[len(slot.partitions)] += 1
        free.update(slot.partitions)
    return sorted(whole + _cut(broken, kept, left, free), key=lambda slot: slot.partitions)


def _sizes(partitions: int, count: int) -> dict[int, int]:
    """The two sizes of an even division, and how many slots have each."""
    small, larger = divmod(partitions, count)
    return {small + 1: larger, small: count - larger}


def _cut(
    broken: Sequence[PlannedOwner], kept: frozenset[str], left: dict[int, int], free: set[int]
) -> list[Slot]:
    """Divide the free partitions into slots of the remaining sizes; each owner keeps as many of its
    own as fit.
    """
    sizes = sorted((size for size, times in left.items() for _ in range(times)), reverse=True)
    ranked = sorted(broken, key=lambda owner: (owner.boot not in kept, -len(owner.partitions)))
    # None: no owner had any of it.
    holders = [*ranked, *[None] * len(sizes)][: len(sizes)]
    owned: list[list[int]] = []
    for holder, size in zip(holders, sizes, strict=True):
        own = [] if holder is None else sorted(free.intersection(holder.partitions))[:size]
        free.difference_update(own)
        owned.append(own)
    slots = []
    for holder, own, size in zip(holders, owned, sizes, strict=True):
        more = sorted(free)[: size - len(own)]
        free.difference_update(more)
        boot = holder.boot if holder and holder.boot in kept else ""
        slots.append(Slot(tuple(sorted(own + more)), boot, holder.share if holder else None))
    return slots
