"""How fast an endpoint may be pushed to, learned from its answers. Pure: times are arguments.

Four levels: full rate, adapting, one a second, one a minute. While adapting, the rate follows
additive increase and multiplicative decrease (Chiu and Jain 1989, as in TCP), judged in rounds of
half a second. The two lowest levels are half-open: one push at a time, and the first that succeeds
opens. An endpoint that answers with errors stays at one a second. One that does not answer gets one
a minute, and a mere connection is tried in between. No answers are no evidence: an idle
subscription keeps its level.

Messages are counted, not attempts: one that fails again while others succeed is itself what is
wrong. Errors that come from the load (429, 502 to 504, no answer) or that most messages meet lower
the rate as far as it goes; other errors of a smaller share lower it to a quarter at most, for it
may be that share of the messages which is wrong.
"""

from enum import StrEnum
from typing import NamedTuple

from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.consumer.senders.sender import PROBE_TIMEOUT_S
from hermes_actors.coordination.commands import RateState
from hermes_actors.status.reasons import Code, Reason, because

ROUND_S = 0.5
"""How long outcomes are gathered before the rate is judged, at least."""

IN_AN_EARLIER_LIFE_S = float("-inf")
"""When a message failed that its consumer's earlier life passed over."""

# With fewer outcomes, some of them failures, a round goes on for longer and lowers nothing.
_OUTCOMES_MIN = 20
_ROUND_S_MAX = 2.0
# So many failures in a row, for as long as a round, are an outage.
_ROW_MIN = 10
# Above this share of failures the rate falls, below it rises. A few failures may be chance.
_FALL_SHARE, _FALL_CHANCE = 0.05, 6
_RISE_SHARE, _RISE_CHANCE = 0.01, 1
_DECREASE = 0.8
_INCREASES = 10
_FLOOR_SHARE = 1 / 64
_FLOOR_SHARE_OF_MESSAGES = 1 / 4
_START_PER_S = 4.0
# A message that goes on failing while nothing succeeds is counted again after so long.
_RECOUNT_S = 3.0
# The full rate is back after so long without a failure, or with few of them.
_CALM_S = 10.0
_CALM_S_AFTER_FAILURES = 60.0
_UNANSWERED_MAX = 5
_SLOW_S, _HEARTBEAT_S = 1.0, 60.0
# The owner of a small share of the rate tries a sick endpoint more rarely, up to so much.
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


class Round:
    """Outcomes since `begin`; the row of failures without a success goes on over rounds."""

    def __init__(self, now_s: float) -> None:
        self.row = 0
        self.failed_s = now_s
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Count anew."""
        self.begun_s = now_s
        self.failures = self.pressed = self.successes = self.sent = 0


class RateControl:
    """The rate of one endpoint, up to `maximum` a second.

    While not `is_full`, ask `available` before each push and call `take` at each. Then call one of
    `on_success`, `on_failure`, `on_neutral` for each, with the `epoch` in which it was sent: a push
    from before a fall says nothing of the lower rate. Successes matter only while `is_watching`,
    but set `success_s` at each. Times are monotonic seconds.
    """

    def __init__(self, maximum: float, now_s: float) -> None:
        self.maximum = float(maximum)
        self.share = 1.0
        self.success_s = -_NEVER_S
        self.epoch = 0
        self.is_watching = False
        self._limit = RateLimit(self.maximum)
        self.reset(now_s)

    def reset(self, now_s: float) -> None:
        """Trust fully: the endpoint is new."""
        self._is_pushing = self._is_connecting = self._has_connected = False
        self._is_slow_start = False
        self._unanswered = 0
        self._connect_s = self._next_s = now_s
        self._round = Round(now_s)
        self.epoch += 1
        self._move(Level.FULL, self.maximum, now_s)

    def change(self, maximum: float, now_s: float) -> None:
        """Use another maximum from now on."""
        self.maximum = float(maximum)
        if self.level is Level.FULL:
            self.rate = self.maximum
        elif self.level is Level.ADAPTING:
            self._set_rate(min(self.rate, self.maximum), now_s)

    def divide(self, maximum: float, share: float, now_s: float) -> None:
        """Use another share of the subscription's rate; what may be sent changes in proportion."""
        factor, self.share = maximum / self.maximum, share
        self.maximum = float(maximum)
        if self.level is Level.FULL:
            self.rate = self.maximum
        elif self.level is Level.ADAPTING:
            self._set_rate(max(self._floor, self.rate * factor), now_s)
            self._limit.relax(now_s)
        else:
            self._next_s = min(self._next_s, now_s + self._pause_s)

    def take_over(self, known: RateState, now_s: float) -> None:
        """Begin with what the owner before knew; a half-open level may push at once."""
        level = _LEVELS.get(known.level, Level.FULL)
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

    def resume(self, now_s: float) -> None:
        """Go on after a pause. Of the pushes under way none returns; a half-open level may push at
        once.
        """
        self._is_pushing = self._is_connecting = self._has_connected = False
        self._next_s = self._connect_s = now_s
        self._begin_round(now_s)
        self.epoch += 1

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
        self._has_connected = False
        self._next_s = now_s + self._pause_s

    def wait_s(self, now_s: float) -> float:
        """How long until one may be pushed; infinity when only an answer can allow it."""
        if self.is_full:
            return 0.0
        if not self.level.is_half_open:
            return self._limit.wait_s(now_s)
        return _NEVER_S if self._is_pushing else max(0.0, self._next_s - now_s)

    def recover(self, now_s: float) -> None:
        """Go back to the full rate when nothing has failed for long, however little was pushed."""
        calm_s = _CALM_S_AFTER_FAILURES if self._round.failures else _CALM_S
        if self.level is Level.ADAPTING and now_s - self._round.begun_s >= calm_s:
            self._move(Level.FULL, self.maximum, now_s)

    # Probing a dead endpoint with a mere connection.

    def connect_wait_s(self, now_s: float) -> float:
        """How long until a connection is to be tried; infinity when none is wanted."""
        is_wanted = self.level is Level.HEARTBEAT and not (self._is_pushing or self._is_connecting)
        # Once it has connected, only a push can say more.
        if not is_wanted or self._has_connected:
            return _NEVER_S
        return max(0.0, self._connect_s - now_s)

    def on_connecting(self, now_s: float) -> None:
        """Note that a connection is being tried."""
        self._is_connecting = True
        self._connect_s = now_s + PROBE_TIMEOUT_S

    def on_connect(self, now_s: float, *, is_made: bool) -> None:
        """The connection was made, or not. If so, a push may follow at once."""
        self._is_connecting = False
        if is_made and self.level is Level.HEARTBEAT:
            self._has_connected = True
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
        self._round.row = 0
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
            # After a restart the messages that failed before come first: no news of the endpoint.
            is_old = failed_before_s == IN_AN_EARLIER_LIFE_S
            if is_old or failed_before_s < self.success_s:
                return True
            if now_s - failed_before_s < _RECOUNT_S:
                if self._is_outage(now_s):
                    self._fall(Level.SLOW, now_s)
                return False
        if not self.is_watching or now_s - self._round.begun_s >= _CALM_S_AFTER_FAILURES:
            self.is_watching = True
            self._round.begin(now_s)
            self._round.sent = 1
        this = self._round
        this.row = 1 if self.success_s >= this.failed_s else this.row + 1
        this.failed_s = now_s
        this.failures += 1
        this.pressed += is_pressed
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
        return self._round.row >= _ROW_MIN and now_s - self.success_s >= ROUND_S

    def _judge(self, now_s: float) -> None:
        this = self._round
        age_s, outcomes = now_s - this.begun_s, this.failures + this.successes
        if self._is_outage(now_s):
            self._fall(Level.SLOW, now_s)
        elif this.row >= _ROW_MIN or age_s < ROUND_S:
            # A row may become an outage: until then nothing else is judged.
            return
        elif outcomes < _OUTCOMES_MIN and this.failures and age_s < _ROUND_S_MAX:
            return
        elif outcomes >= _OUTCOMES_MIN and this.failures > this.successes:
            self._yield(this.successes / age_s, this.sent / age_s, now_s)
        elif outcomes >= _OUTCOMES_MIN and _exceed(this.pressed, outcomes):
            self._lower(self._floor, this.sent / age_s, now_s)
        elif outcomes >= _OUTCOMES_MIN and _exceed(this.failures, outcomes):
            floor = max(self._floor, self.maximum * _FLOOR_SHARE_OF_MESSAGES)
            self._lower(floor, this.sent / age_s, now_s)
        else:
            is_calm = this.failures <= _RISE_SHARE * outcomes + _RISE_CHANCE
            if is_calm and (outcomes >= _OUTCOMES_MIN or not this.failures):
                self._increase(now_s)
            else:
                self._is_slow_start = False
            self._begin_round(now_s)

    def _yield(self, taken_per_s: float, sent_per_s: float, now_s: float) -> None:
        """Most fails: send what the endpoint takes, or a probe if that is next to nothing."""
        if min(self.rate, taken_per_s) > self._floor:
            self._lower(self._floor, min(taken_per_s / _DECREASE, sent_per_s), now_s)
        else:
            self._fall(Level.SLOW, now_s)

    def _lower(self, floor: float, sent_per_s: float, now_s: float) -> None:
        self._is_slow_start = False
        # To allow less than before, but more than is sent, would change nothing (RFC 7661).
        rate = max(min(floor, self.rate), min(self.rate, sent_per_s) * _DECREASE)
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
            self._set_rate(min(self.maximum, max(rate, _START_PER_S)), now_s)

    def _set_rate(self, rate: float, now_s: float) -> None:
        """Set another rate of the level ADAPTING, which ends at the maximum."""
        if rate >= self.maximum:
            self._move(Level.FULL, self.maximum, now_s)
        else:
            self.rate = rate
            self._limit.change(rate)

    def _open(self, now_s: float) -> None:
        self._is_pushing = self._is_connecting = False
        self._is_slow_start = True
        self.epoch += 1
        start = min(self.maximum, max(_START_PER_S, self._floor))
        level = Level.ADAPTING if start < self.maximum else Level.FULL
        self._move(level, start, now_s)

    def _fall(self, level: Level, now_s: float) -> None:
        self._is_pushing = self._is_connecting = self._is_slow_start = False
        self._has_connected = False
        self._unanswered = 0
        self._round = Round(now_s)
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
        self._round.begin(now_s)
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


def _exceed(failures: int, outcomes: int) -> bool:
    return failures > _FALL_SHARE * outcomes + _FALL_CHANCE


class _Kept(NamedTuple):
    identity: object
    epoch: int
    control: RateControl


class RateControls:
    """The rate control of each subscription, by name.

    Bounded by the subscriptions that exist: call `forget` for one that is gone.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def find(self, name: str, identity: object, *, epoch: int = 0) -> RateControl | None:
        """The rate control of the subscription; None for another endpoint or grant (`epoch`)."""
        kept = self._kept.get(name)
        is_same = kept is not None and (kept.identity, kept.epoch) == (identity, epoch)
        return kept.control if kept is not None and is_same else None

    def keep(self, name: str, identity: object, control: RateControl, *, epoch: int = 0) -> None:
        """Keep the rate control as that of this identity."""
        self._kept[name] = _Kept(identity, epoch, control)

    def forget(self, name: str) -> None:
        """Forget a subscription that is no more."""
        self._kept.pop(name, None)


_LEVELS = {level.value: level for level in Level}
