"""How fast an endpoint may be pushed to, learned from its answers. Pure: times are arguments.

Four levels: full rate, adapting, one a second, one a minute. While adapting, the rate follows
additive increase and multiplicative decrease (Chiu and Jain 1989, as in TCP), judged in rounds of
half a second. The two lowest levels are half-open: one push at a time, and the first success opens.
An endpoint that answers with errors stays at one a second. An endpoint that does not answer gets
one a minute, with attempts to connect in between. Without answers nothing changes: an idle
subscription keeps its level.

Messages are counted, not attempts: a message that fails again while others succeed says nothing
about the endpoint. Failures caused by load (429, 502 to 504, no answer), or that most messages
meet, lower the rate down to the floor. Other errors lower it to a quarter at most, because they may
be due to those messages.
"""

from abc import ABC, abstractmethod
from enum import StrEnum

from msgspec import Struct

from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.consumer.senders.sender import PROBE_TIMEOUT_S
from hermes_actors.coordination.commands import RateState
from hermes_actors.status.reasons import Code, Reason, because

ROUND_S = 0.5
"""The shortest time over which outcomes are gathered before the rate is judged."""

# With fewer outcomes and at least one failure, a round lasts longer and never lowers the rate.
_OUTCOMES_MIN = 20
_ROUND_S_MAX = 2.0
# So many failures in a row, over at least a round, are an outage.
_ROW_MIN = 10
# Above the first share of failures the rate falls, below the second it rises. The second numbers
# allow for chance.
_FALL_SHARE, _FALL_CHANCE = 0.05, 6
_RISE_SHARE, _RISE_CHANCE = 0.01, 1
_DECREASE = 0.8
_INCREASES = 10
_FLOOR_SHARE = 1 / 64
_FLOOR_SHARE_OF_MESSAGES = 1 / 4
_START_PER_S = 4.0
# A message that keeps failing while nothing succeeds is counted again after this time.
_RECOUNT_S = 3.0
# The full rate returns after this time without an outcome that demands less.
_CALM_S = 10.0
_UNANSWERED_MAX = 5
_SLOW_S, _HEARTBEAT_S = 1.0, 60.0
# The owner of a small share of the rate probes a failing endpoint less often, down to this share.
_SHARE_MIN = 0.1
_NEVER_S = float("inf")


class Level(StrEnum):
    """How far an endpoint is trusted."""

    FULL = "FULL"
    ADAPTING = "ADAPTING"
    SLOW = "SLOW"
    HEARTBEAT = "HEARTBEAT"

    @property
    def is_half_open(self) -> bool:
        """True if one push at a time probes the endpoint."""
        return self is Level.SLOW or self is Level.HEARTBEAT


class Pace(ABC):
    """How fast messages may be sent."""

    @property
    def level(self) -> Level:
        """How far the endpoint is trusted. FULL if nothing is learned from answers."""
        return Level.FULL

    @property
    @abstractmethod
    def rate_now(self) -> float:
        """How many messages a second may be sent now; 0 means no limit."""

    @property
    @abstractmethod
    def allowed(self) -> float:
        """The owner's share of the rate, in messages a second; negative without a limit."""

    @abstractmethod
    def divide(self) -> None:
        """Apply a changed share of the rate."""

    def known(self) -> RateState | None:
        """The endpoint's rate for the next owner to start with; None if nothing is learned."""
        return None


class _Round(Struct):
    """Outcomes since `begun_s`. `pressed` counts the failures caused by load."""

    begun_s: float
    sent: int = 0
    successes: int = 0
    failures: int = 0
    pressed: int = 0


class RateControl:
    """The rate of one endpoint, up to `maximum` a second, which is this owner's `share` of the
    whole.

    While not `is_full`, check `available` before each push and call `take` for it. Then call
    `on_success`, `on_failure` or `on_neutral` with the `epoch` in which it was sent: a push from
    before a decrease says nothing about the lower rate. `on_success` may be skipped unless
    `is_watching`, but set `success_s` at each success. Times are monotonic seconds.
    """

    is_watching: bool
    _round: _Round

    def __init__(self, maximum: float, now_s: float, share: float = 1.0) -> None:
        self.maximum = float(maximum)
        self.share = share
        self.success_s = -_NEVER_S
        self.epoch = 0
        self._limit = RateLimit(self.maximum)
        self.reset(now_s)

    def reset(self, now_s: float) -> None:
        """Start at full rate, for a new endpoint."""
        self._is_pushing = self._is_slow_start = False
        # When a half-open level may push, and when to try to connect.
        self._next_s = self._connect_s = now_s
        self._unanswered = self._row = 0
        self._failed_s = now_s
        self.epoch += 1
        self._move(Level.FULL, self.maximum, now_s)

    def change(self, maximum: float, share: float, now_s: float) -> None:
        """Use another maximum and another share from now on."""
        factor, self.share, self.maximum = share / self.share, share, float(maximum)
        if self.level is Level.FULL:
            self.rate = self.maximum
        elif self.level is Level.ADAPTING:
            self._set_rate(max(self._floor, self.rate * factor), now_s)
            self._limit.relax(now_s)
        else:
            self._next_s = min(self._next_s, now_s + self._pause_s)

    def take_over(self, known: RateState, now_s: float) -> None:
        """Start with what the previous owner knew. A half-open level may push at once."""
        level = Level(known.level)
        if level.is_half_open:
            self._fall(level, now_s)
            self._next_s = now_s
        elif level is Level.ADAPTING and known.rate * self.share < self.maximum:
            self._move(level, max(self._floor, known.rate * self.share), now_s)
            # What the previous owner took in this second is unknown.
            self._limit.drain(now_s)

    def known(self) -> RateState:
        """The level, and the rate of all owners together, for the next owner to start with."""
        return RateState(self.level.value, self.rate / self.share)

    def push_at_once(self, now_s: float) -> None:
        """Let a half-open level push at once: the endpoint may have been repaired."""
        self._next_s = now_s

    # Permission.

    def available(self, now_s: float) -> int:
        """How many messages may be pushed now, while not `is_full`. The subscription's own limit
        comes on top.
        """
        if self.level.is_half_open:
            return int(not self._is_pushing and now_s >= self._next_s)
        self.recover(now_s)
        return self._limit.available(now_s)

    def take(self, now_s: float) -> None:
        """Count one push, which must be available."""
        if not self.level.is_half_open:
            self._limit.take(now_s)
            self._round.sent += 1
            return
        assert self.available(now_s), "a half-open level has one push under way"
        self._is_pushing = True
        self._next_s = now_s + self._pause_s
        self._connect_s = now_s + PROBE_TIMEOUT_S

    def wait_s(self, now_s: float) -> float:
        """How long until a push is allowed; infinity if only an answer can allow it."""
        if self.is_full:
            return 0.0
        if not self.level.is_half_open:
            return self._limit.wait_s(now_s)
        return _NEVER_S if self._is_pushing else max(0.0, self._next_s - now_s)

    def recover(self, now_s: float) -> None:
        """Return to the full rate if no outcome has demanded less for long."""
        if self.level is Level.ADAPTING and now_s - self._round.begun_s >= _CALM_S:
            self._move(Level.FULL, self.maximum, now_s)

    # Probing a dead endpoint by connecting.

    def connect_wait_s(self, now_s: float) -> float:
        """How long until the next attempt to connect; infinity if none is needed."""
        if self.level is not Level.HEARTBEAT or self._is_pushing:
            return _NEVER_S
        return max(0.0, self._connect_s - now_s)

    def on_connecting(self, now_s: float) -> None:
        """Note that an attempt to connect begins."""
        self._connect_s = now_s + PROBE_TIMEOUT_S

    def on_connected(self, now_s: float) -> None:
        """Note that connecting succeeded: a push may follow at once, to find out more."""
        if self.level is Level.HEARTBEAT:
            self._connect_s = _NEVER_S
            self._next_s = now_s

    # Answers.

    def on_success(self, now_s: float, epoch: int) -> None:
        """A push was accepted, or was given up for a reason that is not the endpoint's."""
        self.success_s = now_s
        if epoch != self.epoch:
            return
        if self.level.is_half_open:
            self._open(now_s)
            return
        self._row = 0
        self._round.successes += 1
        self._round.sent += self.is_full
        self._judge(now_s)

    def on_neutral(self, now_s: float, epoch: int, *, is_answered: bool) -> None:
        """A push says nothing about the endpoint: it was not sent, or was answered with a pause."""
        if self.level.is_half_open and epoch == self.epoch:
            self._is_pushing = False
            if is_answered and self.level is Level.HEARTBEAT:
                self._fall(Level.SLOW, now_s)

    def on_failure(
        self,
        now_s: float,
        epoch: int,
        *,
        failed_before_s: float | None,
        is_answered: bool,
        is_pressed: bool = False,
    ) -> bool:
        """A push failed, as did the same message at `failed_before_s` (None: never before).

        True if `now_s` must be passed as `failed_before_s` at its next failure. `is_pressed`: the
        failure was caused by load.
        """
        if epoch != self.epoch:
            return True
        if self.level.is_half_open:
            self._stay_half_open(now_s, is_answered=is_answered)
            return True
        self._round.sent += self.is_full
        if failed_before_s is not None:
            if failed_before_s < self.success_s:
                return True
            if now_s - failed_before_s < _RECOUNT_S:
                if self._is_outage(now_s):
                    self._fall(Level.SLOW, now_s)
                return False
        if not self.is_watching or now_s - self._round.begun_s >= _CALM_S:
            self.is_watching = True
            self._round = _Round(now_s, sent=1)
        self._row = 1 if self.success_s >= self._failed_s else self._row + 1
        self._failed_s = now_s
        self._round.failures += 1
        self._round.pressed += is_pressed
        self._judge(now_s)
        return True

    def reasons(self, now_s: float) -> list[Reason]:
        """Why less is sent than the subscription allows."""
        for_s = now_s - self.since_s
        if self.level is Level.ADAPTING:
            lowered = because(Code.RATE_LOWERED, rate=self.rate, rate_max=self.maximum, for_s=for_s)
            return [lowered]
        if self.level is Level.SLOW:
            return [because(Code.ONE_A_SECOND, for_s=for_s)]
        if self.level is Level.HEARTBEAT:
            return [because(Code.ONE_A_MINUTE, for_s=for_s)]
        return []

    # Decisions.

    @property
    def _pause_s(self) -> float:
        # Several owners together probe a failing endpoint no more often than one alone.
        pause_s = _SLOW_S if self.level is Level.SLOW else _HEARTBEAT_S
        return pause_s / max(_SHARE_MIN, self.share)

    @property
    def _floor(self) -> float:
        return min(self.maximum, max(1.0, self.maximum * _FLOOR_SHARE))

    def _is_outage(self, now_s: float) -> bool:
        return self._row >= _ROW_MIN and now_s - self.success_s >= ROUND_S

    def _judge(self, now_s: float) -> None:
        this = self._round
        age_s, outcomes = now_s - this.begun_s, this.failures + this.successes
        is_enough = outcomes >= _OUTCOMES_MIN
        if self._is_outage(now_s):
            self._fall(Level.SLOW, now_s)
        elif self._row >= _ROW_MIN or age_s < ROUND_S:
            # A row of failures may become an outage: do not judge before that is clear.
            return
        elif not is_enough and this.failures and age_s < _ROUND_S_MAX:
            return
        elif is_enough and this.failures > _FALL_SHARE * outcomes + _FALL_CHANCE:
            self._decrease(now_s)
        else:
            is_calm = this.failures <= _RISE_SHARE * outcomes + _RISE_CHANCE
            if is_calm and (is_enough or not this.failures):
                self._increase(now_s)
            else:
                self._is_slow_start = False
            self._begin_round(now_s)

    def _decrease(self, now_s: float) -> None:
        this = self._round
        outcomes, floor = this.failures + this.successes, self._floor
        if this.failures > this.successes and self.rate <= floor:
            # Most pushes fail even at the lowest rate.
            self._fall(Level.SLOW, now_s)
            return
        is_pressed = this.pressed > _FALL_SHARE * outcomes + _FALL_CHANCE
        if not is_pressed and this.failures <= this.successes:
            floor = max(floor, self.maximum * _FLOOR_SHARE_OF_MESSAGES)
        # A rate lower than before, but above what is sent, would change nothing (RFC 7661).
        sent_per_s = this.sent / (now_s - this.begun_s)
        self._lower(max(min(floor, self.rate), min(self.rate, sent_per_s) * _DECREASE), now_s)

    def _lower(self, rate: float, now_s: float) -> None:
        self._is_slow_start = False
        if self.level is Level.FULL:
            self._move(Level.ADAPTING, rate, now_s)
        else:
            self._set_rate(rate, now_s)
        self.epoch += 1
        self._begin_round(now_s)

    def _increase(self, now_s: float) -> None:
        if self.level is Level.ADAPTING:
            # A tenth of a distant maximum can be many times what a small endpoint can take.
            step = min(self.rate / 2, self.maximum / _INCREASES)
            rate = self.rate + (self.rate if self._is_slow_start else step)
            self._set_rate(max(rate, _START_PER_S), now_s)

    def _set_rate(self, rate: float, now_s: float) -> None:
        """Set the rate of level ADAPTING, which ends at the maximum."""
        if rate >= self.maximum:
            self._move(Level.FULL, self.maximum, now_s)
        else:
            self.rate = rate
            self._limit.change(rate)

    def _open(self, now_s: float) -> None:
        self._is_pushing = False
        self._is_slow_start = True
        self.epoch += 1
        start = min(self.maximum, max(_START_PER_S, self._floor))
        level = Level.ADAPTING if start < self.maximum else Level.FULL
        self._move(level, start, now_s)

    def _fall(self, level: Level, now_s: float) -> None:
        self._is_pushing = self._is_slow_start = False
        self._unanswered = self._row = 0
        self.epoch += 1
        self._move(level, 1 / _SLOW_S if level is Level.SLOW else 1 / _HEARTBEAT_S, now_s)
        self._next_s = now_s + self._pause_s
        # First as soon as the level above would have pushed: the endpoint may just have recovered.
        self._connect_s = now_s + _SLOW_S

    def _stay_half_open(self, now_s: float, *, is_answered: bool) -> None:
        self._is_pushing = False
        self._connect_s = now_s + PROBE_TIMEOUT_S
        if self.level is Level.HEARTBEAT:
            if is_answered:
                self._fall(Level.SLOW, now_s)
            return
        self._unanswered = 0 if is_answered else self._unanswered + 1
        if self._unanswered >= _UNANSWERED_MAX:
            self._fall(Level.HEARTBEAT, now_s)

    def _begin_round(self, now_s: float) -> None:
        self._round = _Round(now_s)
        # At full rate, successes alone change nothing, so they need not be counted.
        self.is_watching = not self.is_full

    def _move(self, level: Level, rate: float, now_s: float) -> None:
        self.level = level
        self.rate = rate
        self.since_s = now_s
        self.is_full = level is Level.FULL
        self._begin_round(now_s)
        if level is Level.ADAPTING:
            self._limit.change(rate)


class RateControls:
    """Keeps the rate control of each subscription's last consumer on this node, by name.

    Bounded by the number of subscriptions if `forget` is called for deleted ones.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, RateControl]] = {}

    def find(self, name: str, identity: object) -> RateControl | None:
        """The subscription's rate control; None if it belongs to another endpoint or grant."""
        kept = self._kept.get(name)
        return kept[1] if kept is not None and kept[0] == identity else None

    def keep(self, name: str, identity: object, control: RateControl) -> None:
        """Keep the rate control under this identity."""
        self._kept[name] = identity, control

    def forget(self, name: str) -> None:
        """Forget a deleted subscription."""
        self._kept.pop(name, None)
