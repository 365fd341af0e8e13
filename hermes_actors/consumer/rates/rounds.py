"""What the answers of a round say: half a second of them, or longer where they are few. Pure."""

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
_ROUND_COMPARING_S = 1.0
_ROUND_MAX_S = 2.0
# So many more failures than successes are no chance: a share of 30 % gets there once in an hour.
_MAJORITY_MIN = 10
# Where much fails for other reasons than the load: a share of 40 % gets there once in a day.
_MAJORITY_OPEN_MIN = 30


class Finding(Enum):
    """What a round has come to."""

    NONE = auto()
    """It goes on."""

    OUTAGE = auto()
    """Nearly all fails."""

    SHARE = auto()
    """There are enough outcomes to tell the share that fails."""

    CALM = auto()
    """There are few, and next to none fails."""

    FEW = auto()
    """There are too few to lower anything, and some fail."""


class Tally(NamedTuple):
    """The messages of a round; of the failures `pressed` said themselves that it is too much."""

    failures: int
    outcomes: int
    sent_per_s: float
    pressed: int = 0

    @property
    def share(self) -> float:
        """What part of the messages failed."""
        return self.failures / self.outcomes


class Round:
    """Outcomes since `begin`; `sent` is counted by its user. Times are monotonic seconds."""

    __slots__ = ("_begun_s", "_pressed", "_successes", "failures", "sent")

    def __init__(self, now_s: float) -> None:
        self.begin(now_s)

    def begin(self, now_s: float) -> None:
        """Count anew."""
        self._begun_s = now_s
        self.failures = self._pressed = self._successes = self.sent = 0

    def age_s(self, now_s: float) -> float:
        """How long it has been going on."""
        return now_s - self._begun_s

    def on_success(self, now_s: float) -> None:
        """A message was taken."""
        self._expire(now_s)
        self._successes += 1

    def on_failure(self, now_s: float, *, is_pressed: bool) -> None:
        """A message failed."""
        self._expire(now_s)
        self.failures += 1
        self._pressed += is_pressed

    def tally(self, now_s: float) -> Tally:
        """What was counted; some time must have passed."""
        outcomes = self.failures + self._successes
        return Tally(self.failures, outcomes, self.sent / self.age_s(now_s), self._pressed)

    def find(self, now_s: float, *, is_full: bool, is_open: bool, is_comparing: bool) -> Finding:
        """What it has come to. `is_full`: at full rate; `is_open`: part of the failures has, or may
        have, another cause than the load; `is_comparing`: the rate was cut to find that out.
        """
        outcomes = self.failures + self._successes
        age_s = self.age_s(now_s)
        if self.failures >= self._successes + (_MAJORITY_OPEN_MIN if is_open else _MAJORITY_MIN):
            return Finding.OUTAGE
        # Gathered slowly, evidence is too old to lower a rate that is not used anyway.
        if outcomes >= max(_OUTCOMES_MIN, _OUTCOMES_PER_S_MIN * age_s):
            return Finding.SHARE if age_s >= ROUND_S else Finding.NONE
        if age_s < self._length_s(is_full=is_full, is_comparing=is_comparing):
            return Finding.NONE
        # Few outcomes lower nothing. Without failures, or with one in so many, they raise the rate.
        return Finding.CALM if self.failures <= RISE_TOLERANCE * outcomes else Finding.FEW

    def _length_s(self, *, is_full: bool, is_comparing: bool) -> float:
        if not self.failures:
            # After a cut the first answer of a slow endpoint, alone, must not take the cut back.
            return _ROUND_COMPARING_S if is_comparing else ROUND_S
        # A dead endpoint with little to push is found out too, if it takes longer.
        is_suspect = is_full and self.failures > self._successes
        return EVIDENCE_AGE_S if is_suspect else _ROUND_MAX_S

    def _expire(self, now_s: float) -> None:
        """What was gathered long ago is forgotten."""
        if self.age_s(now_s) >= EVIDENCE_AGE_S:
            self.begin(now_s - ROUND_S)
