"""How fast an endpoint may be pushed to now, learned from each answer. Pure: times are arguments.

Four levels: full rate ↔ adapting ↔ one a second ↔ one a minute. While adapting, the rate follows
additive increase and multiplicative decrease (Chiu and Jain 1989, as in TCP), judged in rounds, and
falls only as long as that makes fewer fail; after an outage it begins low and doubles (slow start).
The two lowest levels are half-open: a single push is under way at a time, and the first that
succeeds opens. An endpoint that answers with errors is sick and stays at one a second; one that
does not answer at all is dead, gets one a minute, and is probed with a mere connection in between.
No answers are no evidence: an idle subscription keeps its level.
"""

from enum import StrEnum
from typing import NamedTuple

from hermes_actors.consumer.rates.cause import (
    EVIDENCE_AGE_S,
    FailureCause,
    Finding,
    Round,
    RoundCounts,
    Verdict,
)
from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.consumer.senders.sender import PROBE_TIMEOUT_S
from hermes_actors.coordination.commands import RateState
from hermes_actors.status.reasons import Code, Reason, because

# A message that goes on failing while nothing succeeds is counted again after so long.
_RECOUNT_S = 3.0
_CALM_S = 10.0
_DECREASE = 0.8
_STEPS = 10
_FLOOR_SHARE = 64
# The least after an outage, or a rise: fewer would only make rounds wait for answers to judge by.
_START_PER_S = 4.0
_UNANSWERED_MAX = 5
_SLOW_S = 1.0
_HEARTBEAT_S = 60.0
_NEVER_S = float("inf")
# An owner of a small part of the rate tries a sick endpoint so much more rarely, and no more.
_SHARE_MIN = 0.1

IN_AN_EARLIER_LIFE_S = -_NEVER_S
"""When a message failed that an earlier life of its consumer passed over."""


def noted_s(failed_before_s: float | None, now_s: float) -> float:
    """Return when a message is said to have failed that fails now.

    One that an earlier life passed over is counted when nothing has succeeded for a whole minute of
    this one: where nothing new is published, all that is tried is what had failed.
    """
    if failed_before_s == IN_AN_EARLIER_LIFE_S:
        return now_s + EVIDENCE_AGE_S - _RECOUNT_S
    return now_s


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


class RateControl:
    """The rate of one endpoint, up to `maximum` a second.

    Use: `available` before each push and `take` at each, while not `is_full`; then one of
    `on_success`, `on_failure`, `on_neutral` for each, with the `epoch` in which it was sent: what
    was sent before a fall says nothing of the lower rate. Successes need be told only while
    `is_watching`, but their time always: in `success_s`. Times are monotonic seconds.
    """

    def __init__(self, maximum: float, now_s: float) -> None:
        self.maximum = self.rate = float(maximum)
        self.share = 1.0
        self.success_s = -_NEVER_S
        self.epoch = 0
        self.level = Level.FULL
        self.is_full = True
        self.is_watching = False
        self.since_s = now_s
        self._unanswered = 0
        self._round = Round(now_s)
        self._cause = FailureCause()
        self._limit = RateLimit(self.rate)
        self.reset(now_s)

    def reset(self, now_s: float) -> None:
        """Trust fully, for nothing is known: a new subscription, or another endpoint."""
        self._is_pushing = self._is_connecting = self._is_slow_start = False
        self._has_connected = False
        self._connect_s = self._next_s = now_s
        self._unanswered = 0
        self.epoch += 1
        self._cause.clear()
        self._round.clear(now_s)
        self._move(Level.FULL, self.maximum, now_s)

    def change(self, maximum: float, now_s: float) -> None:
        """Use another maximum from now on."""
        self.maximum = float(maximum)
        if self.level is Level.FULL:
            self.rate = self.maximum
        elif self.level is Level.ADAPTING:
            self._set_rate(min(self.rate, self.maximum), now_s)

    def divide(self, maximum: float, share: float, now_s: float) -> None:
        """Use another share of the subscription's rate as the maximum: the endpoint is trusted with
        as much as before, so that what this owner may send changes in proportion.
        """
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
        """Begin with what an owner before knew of the endpoint; a half-open level may push at once.

        Nothing is taken at once: what the owner before took in this second is not known.
        """
        level = _LEVELS.get(known.level, Level.FULL)
        if level.is_half_open:
            self._fall(level, now_s)
            self._next_s = now_s
        elif level is Level.ADAPTING and known.rate * self.share < self.maximum:
            self._move(level, max(self._floor, known.rate * self.share), now_s)
            self._limit.drain(now_s)

    def known(self) -> RateState:
        """Return the level and the rate of all owners together, for the next owner to begin
        with.
        """
        return RateState(self.level.value, self.rate / self.share)

    def resume(self, now_s: float) -> None:
        """Go on after a pause in which nothing was pushed: of what was under way none returns.

        A half-open level may push at once.
        """
        self._is_pushing = self._is_connecting = self._has_connected = False
        self._next_s = self._connect_s = now_s
        self._begin_round(now_s)
        self.epoch += 1

    def push_at_once(self, now_s: float) -> None:
        """Let a half-open level push at once: somebody has done something about the endpoint."""
        self._next_s = now_s

    # Asking.

    def available(self, now_s: float) -> int:
        """How many may be pushed now, beside the subscription's maximum; while not `is_full`."""
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
        """Back to full rate once nothing has failed for long, however little was pushed."""
        calm_s = EVIDENCE_AGE_S if self._round.failures else _CALM_S
        is_calm = self._round.age_s(now_s) >= calm_s
        if self.level is Level.ADAPTING and is_calm:
            self._cause.clear()
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
        """Take in that a push was taken, or given up by no fault of the endpoint's."""
        self.success_s = now_s
        if epoch != self.epoch:
            return
        if self.level.is_half_open:
            self._open(now_s)
            return
        self._round.on_success(now_s)
        self._round.sent += self.is_full
        self._judge(now_s)

    def on_neutral(self, now_s: float, epoch: int, *, is_answered: bool) -> None:
        """Take in a push that says nothing of the endpoint's strength: not sent, or asked for a
        pause.
        """
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
        """A push failed, as did the same message at `failed_before_s` (None: never before). True
        if this is the time to hand over for its next failure.

        Messages are counted, not attempts: one that fails again after others succeeded is itself
        what is wrong, and one that is tried ten times a second is not ten. `is_pressed`: the answer
        itself says that it is too much.
        """
        if epoch != self.epoch:
            return True
        if self.level.is_half_open:
            self._stay_half_open(now_s, is_answered=is_answered)
            return True
        self._round.sent += self.is_full
        if failed_before_s is not None:
            # After a restart all that failed before comes first, one after the other: that is no
            # news of the endpoint, or each restart would slow down what is healthy behind it.
            if failed_before_s == IN_AN_EARLIER_LIFE_S or failed_before_s < self.success_s:
                return True
            if now_s - failed_before_s < _RECOUNT_S:
                if self._round.is_outage(now_s, self.success_s, is_open=self._cause.is_open):
                    self._judge(now_s)
                return False
        if not self.is_watching:
            self.is_watching = True
            self._round.begin(now_s)
            self._round.sent = 1
        self._round.on_failure(now_s, self.success_s, is_pressed=is_pressed)
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
        return min(self.maximum, max(1.0, self.maximum / _FLOOR_SHARE))

    def _judge(self, now_s: float) -> None:
        finding = self._round.find(
            now_s, self.success_s, is_full=self.is_full, is_open=self._cause.is_open
        )
        if finding is Finding.OUTAGE:
            self._cause.on_outage(now_s)
            self._fall(Level.SLOW, now_s)
        elif finding is Finding.OVERLOAD:
            self._yield(now_s)
        elif finding is Finding.SHARE:
            self._follow(now_s)
        elif finding is Finding.CALM:
            self._cause.abandon()
            self._increase(now_s)
            self._begin_round(now_s)
        elif finding is Finding.FEW:
            self._begin_round(now_s)

    def _yield(self, now_s: float) -> None:
        """Most fails: send from now on what the endpoint takes, or if that is next to nothing, a
        probe.
        """
        tally = self._round.tally(now_s)
        self._cause.on_overload(tally.taken_per_s, now_s)
        rate = tally.taken_per_s / (1.0 - self._cause.excused)
        if min(self.rate, rate) > self._floor:
            self._decrease(min(rate, self._lowered(tally)), now_s)
        else:
            self._fall(Level.SLOW, now_s)

    def _follow(self, now_s: float) -> None:
        tally = self._round.tally(now_s)
        verdict = self._cause.judge(tally, now_s, is_lowest=self.rate <= self._floor)
        if verdict is Verdict.FALL:
            self._decrease(self._lowered(tally), now_s)
            return
        if verdict is Verdict.RISE:
            self._increase(now_s)
        else:
            self._is_slow_start = False
        self._begin_round(now_s)

    def _lowered(self, tally: RoundCounts) -> float:
        # To allow less than before, but more than is sent, would change nothing (RFC 7661).
        return min(self.rate, tally.sent_per_s) * _DECREASE

    def _begin_round(self, now_s: float) -> None:
        self._round.begin(now_s)
        # At full rate successes alone could change nothing: nobody need count them.
        self.is_watching = not self.is_full

    def _decrease(self, rate: float, now_s: float) -> None:
        self._is_slow_start = False
        rate = max(self._floor, rate)
        if self.level is Level.FULL:
            self._move(Level.ADAPTING, rate, now_s)
        else:
            self._set_rate(rate, now_s)
        self.epoch += 1
        if not self.is_full:
            self._round.begin_with_an_answer(now_s)

    def _increase(self, now_s: float) -> None:
        if self.level is Level.ADAPTING:
            # A tenth of a maximum that is far off is many times what a small endpoint can take.
            step = self.rate if self._is_slow_start else min(self.rate / 2, self.maximum / _STEPS)
            rate = max(self.rate + step, _START_PER_S)
            self._set_rate(min(self.maximum, rate), now_s)

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
        self._round.clear(now_s)
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

    def _move(self, level: Level, rate: float, now_s: float) -> None:
        self.level = level
        self.rate = rate
        self.since_s = now_s
        self.is_full = level is Level.FULL
        self._begin_round(now_s)
        if level is Level.ADAPTING:
            self._limit.change(rate)


class _Kept(NamedTuple):
    identity: object
    epoch: int
    control: RateControl


class RateControls:
    """The rate control of each subscription, by name.

    Bounded by the subscriptions that exist: `forget` what does not.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def find(self, name: str, identity: object, *, epoch: int = 0) -> RateControl | None:
        """The rate control of the subscription; None when it, its endpoint or the grant (`epoch`)
        is another: what happened between two grants is for another owner to tell.
        """
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
