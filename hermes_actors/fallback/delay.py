"""The hedge delay: how long to wait for the own datacentre before asking another one as well. Pure.

The delay is a high quantile of the recent acknowledgement times, so that normally about (100 -
quantile) percent of the messages are sent twice, whatever the log's speed: the idea of hedged
requests (Dean and Barroso, "The Tail at Scale", CACM 56(2), 2013).
"""

import math
from bisect import bisect_left

from msgspec import Struct, field

from hermes_actors.config.fallback import FallbackConfig

_SLOT_S = 10.0
_SLOTS = 3
_MESSAGES_MIN = 100
_APPENDS_MIN = 10
_HOLDS_S = 0.05
# Upper bounds of the cells, from 0.1 ms to 10 s, each 10 % above the previous.
_BOUNDS_S = tuple(1e-4 * 1.1**n for n in range(122))


class AdaptiveDelay:
    """The hedge delay of a datacentre's topics with one ack level.

    `hedge_mode` makes it adaptive, fixed (`speculative_send_delay_ms`, the cap) or off (infinite).
    If adaptive, it lies between `hedge_floor_delay_ms` and the cap; it is the cap while the last 30
    s have fewer than 100 messages or 10 appends.
    """

    def __init__(self, config: FallbackConfig) -> None:
        self._mode = config.hedge_mode
        self._cap_s = config.speculative_send_delay_ms / 1_000
        self._floor_s = min(config.hedge_floor_delay_ms / 1_000, self._cap_s)
        self._quantile = config.hedge_quantile_percent / 100
        self._slots: list[_Slot] = []
        self._held: float | None = None
        self._held_until_s = -math.inf

    def observe(self, latency_s: float, count: int, now_s: float) -> None:
        """Record that an append of `count` messages was acknowledged after `latency_s`; each
        message counts.
        """
        number = int(now_s // _SLOT_S)
        slots = self._slots
        if not slots or slots[-1].number < number:
            slots.append(_Slot(number))
            del slots[:-_SLOTS]
        slots[-1].add(latency_s, count)

    def delay_s(self, now_s: float) -> float:
        """The current delay, recomputed at most 20 times a second; infinite if off."""
        if self._mode == "off":
            return math.inf
        if self._mode == "fixed":
            return self._cap_s
        if now_s >= self._held_until_s:
            self._held = self._quantile_s(now_s)
            self._held_until_s = now_s + _HOLDS_S
        if self._held is None:
            return self._cap_s
        return min(max(self._held, self._floor_s), self._cap_s)

    def _quantile_s(self, now_s: float) -> float | None:
        """An upper bound of the quantile, at most 10 % too high; None if there are too few
        measurements.
        """
        oldest = int(now_s // _SLOT_S) - _SLOTS
        recent = [slot for slot in self._slots if slot.number > oldest]
        messages = sum(slot.messages for slot in recent)
        if messages < _MESSAGES_MIN or sum(slot.appends for slot in recent) < _APPENDS_MIN:
            return None
        rank = self._quantile * messages
        seen = 0
        for cell, bound_s in enumerate(_BOUNDS_S):
            seen += sum([slot.cells[cell] for slot in recent])
            if seen >= rank:
                return bound_s
        return math.inf


class _Slot(Struct):
    """The acknowledgements of ten seconds."""

    number: int
    appends: int = 0
    messages: int = 0
    cells: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_S) + 1))

    def add(self, latency_s: float, count: int) -> None:
        self.appends += 1
        self.messages += count
        self.cells[bisect_left(_BOUNDS_S, latency_s)] += count
