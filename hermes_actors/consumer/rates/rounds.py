"""Rounds of answers, judged: half a second of them, or longer where they are few. Pure."""

from enum import Enum, auto
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

    __slots__ = (
        "_begun_s",
        "_failed_s",
        "_is_awaited",
        "_pressed",
        "_row",
        "_successes",
        "failures",
        "sent",
    )

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
