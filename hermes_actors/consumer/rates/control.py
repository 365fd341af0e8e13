"""How fast an endpoint may be pushed to, learned from its answers. Pure: times are arguments.

Four levels: full rate, adapting, one a second, one a minute. While adapting, the rate follows
additive increase and multiplicative decrease (Chiu and Jain 1989, as in TCP), judged in rounds of
half a second. The two lowest levels are half-open: one push at a time, and the first success opens.
An endpoint that answers with errors stays at one a second. An endpoint that does not answer gets
one a minute, and a bare connection is tried in between. No answers are no evidence: an idle
subscription keeps its level.

Messages are counted, not attempts: a message that fails again while others succeed says nothing of
the endpoint. Errors that come from the load (429, 502 to 504, no answer), or that most messages
meet, lower the rate as far as it goes. Other errors lower it to a quarter at most: they may be the
fault of that share of the messages.
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

# With fewer outcomes, some of them failures, a round goes on for longer and lowers nothing.
_OUTCOMES_MIN = 20
_ROUND_S_MAX = 2.0
# So many failures in a row, for as long as a round, are an outage.
_ROW_MIN = 10
# Above this share of failures the rate falls, below the other it rises. A few may be chance.
_FALL_SHARE, _FALL_CHANCE = 0.05, 6
_RISE_SHARE, _RISE_CHANCE = 0.01, 1
_DECREASE = 0.8
_INCREASES = 10
_FLOOR_SHARE = 1 / 64
_FLOOR_SHARE_OF_MESSAGES = 1 / 4
_START_PER_S = 4.0
# A message that goes on failing while nothing succeeds is counted again after so long.
_RECOUNT_S = 3.0
# The full rate is back after so long without an outcome that says otherwise.
_CALM_S = 10.0
_UNANSWERED_MAX = 5
_SLOW_S, _HEARTBEAT_S = 1.0, 60.0
# The owner of a small share of the rate tries a sick endpoint more rarely, down to this share.
_SHARE_MIN = 0.1
_NEVER_S = float("inf")


class Level(StrEnum):
    """How much an endpoint is trusted with."""

    FULL = "FULL"
    ADAPTING = "ADAPTING"
    SLOW = "SLOW"
    HEARTBEAT = "HEARTBEAT"

    @property
    def is_half_open(self) -> bool:
        """True where a single push at a time finds out how the endpoint is."""
        return self is Level.SLOW or self is Level.HEARTBEAT


class Pace(ABC):
    """How fast messages may be sent."""

    @property
    def level(self) -> Level:
        """How much the endpoint is trusted with: fully, where nothing is learned of it."""
        return Level.FULL

    @property
    @abstractmethod
    def rate_now(self) -> float:
        """How many messages a second may be sent now; 0 when nothing limits it."""

    @property
    @abstractmethod
    def allowed(self) -> float:
        """The owner's share of the rate, in messages a second; below 0 when there is no limit."""

    @abstractmethod
    def divide(self) -> None:
        """Put another share of the rate in force at once."""

    def known(self) -> RateState | None:
        """Return the endpoint's rate for the next owner to begin with; None when nothing is
        learned.
        """
        return None


class _Round(Struct):
    """Outcomes since `begun_s`; `pressed` are the failures that come from the load."""

    begun_s: float
    sent: int = 0
    successes: int = 0
    failures: int = 0
    pressed: int = 0


class RateControl:
    """The rate of one endpoint, up to `maximum` a second, of which this owner has `share`.

    While not `is_full`, ask `available` before each push and call `take` at each. Then call
    `on_success`, `on_failure` or `on_neutral` for each, with the `epoch` in which it was sent: a
    push from before a fall says nothing of the lower rate. Successes matter only while
    `is_watching`, but set `success_s` at each. Times are monotonic seconds.
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
        """Trust fully: the endpoint is new."""
        self._is_pushing = self._is_slow_start = False
        # When a half-open level may push, and when a connection is tried.
        self._next_s = self._connect_s = now_s
        self._unanswered = self._row = 0
        self._failed_s = now_s
        self.epoch += 1
        self._move(Level.FULL, self.maximum, now_s)

    def change(self, maximum: float, share: float, now_s: float) -> None:
        """Use another maximum, and another share of it, from now on."""
        factor, self.share, self.maximum = share / self.share, share, float(maximum)
        if self.level is Level.FULL:
            self.rate = self.maximum
        elif self.level is Level.ADAPTING:
            self._set_rate(max(self._floor, self.rate * factor), now_s)
            self._limit.relax(now_s)
        else:
            self._next_s = min(self._next_s, now_s + self._pause_s)

    def take_over(self, known: RateState, now_s: float) -> None:
        """Begin with what the owner before knew; a half-open level may push at once."""
        level = Level(known.level)
        if level.is_half_open:
            self._fall(level, now_s)
            self._next_s = now_s
        elif level is Level.ADAPTING and known.rate * self.share < self.maximum:
            self._move(level, max(self._floor, known.rate * self.share), now_s)
            # What the owner before took in this second is not known.
            self._limit.drain(now_s)

    def known(self) -> RateState:
        """The level, and the rate of all owners together, for the next owner to begin with."""
        return RateState(self.level.value, self.rate / self.share)

    def push_at_once(self, now_s: float) -> None:
        """Let a half-open level push at once: somebody may have repaired the endpoint."""
        self._next_s = now_s

    # Asking.

    def available(self, now_s: float) -> int:
        """How many may be pushed now, while not `is_full`, beside the subscription's maximum."""
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
        """How long until one may be pushed; infinity when only an answer can allow it."""
        if self.is_full:
            return 0.0
        if not self.level.is_half_open:
            return self._limit.wait_s(now_s)
        return _NEVER_S if self._is_pushing else max(0.0, self._next_s - now_s)

    def recover(self, now_s: float) -> None:
        """Go back to the full rate when nothing has failed for long, however little was pushed."""
        if self.level is Level.ADAPTING and now_s - self._round.begun_s >= _CALM_S:
            self._move(Level.FULL, self.maximum, now_s)

    # Probing a dead endpoint with a bare connection.

    def connect_wait_s(self, now_s: float) -> float:
        """How long until a connection is to be tried; infinity when none is wanted."""
        if self.level is not Level.HEARTBEAT or self._is_pushing:
            return _NEVER_S
        return max(0.0, self._connect_s - now_s)

    def on_connecting(self, now_s: float) -> None:
        """Note that a connection is being tried."""
        self._connect_s = now_s + PROBE_TIMEOUT_S

    def on_connected(self, now_s: float) -> None:
        """A connection was made: only a push can say more, and it may follow at once."""
        if self.level is Level.HEARTBEAT:
            self._connect_s = _NEVER_S
            self._next_s = now_s

    # Answers.

    def on_success(self, now_s: float, epoch: int) -> None:
        """A push was taken, or was given up by no fault of the endpoint's."""
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
        """A push says nothing of the endpoint's strength: not sent, or asked for a pause."""
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

        True if `now_s` is to be given as `failed_before_s` at its next failure. `is_pressed`: the
        failure comes from the load.
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

    # Deciding.

    @property
    def _pause_s(self) -> float:
        # Several owners together try a sick endpoint no more often than one alone.
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
            # A row may become an outage: until then nothing else is judged.
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
            # Most fails, however little is sent.
            self._fall(Level.SLOW, now_s)
            return
        is_pressed = this.pressed > _FALL_SHARE * outcomes + _FALL_CHANCE
        if not is_pressed and this.failures <= this.successes:
            floor = max(floor, self.maximum * _FLOOR_SHARE_OF_MESSAGES)
        # To allow less than before, but more than is sent, would change nothing (RFC 7661).
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
            # A tenth of a distant maximum is many times what a small endpoint can take.
            step = min(self.rate / 2, self.maximum / _INCREASES)
            rate = self.rate + (self.rate if self._is_slow_start else step)
            self._set_rate(max(rate, _START_PER_S), now_s)

    def _set_rate(self, rate: float, now_s: float) -> None:
        """Set another rate of the level ADAPTING, which ends at the maximum."""
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
        # The first time as soon as the level above would have pushed: it may just have come back.
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
        # At full rate successes alone could change nothing: nobody need count them.
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
    """The rate control that each subscription's last consumer on this node had, by name.

    Bounded by the subscriptions that exist: call `forget` for one that is gone.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, RateControl]] = {}

    def find(self, name: str, identity: object) -> RateControl | None:
        """The rate control of the subscription; None where it was another endpoint's or grant's."""
        kept = self._kept.get(name)
        return kept[1] if kept is not None and kept[0] == identity else None

    def keep(self, name: str, identity: object, control: RateControl) -> None:
        """Keep the rate control as that of this identity."""
        self._kept[name] = identity, control

    def forget(self, name: str) -> None:
        """Forget a subscription that is no more."""
        self._kept.pop(name, None)
