"""When a log does not work it is not waited for by every message anew. Pure.

A breaker learns from each append to one datacentre's log. It opens on silence, on acknowledgements
that keep coming too late, and on errors. While it is open a batch now and then is sent there as a
probe, and one that is acknowledged in time closes it.
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
# Whoever asks does so when a timer has run out, which may be this much early.
_TIMER_S = 0.0005
# The first probe comes after an eighth of the interval, then twice that, until the whole.
_FIRST_PROBE = 1 / 8


class Opened(StrEnum):
    """Why a breaker opened."""

    SILENCE = "silence"
    LATE = "late"
    ERRORS = "errors"


class Sent(Struct, eq=False):
    """One append that is under way."""

    count: int
    sent_s: float


class Breaker:
    """One datacentre's.

    An acknowledgement is late after the longest hedge delay. Probes are `probe_interval_ms` apart,
    a quarter more or less. The methods that may open it return True when they did; `cause` then
    says why.
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
        """An append goes out; `sent` are in order of their times."""
        self._outstanding[sent] = None

    def acknowledged(self, sent: Sent, now_s: float) -> bool:
        """The append was stored."""
        del self._outstanding[sent]
        self._alive_s = now_s
        is_timely = now_s - sent.sent_s <= self._cap_s
        if self.is_open:
            if sent.sent_s < self._changed_s:
                # It outlived the opening. That it came says: look soon, not: all is well.
                self._next_probe_s = min(self._next_probe_s, now_s)
            elif is_timely:
                self._close(now_s)
            return False
        if is_timely:
            self._timely_sent_s = max(self._timely_sent_s, sent.sent_s)
            self._late = 0
        self._errors = 0
        # What was sent before the last timely one is old news, and so is what outlived an opening.
        if is_timely or sent.sent_s < max(self._changed_s, self._timely_sent_s):
            return False
        self._late += 1
        return self._late >= _LATE_MAX and self._open(Opened.LATE, now_s)

    def answered(self, sent: Sent, now_s: float) -> None:
        """The append was refused for its own sake: a sign of life, and no more."""
        del self._outstanding[sent]
        self._alive_s = now_s

    def failed(self, sent: Sent, now_s: float) -> bool:
        """The append was not stored, or nobody knows."""
        del self._outstanding[sent]
        if self.is_open or sent.sent_s < self._changed_s:
            return False
        self._errors += 1
        return self._errors >= _ERRORS_MAX and self._open(Opened.ERRORS, now_s)

    def check(self, delay_s: float, now_s: float) -> bool:
        """Open when nothing has been heard for a hedge delay though eight messages wait for it.

        They must be in two appends at least, or wait for twice the delay, so that one append that
        is slow is not taken for a dead log. An append that was overdue already at the last sign of
        life is stuck for a reason of its own and is not counted.
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
        """While open: whether a message is to be sent here now to find out. Then it must be."""
        if not self.is_open or now_s < self._next_probe_s:
            return False
        self._schedule_probe(now_s)
        return True

    def _schedule_probe(self, now_s: float) -> None:
        share = min(_FIRST_PROBE * 2**self._probes, 1.0)
        # Bounded, so that the power stays a small number in a long outage.
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
