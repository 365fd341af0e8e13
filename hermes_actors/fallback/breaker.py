"""A circuit breaker: when a log fails, not every message has to wait for it. Pure.

A breaker learns from each append to one datacentre's log. It opens on silence, on repeated late
acknowledgements, and on errors. While it is open, a batch is sent there occasionally as a probe,
and a timely acknowledgement of a probe closes it.
"""

import math
import random
from enum import StrEnum

from msgspec import Struct

from hermes_actors.config.fallback import FallbackConfig

_SILENT_MESSAGES_MIN = 8
_SILENT_APPENDS_MIN = 2
_LATE_MAX = 3
_ERRORS_MAX = 5
# Callers use timers, which may fire this much early.
_TIMER_S = 0.0005
# The first probe comes after an eighth of the interval; the wait then doubles up to the whole
# interval.
_FIRST_PROBE = 1 / 8


class Opened(StrEnum):
    """Why a breaker opened."""

    SILENCE = "silence"
    LATE = "late"
    ERRORS = "errors"


class Sent(Struct, eq=False):
    """An append that is under way."""

    count: int
    sent_s: float


class Breaker:
    """The breaker of one datacentre.

    An acknowledgement is late after the maximum hedge delay. Probes are `probe_interval_ms` apart,
    plus or minus a quarter. Methods that may open it return True if they did; `cause` then gives
    the reason.
    """

    def __init__(self, config: FallbackConfig, rng: random.Random) -> None:
        self._cap_s = config.speculative_send_delay_ms / 1_000
        self._probe_interval_s = config.probe_interval_ms / 1_000
        self._rng = rng
        self._outstanding: dict[Sent, None] = {}
        self._alive_s = -math.inf
        self._changed_s = -math.inf
        self._timely_sent_s = -math.inf
        self._late = self._errors = self._probes = 0
        self._next_probe_s = math.inf
        self.is_open = False
        self.cause = Opened.SILENCE

    def add(self, sent: Sent) -> None:
        """Record the start of an append. Calls must be in order of `sent_s`."""
        self._outstanding[sent] = None

    def acknowledged(self, sent: Sent, now_s: float) -> bool:
        """Record that the append was stored. True if this opened the breaker."""
        del self._outstanding[sent]
        self._alive_s = now_s
        is_timely = now_s - sent.sent_s <= self._cap_s
        if self.is_open:
            if sent.sent_s < self._changed_s:
                # It was sent before the breaker opened. Its arrival means: probe soon, not: all is
                # well.
                self._next_probe_s = min(self._next_probe_s, now_s)
            elif is_timely:
                self._close(now_s)
            return False
        if is_timely:
            self._timely_sent_s = max(self._timely_sent_s, sent.sent_s)
            self._late = 0
        self._errors = 0
        # An append sent before the last timely one, or before the breaker opened, is not counted.
        if is_timely or sent.sent_s < max(self._changed_s, self._timely_sent_s):
            return False
        self._late += 1
        return self._late >= _LATE_MAX and self._open(Opened.LATE, now_s)

    def answered(self, sent: Sent, now_s: float) -> None:
        """Record that the append was refused because of its messages: a sign of life only."""
        del self._outstanding[sent]
        self._alive_s = now_s

    def failed(self, sent: Sent, now_s: float) -> bool:
        """Record that the append was not stored, or may not have been. True if this opened the
        breaker.
        """
        del self._outstanding[sent]
        if self.is_open or sent.sent_s < self._changed_s:
            return False
        self._errors += 1
        return self._errors >= _ERRORS_MAX and self._open(Opened.ERRORS, now_s)

    def check(self, delay_s: float, now_s: float) -> bool:
        """Open on silence: eight messages have waited for a hedge delay, and nothing was heard
        meanwhile.

        They must be in at least two appends, or have waited for twice the delay, so that one slow
        append is not taken for a dead log. An append that was already overdue at the last sign of
        life is not counted, because its cause is another one.
        """
        patience_s = max(min(2 * delay_s, self._cap_s), delay_s) - _TIMER_S
        delay_s -= _TIMER_S
        if self.is_open or now_s - self._alive_s < delay_s:
            return False
        messages = appends = 0
        is_old = False
        for sent in self._outstanding:
            if now_s - sent.sent_s < delay_s:
                break
            if sent.sent_s < self._alive_s - delay_s or sent.sent_s < self._changed_s:
                continue
            messages += sent.count
            appends += 1
            is_old = is_old or now_s - sent.sent_s >= patience_s
            if messages >= _SILENT_MESSAGES_MIN and (is_old or appends >= _SILENT_APPENDS_MIN):
                return self._open(Opened.SILENCE, now_s)
        return False

    def take_probe(self, now_s: float) -> bool:
        """True if a probe is due; the caller must then send one. Only while the breaker is open."""
        if not self.is_open or now_s < self._next_probe_s:
            return False
        self._schedule_probe(now_s)
        return True

    def _schedule_probe(self, now_s: float) -> None:
        share = min(_FIRST_PROBE * 2**self._probes, 1.0)
        # Limited, so that the power stays small in a long outage.
        self._probes = min(self._probes + 1, 8)
        self._next_probe_s = now_s + self._probe_interval_s * share * self._rng.uniform(0.75, 1.25)

    def _open(self, cause: Opened, now_s: float) -> bool:
        self.is_open = True
        self.cause = cause
        self._reset(now_s)
        self._schedule_probe(now_s)
        return True

    def _close(self, now_s: float) -> None:
        self.is_open = False
        self._next_probe_s = math.inf
        self._reset(now_s)

    def _reset(self, now_s: float) -> None:
        self._changed_s = now_s
        self._late = self._errors = self._probes = 0
