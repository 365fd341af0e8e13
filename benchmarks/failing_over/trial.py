"""A fleet under an open load, and the ledger of its deliveries."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import trio

from failing_over.fleet import Fleet
from failing_over.ledger import Lane, Ledger
from hermes_chaos.live.open_loop import OpenLoop

KEYS = 8
SETTLED_WITHIN_S = 90.0
_SERVED_WITHIN_S = 60.0
_LOOK_S = 0.1
_MISSING_LOOK_S = 0.5
_QUIET_S = 2.0

in_thread = trio.to_thread.run_sync


@dataclass(frozen=True)
class Load:
    """`topics` has the topic of each subscription. A topic that is more than once in `published`
    gets that much more of the rate.
    """

    topics: Mapping[str, str]
    published: tuple[str, ...]
    rate_per_s: float

    @classmethod
    def even(cls, subscriptions: int, topics: int, rate_per_s: float) -> Self:
        """Topics with equal rates and, if divisible, equal numbers of subscriptions."""
        names = tuple(f"failover.t{number}" for number in range(topics))
        subscribed = {f"s{number}": names[number % topics] for number in range(subscriptions)}
        return cls(subscribed, names, rate_per_s)

    @property
    def lane_rate_per_s(self) -> float:
        """The delivery rate of one lane, if topics have equal rates."""
        return self.rate_per_s / len(self.published) / KEYS


class Trial:
    """`open` it to have a load on the fleet, with every lane served, for the duration of the block.

    `rest_s` is how long nothing is broken before each loss and after the last.
    """

    def __init__(self, fleet: Fleet, load: Load, rest_s: float = 0.0) -> None:
        self.fleet = fleet
        self.load = load
        self.rest_s = rest_s
        self._loop = OpenLoop(
            [fleet.front.url], load.published, rate_per_s=load.rate_per_s, keys=KEYS
        )
        shift_s = trio.current_time() - time.perf_counter()
        self.ledger = Ledger(load.topics, self._loop.sent, shift_s)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """At the end, waits for all accepted messages, and then for duplicates."""
        await in_thread(self.fleet.sink.take)
        lanes = {Lane(name, f"key-{key}") for name in self.load.topics for key in range(KEYS)}
        async with self._loop.running():
            served = await self.until(lambda: lanes <= self.ledger.lanes.keys(), _SERVED_WITHIN_S)
            unserved = sorted({lane.subscriber for lane in lanes - self.ledger.lanes.keys()})
            assert served, f"not delivered within {_SERVED_WITHIN_S:.0f} s: {unserved}"
            yield
        await self.until(lambda: not self.ledger.missing(), SETTLED_WITHIN_S, _MISSING_LOOK_S)
        await trio.sleep(_QUIET_S)
        await self.collect()

    def account(self) -> dict[str, Any]:
        """The figures that every part reports at the end."""
        sent = self._loop.sent
        return {
            "subscriptions": len(self.load.topics),
            "rate_per_s": self.load.rate_per_s,
            "published": len(sent),
            "accepted": sum(each.is_accepted for each in sent),
            "deliveries": sum(len(came) for came in self.ledger.lanes.values()),
            "missing": len(self.ledger.missing()),
            "duplicates": self.ledger.duplicates,
        }

    async def collect(self) -> None:
        """Record everything that has come so far."""
        self.ledger.take(await in_thread(self.fleet.sink.take))

    async def until(
        self, condition: Callable[[], bool], within_s: float, look_s: float = _LOOK_S
    ) -> bool:
        """Collect until the condition holds; False after the time-out."""
        end_s = time.perf_counter() + within_s
        while True:
            await self.collect()
            if condition():
                return True
            if time.perf_counter() > end_s:
                return False
            await trio.sleep(look_s)
