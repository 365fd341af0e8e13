"""Which datacentre a message of one topic is sent to next."""

import math
from collections.abc import Iterable

from hermes_actors.fallback.outlet import Outlet
from hermes_actors.fallback.remotes import Path

_RESCUE_MIN_S = 0.05


class Ways:
    """The own log and the remotes of one topic, in the order to ask them.

    `is_local_known` False: the own log has not told yet how many partitions the topic has, so that
    a key could not be put where it belongs.
    """

    def __init__(self, local: Path, outlets: dict[Path, Outlet]) -> None:
        self.local = local
        self.outlets = outlets
        self.all = (local, *outlets)
        self.is_local_known = True
        self._by_name = {path.dc.name: path for path in self.all}

    @property
    def is_local_usable(self) -> bool:
        """The own log is the first to be asked."""
        return self.is_local_known and not self.local.is_open

    @property
    def has_remote(self) -> bool:
        """Some remote could be used now, if need be."""
        return any(self._may_use(path) for path in self.outlets)

    def may_have_another(self, tried: Iterable[str]) -> bool:
        """Some other remote might be used as soon as it has told its partitions, and is asked."""
        return any(
            outlet.is_being_found_out and path.dc.name not in tried and path.dc.is_ready
            for path, outlet in self.outlets.items()
        )

    def usable(self, tried: Iterable[str] = ()) -> Path | None:
        """The first remote that is ready, works, and is not among those tried."""
        for path in self.outlets:
            if path.dc.name not in tried and not path.is_open and self._may_use(path):
                return path
        return None

    def any_left(self, tried: Iterable[str]) -> Path | None:
        """The same, when the message fails otherwise: the own log too if it was left out, and then
        a remote that did not work of late.
        """
        target = self.usable(tried)
        if target is not None:
            return target
        if self.is_local_known and self.local.dc.name not in tried:
            return self.local
        for path in self.outlets:
            if path.dc.name not in tried and self._may_use(path):
                return path
        return None

    def probed(self, tried: Iterable[str], now_s: float) -> Path | None:
        """A remote that did not work of late and is due to be tried with one message."""
        for path in self.outlets:
            if path.dc.name not in tried and self._may_use(path) and path.take_probe(now_s):
                return path
        return None

    def named(self, dc: str) -> Path | None:
        """The way to this datacentre."""
        return self._by_name.get(dc)

    def rescue_s(self, longest_s: float, now_s: float) -> float:
        """How long before its deadline a message must be sent to a remote to be there in time:
        twice what all but the slowest acknowledgements of that remote take.
        """
        target = self.usable()
        if target is None:
            return longest_s
        needed_s = 2 * target.delay_s(now_s)
        return longest_s if math.isinf(needed_s) else min(longest_s, max(needed_s, _RESCUE_MIN_S))

    def leave(self) -> None:
        """The topic is gone, or its producer is."""
        for path in self.all:
            path.leave()

    def _may_use(self, path: Path) -> bool:
        return self.outlets[path].is_known and path.dc.is_ready
