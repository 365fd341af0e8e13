"""A subscription's maximum rate among its owners: who needs more gets what others do not need.

Max-min fairness with memory: owners that use less than they have keep what they use and some
headroom; those that use all divide the rest evenly, and lose nothing by it that they had below an
even part of all. Nothing changes until somebody would gain by it, and a new owner takes from what
is idle first.
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
    """An owner's share, None if it is new, and which part of that it needed; None: unknown yet."""

    share: float | None
    used: float | None = None

    @property
    def is_busy(self) -> bool:
        """True when the owner would use more."""
        return self.share is not None and self.used is not None and self.used > BUSY


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
    new = [name for name, use in owners.items() if use.share is None]
    known = {name: use.share for name, use in owners.items() if use.share is not None}
    if new:
        part = _floored(_with_room(known, owners, len(new) / len(owners)), floor)
        # Flooring may have taken of the room that was made for the new ones.
        even = min(1 / len(owners), max(floor, (1 - sum(part.values())) / len(new)))
        shares = {**part, **dict.fromkeys(new, even)}
    elif sum(known.values()) > 1 or min(known.values()) < floor:
        shares = _floored(known, floor)
    else:
        shares = _from_idle_to_busy(known, owners, floor)
        if not _is_worth_it(known, shares, owners):
            return known
    shares = _floored(shares, floor)
    return {name: whole_units(shares[name]) for name in owners}


def whole_units(share: float) -> float:
    """The share in millionths, rounded down, so that the sum of a division stays 1 at most."""
    # A millionth of a millionth more is rounding of the machine, not of ours.
    return int(share * _UNITS + 1e-6) / _UNITS


def _needed(share: float, use: Use) -> float:
    """Return the share that an owner keeps when others want more; an unmeasured one keeps all it
    has, for nobody knows what it needs.
    """
    if use.used is None or use.is_busy:
        return share
    return min(share, share * use.used * HEADROOM)


def _with_room(
    known: Mapping[str, float], owners: Mapping[str, Use], room: float
) -> dict[str, float]:
    """The known shares, less by as much as `room` needs: first of what is idle, then of all."""
    missing = room - (1 - sum(known.values()))
    if missing <= 0:
        return dict(known)
    idle = {name: share - _needed(share, owners[name]) for name, share in known.items()}
    taken = min(1.0, missing / total) if (total := sum(idle.values())) > 0 else 0.0
    left = {name: share - taken * idle[name] for name, share in known.items()}
    missing -= taken * total
    whole = sum(left.values())
    scale = 1 - max(0.0, missing) / whole if whole > 0 else 0.0
    return {name: share * scale for name, share in left.items()}


def _from_idle_to_busy(
    known: Mapping[str, float], owners: Mapping[str, Use], floor: float
) -> dict[str, float]:
    busy = [name for name in known if owners[name].is_busy]
    kept = {
        name: max(floor, _needed(share, owners[name]))
        for name, share in known.items()
        if name not in busy
    }
    least = {name: min(known[name], 1 / len(known)) for name in busy}
    level = _level(1 - sum(kept.values()), sorted(least.values(), reverse=True))
    return {name: max(level, least[name]) if name in busy else kept[name] for name in known}


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


def _is_worth_it(
    known: Mapping[str, float], shares: Mapping[str, float], owners: Mapping[str, Use]
) -> bool:
    return any(
        owners[name].is_busy
        and shares[name] - known[name] > max(GAIN_MIN * known[name], _GAIN_WHOLE_MIN)
        for name in known
    )


def _floored(shares: Mapping[str, float], floor: float) -> dict[str, float]:
    """Raise each share to the floor and keep the sum at 1 at most: what is missing is taken from
    what is above.
    """
    raised = {name: max(floor, share) for name, share in shares.items()}
    excess = sum(raised.values()) - 1
    if excess <= 0:
        return raised
    above = sum(share - floor for share in raised.values())
    if above <= 0:
        return raised
    keep = max(0.0, 1 - excess / above)
    return {name: floor + (share - floor) * keep for name, share in raised.items()}
