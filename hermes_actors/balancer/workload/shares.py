"""Divides a subscription's maximum rate among its owners: owners that need more get what others do
not need.

Max-min fairness with memory: owners that use less than their share keep what they use and some
headroom. Busy owners divide the rest evenly, but none of them falls below what it had, up to an
even share of the whole. Nothing changes unless a busy owner gains by it.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

BUSY = 0.9
"""An owner that uses more than this part of its share counts as busy: it would use more."""
HEADROOM = 1.15
"""The share that other owners keep, as a multiple of what they use. They are then not busy and can
grow.
"""
FLOOR = 0.02
"""Minimum share, unless one message a second is more, or an even share is less."""
GAIN_MIN = 0.1
"""Shares change only if a busy owner's share grows by this part, and by a hundredth of the whole.
"""
_GAIN_WHOLE_MIN = 0.01
_UNITS = 1_000_000


class Use(Struct, frozen=True):
    """An owner's share, and the part of it that the owner used; None if unknown."""

    share: float
    used: float | None = None

    @property
    def is_busy(self) -> bool:
        """True if the owner would use more."""
        return self.used is not None and self.used > BUSY

    @property
    def needed(self) -> float:
        """The share that the owner keeps when others want more; an unmeasured owner keeps all."""
        if self.used is None or self.is_busy:
            return self.share
        return min(self.share, self.share * self.used * HEADROOM)


def floor_of(rate: float, owners: int) -> float:
    """Return the minimum share of each owner; `rate` is the maximum in messages a second."""
    return min(1 / owners, max(FLOOR, 1 / rate if rate > 0 else 1.0))


def share_out(rate: float, owners: Mapping[str, Use]) -> dict[str, float]:
    """Return the new shares of the owners, in their order. Their sum is at most 1; they are
    unchanged if nothing has to change.
    """
    if not owners:
        return {}
    floor = floor_of(rate, len(owners))
    shares = known = {name: use.share for name, use in owners.items()}
    if sum(known.values()) <= 1 and min(known.values()) >= floor:
        shares = _from_idle_to_busy(owners, floor)
        if not _is_worth_it(shares, owners):
            return known
    return {name: whole_units(share) for name, share in _floored(shares, floor).items()}


def whole_units(share: float) -> float:
    """Round a share down to millionths, so that a sum of shares stays at most 1."""
    # The small addition compensates for floating-point rounding.
    return int(share * _UNITS + 1e-6) / _UNITS


def _from_idle_to_busy(owners: Mapping[str, Use], floor: float) -> dict[str, float]:
    kept = {name: max(floor, use.needed) for name, use in owners.items() if not use.is_busy}
    least = {name: min(use.share, 1 / len(owners)) for name, use in owners.items() if use.is_busy}
    level = _level(1 - sum(kept.values()), sorted(least.values(), reverse=True))
    return {name: max(level, least[name]) if name in least else kept[name] for name in owners}


def _level(rest: float, least: Sequence[float]) -> float:
    """Return the level to which the busy owners' shares are raised, so that together they use
    `rest`; `least` are their minimum shares, greatest first.
    """
    left = rest
    for at, each in enumerate(least):
        level = left / (len(least) - at)
        if each <= level:
            return level
        left -= each
    return 0.0


def _is_worth_it(shares: Mapping[str, float], owners: Mapping[str, Use]) -> bool:
    return any(
        use.is_busy and shares[name] - use.share > max(GAIN_MIN * use.share, _GAIN_WHOLE_MIN)
        for name, use in owners.items()
    )


def _floored(shares: Mapping[str, float], floor: float) -> dict[str, float]:
    """Raise each share to the floor and keep the sum at most 1, by taking from the larger
    shares.
    """
    raised = {name: max(floor, share) for name, share in shares.items()}
    excess = sum(raised.values()) - 1
    above = sum(share - floor for share in raised.values())
    if excess <= 0 or above <= 0:
        return raised
    keep = max(0.0, 1 - excess / above)
    return {name: floor + (share - floor) * keep for name, share in raised.items()}
