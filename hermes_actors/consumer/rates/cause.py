"""Whether failures come from the load: a rate is lowered for as long as that lowers their share.

An endpoint that is sent too much fails less when it is sent less. One that refuses every tenth
message for the message's own sake does not, and to slow it down only makes lag. Which of the two it
is an experiment tells: after a few cuts, when about half as much is sent, the share of failures is
compared with that before. If it is much the same, this share is excused, the rate rises again, and
only what fails beyond it counts from then on. What is compared is what was sent, never what was
allowed. Pure; the state is a few numbers.
"""

from enum import Enum, auto
from math import sqrt
from typing import NamedTuple

ROUND_S = 0.5
"""How long answers are gathered before the rate is judged, at least."""

EVIDENCE_AGE_S = 60.0
"""This old it counts no more."""

RISE_TOLERANCE = 0.01
"""Up to such a share of failing messages the rate rises."""

# With fewer outcomes, some of them failures, a round goes on for longer.
_OUTCOMES_MIN = 20
_OUTCOMES_PER_S_MIN = 10
_ROUND_MAX_S = 2.0
# So many failures one after the other, or more than successes in a round, are no chance.
_MAJORITY_MIN = 10
# Where much fails for other reasons than the load they may be, up to a share of 40 %.
_MAJORITY_OPEN_MIN = 30


class Finding(Enum):
    """The finding of a round."""

    NONE = auto()
    """The round goes on."""

    OUTAGE = auto()
    """Nothing has been taken for as long as a round is, and what failed meanwhile is no chance."""

    OVERLOAD = auto()
    """Most fails, but not all."""

    SHARE = auto()
    """There are enough outcomes to tell the share that fails."""

    CALM = auto()
    """There are few, and next to none fails."""

    FEW = auto()
    """There are too few to lower anything, and some fail."""


class RoundCounts(NamedTuple):
    """The messages of a round; of the failures `pressed` said themselves that it is too much."""

    failures: int
    outcomes: int
    sent_per_s: float
    taken_per_s: float
    pressed: int = 0

    @property
    def share(self) -> float:
        """The share of the messages that failed, 0 to 1."""
        return self.failures / self.outcomes


def _majority_min(*, is_open: bool) -> int:
    return _MAJORITY_OPEN_MIN if is_open else _MAJORITY_MIN


class Round:
    """Outcomes since `begin`; `sent` is counted by its user. Times are monotonic seconds.

    Beside it goes a row of failures without a success between, however many rounds that takes: too
    much makes an endpoint fail most of what it gets, an outage all. Ten failures in one instant may
    be either; half a second in which nothing is taken is the latter.
    """

    def __init__(self, now_s: float) -> None:
        self._failed_s = now_s
        self.clear(now_s)

    def clear(self, now_s: float) -> None:
        """Forget all, the row of failures too."""
        self._row = 0
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Count anew; the row of failures goes on."""
        self._begun_s = now_s
        self._is_awaited = False
        self.failures = self._pressed = self._successes = self.sent = 0

    def begin_with_an_answer(self, now_s: float) -> None:
        """Count anew from the first outcome on: until then there are none of the lower rate."""
        self.begin(now_s)
        self._is_awaited = True

    def age_s(self, now_s: float) -> float:
        """Return how long the round has been going on."""
        return now_s - self._begun_s

    def on_success(self, now_s: float) -> None:
        """Count a message that was taken."""
        self._expire(now_s)
        self._row = 0
        self._successes += 1

    def on_failure(self, now_s: float, success_s: float, *, is_pressed: bool) -> None:
        """Count a message that failed; the last success, told or not, was at `success_s`."""
        self._expire(now_s)
        self._row = 1 if success_s >= self._failed_s else self._row + 1
        self._failed_s = now_s
        self.failures += 1
        self._pressed += is_pressed

    def tally(self, now_s: float) -> RoundCounts:
        """Return the counts of the round; some time must have passed."""
        age_s = self.age_s(now_s)
        return RoundCounts(
            self.failures,
            self.failures + self._successes,
            self.sent / age_s,
            self._successes / age_s,
            self._pressed,
        )

    def find(self, now_s: float, success_s: float, *, is_full: bool, is_open: bool) -> Finding:
        """Return the finding so far. `is_full`: at full rate; `is_open`: part of the failures has,
        or may have, another cause than the load.
        """
        outcomes = self.failures + self._successes
        age_s = self.age_s(now_s)
        majority_min = _majority_min(is_open=is_open)
        if self._row >= majority_min:
            # Until it is known which of the two it is, nothing else is judged.
            is_outage = self.is_outage(now_s, success_s, is_open=is_open)
            return Finding.OUTAGE if is_outage else Finding.NONE
        if self.failures >= self._successes + majority_min and age_s >= ROUND_S:
            return Finding.OVERLOAD
        # Gathered slowly, evidence is too old to lower a rate that is not used anyway.
        if outcomes >= max(_OUTCOMES_MIN, _OUTCOMES_PER_S_MIN * age_s):
            return Finding.SHARE if age_s >= ROUND_S else Finding.NONE
        if age_s < self._length_s(is_full=is_full):
            return Finding.NONE
        # Few outcomes lower nothing. Without failures, or with one in so many, they raise the rate.
        return Finding.CALM if self.failures <= RISE_TOLERANCE * outcomes else Finding.FEW

    def is_outage(self, now_s: float, success_s: float, *, is_open: bool) -> bool:
        """True if it is an outage by now: time alone may show it, when all that there is fails
        again.
        """
        return self._row >= _majority_min(is_open=is_open) and now_s - success_s >= ROUND_S

    def _length_s(self, *, is_full: bool) -> float:
        if not self.failures:
            return ROUND_S
        # A sick endpoint with little to push is found out too, if it takes longer.
        is_suspect = is_full and self.failures > self._successes
        return EVIDENCE_AGE_S if is_suspect else _ROUND_MAX_S

    def _expire(self, now_s: float) -> None:
        """Begin anew at the first outcome that was waited for, or where the round is too old."""
        if self._is_awaited:
            self.begin(now_s)
        elif self.age_s(now_s) >= EVIDENCE_AGE_S:
            self.begin(now_s - ROUND_S)


# Of the messages: when a larger share fails, the rate falls.
_FALL_TOLERANCE = 0.05
# Failures beyond the share that may be chance. A 1 % of failures passes it in no round to speak of.
_CHANCE = 6
# Around an excused share there is chance too: in standard deviations.
_DEVIATIONS = 2.0
# Who fails more often than this is not well, whatever the cause.
_EXCUSED_MAX = 0.5
# Three cuts by a fifth. With half of it failing, a mere limit would let nearly all pass by then.
_HALVED = 0.55
# A share that is down to so much of what it was has followed the rate.
_HELPED = 2 / 3
# What a comparison rests on: so many failures, were the share as before, in so many rounds.
_FAILURES_MIN = 20
_ROUNDS_MIN = 2
# A small share is held for so long before the rate is tried again.
_ROUNDS_HELD = 4
# An excuse after which most fails, and not so much more is taken, was wrong, and for a while there
# is no other.
_TRIAL_S = 5.0
_GROWN = 1.1
_DISTRUST_S = 60.0
_EXCUSED_MIN = 0.005


class Verdict(Enum):
    """The rate's change after a round: it falls, stays or rises."""

    FALL = auto()
    HOLD = auto()
    RISE = auto()


class FailureCause:
    """The cause of an endpoint's failures, the load or another, judged round by round.

    `excused` is the share of failures that does not come from what it is sent.
    """

    def __init__(self) -> None:
        self._distrusted_s = self._excused_s = float("-inf")
        self._excused_sent_per_s = self._excused_taken_per_s = 0.0
        self.clear()

    @property
    def is_comparing(self) -> bool:
        """True while the rate was cut and an experiment is to tell whether that helps."""
        return self._before_share > 0.0

    @property
    def is_open(self) -> bool:
        """True while part of the failures is excused, or may be."""
        return self.excused > 0.0 or self.is_comparing

    def clear(self) -> None:
        """Excuse nothing: nothing fails, or another endpoint begins."""
        self.excused = 0.0
        self.abandon()

    def abandon(self) -> None:
        """End the experiment, for the rate changes for another reason: what is sent now has nothing
        to do with before.
        """
        self._before_share = self._before_per_s = 0.0
        self._begin_pool()

    def on_outage(self, now_s: float) -> None:
        """Judge a round in which nothing is taken."""
        self.on_overload(0.0, now_s)

    def on_overload(self, taken_per_s: float, now_s: float) -> None:
        """Most fails. If that follows an excuse after which more was sent and not more taken, it
        was the load after all; if more was taken, only now is it the load.
        """
        self.abandon()
        if self._is_wrong(taken_per_s, now_s):
            self.excused = 0.0
            self._distrusted_s = now_s + _DISTRUST_S

    def _is_more_sent(self, tally: RoundCounts) -> bool:
        return tally.sent_per_s > _GROWN * self._excused_sent_per_s

    def _is_wrong(self, taken_per_s: float, now_s: float) -> bool:
        """True if after an excuse the rate has risen, and no more is taken."""
        is_trial = now_s - self._excused_s <= _TRIAL_S
        return is_trial and taken_per_s <= _GROWN * self._excused_taken_per_s

    def judge(self, tally: RoundCounts, now_s: float, *, is_lowest: bool) -> Verdict:
        """Return how the rate is to change after a round with enough outcomes.

        `is_lowest`: the rate falls no further. For failures that say themselves that it is too much
        no experiment is needed.
        """
        failures, outcomes = tally.failures, tally.outcomes
        if tally.pressed > _FALL_TOLERANCE * outcomes + _CHANCE:
            self.abandon()
            return Verdict.FALL
        spread = _DEVIATIONS * sqrt(outcomes * self.excused * (1.0 - self.excused))
        surplus = failures - self.excused * outcomes
        if surplus <= RISE_TOLERANCE * outcomes + 1 + spread / 2:
            self.abandon()
            if tally.taken_per_s > _GROWN * self._excused_taken_per_s:
                self._excused_s = float("-inf")  # the trial is passed
            if surplus < -spread:
                self._fade(tally.share)
            return Verdict.RISE
        if surplus <= _FALL_TOLERANCE * outcomes + _CHANCE + spread:
            return self._hold(tally, now_s)
        return self._suspect(tally, now_s, is_lowest=is_lowest)

    def _fade(self, share: float) -> None:
        """Lower the excuse halfway to a share that is less: that may be chance."""
        self.excused = (self.excused + share) / 2
        if self.excused < _EXCUSED_MIN:
            self.excused = 0.0

    def _hold(self, tally: RoundCounts, now_s: float) -> Verdict:
        """A share that is tolerated at full rate must not keep the rate down for ever."""
        self._pool(tally)
        if self._rounds < _ROUNDS_HELD:
            return Verdict.HOLD
        if not self.excused:
            return self._excuse(tally, now_s)
        if self._is_more_sent(tally) and self._is_wrong(tally.taken_per_s, now_s):
            self.on_overload(tally.taken_per_s, now_s)
            return Verdict.FALL
        # A little more than is excused may grow little by little, and be the load all the same.
        self._compare_with(self._failures / self._outcomes, tally.sent_per_s)
        return Verdict.FALL

    def _suspect(self, tally: RoundCounts, now_s: float, *, is_lowest: bool) -> Verdict:
        is_trial_lost = self._is_more_sent(tally) and self._is_wrong(tally.taken_per_s, now_s)
        if tally.share >= _EXCUSED_MAX or is_trial_lost:
            self.on_overload(tally.taken_per_s, now_s)
            return Verdict.FALL
        if not self._before_share:
            self._compare_with(tally.share, tally.sent_per_s)
            return Verdict.FALL
        if tally.sent_per_s > _HALVED * self._before_per_s and not is_lowest:
            self._begin_pool()
            return Verdict.FALL
        self._pool(tally)
        is_enough = self._outcomes * self._before_share >= _FAILURES_MIN
        if not is_enough or self._rounds < _ROUNDS_MIN:
            return Verdict.HOLD
        pooled = self._failures / self._outcomes
        if pooled <= _HELPED * self._before_share:
            self._compare_with(pooled, tally.sent_per_s)
            return Verdict.FALL
        return self._excuse(tally, now_s)

    def _compare_with(self, share: float, sent_per_s: float) -> None:
        self._before_share, self._before_per_s = share, sent_per_s
        self._begin_pool()

    def _excuse(self, tally: RoundCounts, now_s: float) -> Verdict:
        """The share of the rounds that were held is none of the load's."""
        share = self._failures / self._outcomes
        self.abandon()
        if now_s >= self._distrusted_s and share < _EXCUSED_MAX:
            self.excused, self._excused_s = share, now_s
            self._excused_sent_per_s = tally.sent_per_s
            self._excused_taken_per_s = tally.taken_per_s
        return Verdict.HOLD

    def _pool(self, tally: RoundCounts) -> None:
        self._failures += tally.failures
        self._outcomes += tally.outcomes
        self._rounds += 1

    def _begin_pool(self) -> None:
        self._failures = self._outcomes = self._rounds = 0
