"""A subscription's maximum rate among its owners: who needs more gets what others do not need.

Max-min fairness with memory: owners that use less than they have keep what they use and some
headroom; those that use all divide the rest evenly, and lose nothing by it that they had below an
even part of all. Nothing changes until somebody would gain by it.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

BUSY = 0.9
"""An owner that uses more than this part of its share would use more of a greater one."""
HEADROOM = 1.15
"""How much the others keep, in times of what they use: they are not busy then, and can grow."""
FLOOR = 0.02
"""No share is below this part, or one message a second; or an even part, if that is less."""
GAIN_MIN = 0.1
"""Shares change when a busy owner's grows by this part, and by a hundredth of the whole."""
_GAIN_WHOLE_MIN = 0.01
_UNITS = 1_000_000


class Use(Struct, frozen=True):
    """An owner's share, and which part of that it needed; None: unknown yet."""

    share: float
    used: float | None = None

    @property
    def is_busy(self) -> bool:
        """True when the owner would use more."""
        return self.used is not None and self.used > BUSY

    @property
    def needed(self) -> float:
        """The share that the owner keeps when others want more; an unmeasured one keeps all."""
        if self.used is None or self.is_busy:
            return self.share
        return min(self.share, self.share * self.used * HEADROOM)


def floor_of(rate: float, owners: int) -> float:
    """Return the least share of each of so many owners; `rate` is the maximum in messages a
    second.
    """
    return min(1 / owners, max(FLOOR, 1 / rate if rate > 0 else 1.0))


def share_out(rate: float, owners: Mapping[str, Use]) -> dict[str, float]:
    """Return the owners' shares from now on, in their order; they sum up to 1 at most, and are what
    they were wherever nothing has to change.
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
    """The share in millionths, rounded down, so that the sum of a division stays 1 at most."""
    # A millionth of a millionth more is rounding of the machine, not of ours.
    return int(share * _UNITS + 1e-6) / _UNITS


def _from_idle_to_busy(owners: Mapping[str, Use], floor: float) -> dict[str, float]:
    kept = {name: max(floor, use.needed) for name, use in owners.items() if not use.is_busy}
    least = {name: min(use.share, 1 / len(owners)) for name, use in owners.items() if use.is_busy}
    level = _level(1 - sum(kept.values()), sorted(least.values(), reverse=True))
    return {name: max(level, least[name]) if name in least else kept[name] for name in owners}


def _level(rest: float, least: Sequence[float]) -> float:
    """Return the share of each owner whose least is below it, so that all together have the rest;
    `least`: the greatest first.
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
    """Raise each share to the floor and keep the sum at 1 at most: what is missing is taken from
    what is above.
    """
    raised = {name: max(floor, share) for name, share in shares.items()}
    excess = sum(raised.values()) - 1
    above = sum(share - floor for share in raised.values())
    if excess <= 0 or above <= 0:
        return raised
    keep = max(0.0, 1 - excess / above)
    return {name: floor + (share - floor) * keep for name, share in raised.items()}
