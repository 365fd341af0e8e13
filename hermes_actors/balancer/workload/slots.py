"""Partitions among a subscription's owners: even, covering, and as they were where they can be.

An owner whose partitions change has to start anew, so a set is kept whole whenever its size is one
of the two that an even division has.
"""

from collections.abc import Sequence

from msgspec import Struct

from hermes_actors.balancer.workload.problem import Owner


class Slot(Struct, frozen=True):
    """A set of partitions for one owner: `boot` keeps it or takes it, "" if that is still open.
    `share` is that of who had it, None if nobody had.
    """

    partitions: tuple[int, ...]
    boot: str = ""
    share: float | None = None


def divide(
    partitions: int, count: int, owners: Sequence[Owner], kept: frozenset[str]
) -> list[Slot]:
    """`count` slots that cover partitions 0 to `partitions`, in the order of their lowest one.

    `owners` are those by the last plan, `kept` the boot ids of at most `count` of them that stay;
    the sets of the others are open, and stay as they are if they can.
    """
    assert 0 < count <= partitions
    assert len(kept) <= count
    # Who stays chooses first: the others' sets have no consumer that would have to start anew.
    ranked = sorted(owners, key=lambda owner: (owner.boot not in kept, owner.partitions))
    small, larger = divmod(partitions, count)
    left = {small + 1: larger, small: count - larger}
    free = set(range(partitions))
    whole: list[Slot] = []
    broken: list[Owner] = []
    for owner in ranked:
        if left.get(len(owner.partitions), 0) and free.issuperset(owner.partitions):
            left[len(owner.partitions)] -= 1
            free.difference_update(owner.partitions)
            boot = owner.boot if owner.boot in kept else ""
            whole.append(Slot(tuple(sorted(owner.partitions)), boot, owner.share))
        else:
            broken.append(owner)
    # Who stays must not be left without a slot because a set without an owner was kept whole.
    staying = sum(owner.boot in kept for owner in broken)
    while sum(left.values()) < staying:
        slot = next(slot for slot in reversed(whole) if not slot.boot)
        whole.remove(slot)
        left[len(slot.partitions)] += 1
        free.update(slot.partitions)
    return sorted(whole + _cut(broken, kept, left, free), key=lambda slot: slot.partitions)


def _cut(
    broken: Sequence[Owner], kept: frozenset[str], left: dict[int, int], free: set[int]
) -> list[Slot]:
    """The remaining sizes, from what is free: each owner keeps of its own what fits."""
    sizes = sorted((size for size, times in left.items() for _ in range(times)), reverse=True)
    holders = sorted(broken, key=lambda owner: (owner.boot not in kept, -len(owner.partitions)))
    cut: list[tuple[Owner | None, list[int]]] = []
    for at, size in enumerate(sizes):
        holder = holders[at] if at < len(holders) else None
        own = sorted(free.intersection(holder.partitions))[:size] if holder else []
        free.difference_update(own)
        cut.append((holder, own))
    rest = sorted(free)
    slots = []
    for (holder, own), size in zip(cut, sizes, strict=True):
        missing = size - len(own)
        own, rest = own + rest[:missing], rest[missing:]
        boot = holder.boot if holder and holder.boot in kept else ""
        slots.append(Slot(tuple(sorted(own)), boot, holder.share if holder else None))
    return slots
