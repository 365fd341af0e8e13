"""An item whose messages go to several partitions of a remote, though to one at home.

The remote may have another number of partitions: then the keys of a bundle, which share a
partition at home, part there. Each share is sent like an item of its own, and what becomes of
the item is known when all of them have ended.
"""

from collections.abc import Callable, Sequence

from hermes_actors.fallback.flight import Flying, Item
from hermes_actors.log.base import Outcome

Keys = Callable[[Item], Sequence[bytes | None] | None]
"""The keys of an item's messages, one for each; None when all have the item's own."""


class Share:
    """Those messages of an item, at `places` in it, that go to one partition of a remote."""

    __slots__ = ("body_bytes", "count", "flying", "key", "places", "whole")

    def __init__(
        self, flying: Flying, key: bytes | None, places: Sequence[int], whole: "Whole"
    ) -> None:
        self.flying = flying
        self.key = key
        self.places = places
        self.count = len(places)
        self.body_bytes = flying.body_bytes * self.count // flying.count
        self.whole = whole

    @property
    def is_done(self) -> bool:
        """Nothing more is begun for it."""
        return self.flying.is_done


class Whole:
    """What has been heard of an item's shares."""

    def __init__(self, count: int) -> None:
        self._outcomes: list[Outcome | None] = [None] * count
        self._left = count

    def learn(self, places: Sequence[int], outcomes: Sequence[Outcome]) -> list[Outcome] | None:
        """A share has ended; all outcomes in order when it was the last one."""
        for place, outcome in zip(places, outcomes, strict=True):
            self._outcomes[place] = outcome
        self._left -= len(places)
        if self._left:
            return None
        return [each for each in self._outcomes if each is not None]


def shares_of(
    flying: Flying, keys: Sequence[bytes | None] | None, partition_of: Callable[[bytes], int]
) -> list[Share]:
    """The shares of an item at a remote; none when all of it goes to one partition."""
    if keys is None:
        return []
    places: dict[int | None, list[int]] = {}
    known: dict[bytes | None, int | None] = {None: None}
    for at, key in enumerate(keys):
        if key is not None and key not in known:
            known[key] = partition_of(key)
        places.setdefault(known[key], []).append(at)
    if len(places) < 2:
        return []
    whole = Whole(flying.count)
    return [Share(flying, keys[where[0]], where, whole) for where in places.values()]


def whole_outcomes(
    parts: Sequence[Flying | Share], found: Sequence[Outcome]
) -> tuple[list[Flying], Sequence[Outcome]]:
    """The items of which all is known after this append, and their messages' outcomes in order."""
    if not any(isinstance(part, Share) for part in parts):
        return [part for part in parts if isinstance(part, Flying)], found
    ended: list[Flying] = []
    outcomes: list[Outcome] = []
    at = 0
    for part in parts:
        own: Sequence[Outcome] | None = found[at : at + part.count]
        at += part.count
        if isinstance(part, Share):
            assert own is not None, "just cut out"
            own = part.whole.learn(part.places, own)
        if own is not None:
            ended.append(part.flying if isinstance(part, Share) else part)
            outcomes += own
    return ended, outcomes
