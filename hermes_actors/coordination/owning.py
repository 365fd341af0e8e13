"""Turns one subscription's targets into grants, and computes the rate share that an owner may use.
Pure.
"""

from collections.abc import Mapping
from math import isfinite

from msgspec.structs import replace

from hermes_actors.coordination.commands import Assignment, RateState, Target, TaskLoad
from hermes_actors.coordination.values import LEASE_MS, Grant, Member, Ownership

_NAME_LENGTH_MAX = 1_000
_PARTITION_MAX = 1_000_000
_OWNERS_MAX = 1_000
_LEVEL_LENGTH_MAX = 64
SMOOTHING_MS = 60_000
"""Time constant of smoothing: a measurement over a tenth of it has a weight of about a tenth."""


def is_sane(assignment: Assignment) -> bool:
    """True if an assignment is valid: boots and partitions are named once, shares are 0 to 1."""
    targets = assignment.targets
    if not 0 < len(assignment.subscription) <= _NAME_LENGTH_MAX or len(targets) > _OWNERS_MAX:
        return False
    partitions = [partition for target in targets for partition in target.partitions]
    return (
        len({target.boot for target in targets}) == len(targets)
        and len(set(partitions)) == len(partitions)
        and all(0 <= partition < _PARTITION_MAX for partition in partitions)
        and all(target.partitions and 0 <= target.share <= 1 for target in targets)
    )


def planned(old: Ownership, assignment: Assignment, offset: int, log_ms: int) -> Ownership:
    """Apply the assignment's targets. Owners whose partitions stay keep their grants; their shares
    change at once, and the higher share that they may still be using is remembered.
    """
    targets = tuple(
        replace(target, partitions=tuple(sorted(target.partitions)))
        for target in assignment.targets
    )
    wanted = {target.boot: target for target in targets}
    grants = tuple(
        _shared(grant, wanted[grant.boot].share, log_ms) if _is_kept(grant, wanted) else grant
        for grant in old.grants
    )
    moved_log_ms = old.moved_log_ms
    if old.targets and owners(old.targets) != owners(targets):
        moved_log_ms = log_ms
    return replace(
        old,
        targets=targets,
        planned_at=offset,
        grants=grants,
        moved_log_ms=moved_log_ms,
    )


def owners(targets: tuple[Target, ...]) -> dict[str, tuple[int, ...]]:
    """Return each boot with its partitions."""
    return {target.boot: target.partitions for target in targets}


def granted(old: Ownership, members: Mapping[str, Member], offset: int, log_ms: int) -> Ownership:
    """Add a grant for each target whose partitions are free, if its boot is a member and not
    stopping.
    """
    grants = old.grants
    held = {partition for grant in grants for partition in grant.partitions}
    holders = {grant.boot for grant in grants}
    fresh = [
        Grant(target.boot, target.partitions, offset, target.share, log_ms)
        for target in old.targets
        if (member := members.get(target.boot)) is not None
        and not member.is_stopping
        and target.boot not in holders
        and held.isdisjoint(target.partitions)
    ]
    return replace(old, grants=(*grants, *fresh)) if fresh else old


def without(old: Ownership, boot: str) -> Ownership:
    """Remove that boot's grant."""
    return replace(old, grants=tuple(grant for grant in old.grants if grant.boot != boot))


def must_release(ownership: Ownership, boot: str) -> bool:
    """True if the boot owns partitions but is planned to own others, or none."""
    wanted = owners(ownership.targets)
    return any(
        grant.boot == boot and wanted.get(boot) != grant.partitions for grant in ownership.grants
    )


def usable_share(ownership: Ownership, boot: str, log_ms: int) -> float:
    """The part of the subscription's maximum rate that the boot may use now; 0 without a grant.

    It leaves out whatever other owners may still be using. So the sum over all owners never exceeds
    1, although each reads the log at a different moment.
    """
    own, others = 0.0, 0.0
    for grant in ownership.grants:
        if grant.boot == boot:
            own = grant.share
        else:
            others += grant.bound(log_ms)
    return max(0.0, min(own, 1.0 - others))


def is_sane_rate(rate: RateState) -> bool:
    """True if the rate is valid for a new owner."""
    return len(rate.level) <= _LEVEL_LENGTH_MAX and isfinite(rate.rate) and rate.rate >= 0


def measured(old: Ownership, boot: str, load: TaskLoad, interval_ms: int) -> Ownership:
    """Update one owner's measured load; `used` is the latest value, the others are smoothed.

    An owner without a measurement starts with its part of the subscription's known load, so that a
    move does not lose it.
    """
    remembered = None if old.load is None else _part(old.load, max(1, len(old.grants)))
    grants: list[Grant] = []
    total = TaskLoad()
    for grant in old.grants:
        if grant.boot == boot:
            before = grant.load or remembered or load
            grant = replace(grant, load=_smoothed(before, load, interval_ms))
        grants.append(grant)
        total = _sum(total, grant.load or remembered or load)
    return replace(old, grants=tuple(grants), load=total)


def mixed(before: float, now: float, interval_ms: int) -> float:
    """One step of an exponential average. It uses no library function, whose last digit might
    differ between machines.
    """
    return before + (now - before) * (interval_ms / (SMOOTHING_MS + interval_ms))


def _is_kept(grant: Grant, wanted: dict[str, Target]) -> bool:
    target = wanted.get(grant.boot)
    return target is not None and target.partitions == grant.partitions


def _shared(grant: Grant, share: float, log_ms: int) -> Grant:
    if share == grant.share:
        return grant
    high = grant.bound(log_ms)
    if high <= share:
        return replace(grant, share=share, high=0.0, high_until_log_ms=0)
    until = log_ms + LEASE_MS if share < grant.share else grant.high_until_log_ms
    return replace(grant, share=share, high=high, high_until_log_ms=until)


def _smoothed(before: TaskLoad, now: TaskLoad, interval_ms: int) -> TaskLoad:
    return TaskLoad(
        mixed(before.messages, now.messages, interval_ms),
        mixed(before.size_bytes, now.size_bytes, interval_ms),
        mixed(before.cpu, now.cpu, interval_ms),
        now.used,
    )


def _part(load: TaskLoad, count: int) -> TaskLoad:
    return TaskLoad(load.messages / count, load.size_bytes / count, load.cpu / count, load.used)


def _sum(one: TaskLoad, other: TaskLoad) -> TaskLoad:
    return TaskLoad(
        one.messages + other.messages,
        one.size_bytes + other.size_bytes,
        one.cpu + other.cpu,
        max(one.used, other.used),
    )
