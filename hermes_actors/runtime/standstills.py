"""Tells from a loop's beats when it stood still, for how long, and whether that was its own doing.

Pure: the loop says when it beats, a thread beside it says what it finds at each look. A process
that was stopped, or had no CPU, is told apart: no code of the loop is to blame for that.
"""

from collections import deque
from enum import StrEnum

from msgspec import Struct

from hermes_actors.runtime.holders import OTHER, UNSEEN, Holder

STALL_S = 0.1
"""A loop that is this late has stood still, if nothing else is said."""

BEATS_A_STALL = 2
"""So often a loop beats in the time after which it counts as standing still."""

_WORST_FOR_S = 1.0
_TOLD_FOR_S = 600.0
_ENDED_MAX = 100
_KINDS_MAX = 64


class StallCause(StrEnum):
    """Why a loop stood still: its thread computed all the time, it waited (for a file, a lock, or
    the interpreter), or the process was stopped or had no CPU.
    """

    BUSY = "busy"
    BLOCKED = "blocked"
    AWAY = "away"


class Sample(Struct, frozen=True, gc=False):
    """The counters until `at_s`, all in seconds since some time in the past: CPU of the loop's
    thread and of the process, how long that thread could have run and had no CPU, and by how much
    the thread that looks was late itself.
    """

    at_s: float
    loop_cpu_s: float
    process_cpu_s: float
    waited_s: float
    late_s: float


class Standstill(Struct, frozen=True, gc=False):
    """A loop that stands still, or did. `began_s` is its last beat before (monotonic), `for_s` how
    long it was late at least, `holder` who ran meanwhile.
    """

    began_s: float
    for_s: float
    cause: StallCause
    is_over: bool
    holder: Holder = Holder()


def cause_between(before: Sample, after: Sample) -> StallCause:
    """Give the cause that kept a loop from running for most of the time between two samples."""
    half_s = (after.at_s - before.at_s) / 2
    computed_s = after.loop_cpu_s - before.loop_cpu_s
    waited_s = after.waited_s - before.waited_s
    if computed_s + waited_s >= half_s:
        return StallCause.BUSY if computed_s >= waited_s else StallCause.AWAY
    # A thread that holds the interpreter keeps both from running, but it uses CPU.
    is_idle = after.process_cpu_s - before.process_cpu_s < half_s
    is_late = after.late_s - before.late_s >= half_s
    return StallCause.AWAY if is_late and is_idle else StallCause.BLOCKED


class Held(Struct, frozen=True, gc=False):
    """How often a loop stood still, and how long all in all."""

    times: int = 0
    seconds: float = 0.0


class Standstills:
    """The standstills of one loop. `beat` is the loop's, `look` and `holder` the watching thread's;
    whatever else is asked is asked on the loop. Without either, as in a simulation, it never stood
    still.
    """

    def __init__(self, stall_s: float = STALL_S) -> None:
        """`stall_s`: a loop that is this late stands still."""
        self.beat_interval_s = stall_s / BEATS_A_STALL
        self.counts = dict.fromkeys(StallCause, 0)
        """How often it stood still, by cause."""
        self.seconds = dict.fromkeys(StallCause, 0.0)
        """How long all in all, by cause."""
        self.last: deque[Standstill] = deque(maxlen=_ENDED_MAX)
        """The last ones that are over, the latest last."""
        self.holder = Holder()
        """The actor, task or callback that runs in a loop that stands still."""
        self.held: dict[str, Held] = {UNSEEN: Held()}
        """Standstills that were the node's own doing, by the kind of their holder."""
        self._stall_s = stall_s
        self._beat_at_s: float | None = None
        # Gaps between two beats that were too long: from when, and how late the second was.
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_ENDED_MAX)
        self._seen_at_s: float | None = None
        self._begun_at_s: float | None = None
        self._before: Sample | None = None
        self._latest: Sample | None = None
        # The worst lateness of this second and of the one before.
        self._worst_s = self._worst_before_s = 0.0
        self._worst_since_s = 0.0

    # The loop's side.

    def beat(self, now_s: float) -> None:
        """Record that the loop runs. Monotonic time; to be called each `beat_interval_s`."""
        last_s, self._beat_at_s = self._beat_at_s, now_s
        if last_s is None:
            return
        late_s = max(0.0, now_s - last_s - self.beat_interval_s)
        if now_s - self._worst_since_s >= _WORST_FOR_S:
            self._worst_before_s, self._worst_s = self._worst_s, 0.0
            self._worst_since_s = now_s
        self._worst_s = max(self._worst_s, late_s)
        if late_s > self._stall_s:
            self._gaps.append((last_s, late_s))

    def end(self) -> None:
        """Record that the loop beats no more, for it ends."""
        self._beat_at_s = None

    @property
    def lag_ms(self) -> float:
        """How late it was at worst in the last second or two."""
        return 1_000 * max(self._worst_s, self._worst_before_s)

    def words(self, now_s: float) -> list[str]:
        """For people: how it stood still in the last ten minutes, one sentence for each cause."""
        recent = [each for each in self.last if now_s - each.began_s <= _TOLD_FOR_S]
        return [
            _sentence(cause, found, now_s)
            for cause in StallCause
            if (found := [each for each in recent if each.cause is cause])
        ]

    # The watching thread's side.

    def look(self, sample: Sample) -> list[Standstill]:
        """Give the standstills to be told now, each once: those that are over, and one that has
        begun and is the loop's own doing.
        """
        beat_at_s, before = self._beat_at_s, self._before
        told: list[Standstill] = []
        while self._gaps:
            began_s, late_s = self._gaps.popleft()
            cause = StallCause.BLOCKED if before is None else cause_between(before, sample)
            holder = self.holder if self._begun_at_s == began_s else Holder()
            over = Standstill(began_s, late_s, cause, is_over=True, holder=holder)
            self.counts[cause] += 1
            self.seconds[cause] += late_s
            if cause is not StallCause.AWAY:
                self._count_held(holder.kind, late_s)
            self.last.append(over)
            told.append(over)
        if beat_at_s != self._seen_at_s:
            self._seen_at_s, self._before = beat_at_s, self._latest
        self._latest = sample
        if beat_at_s is not None and beat_at_s != self._begun_at_s:
            late_s = sample.at_s - beat_at_s - self.beat_interval_s
            cause = cause_between(self._before or sample, sample)
            # Who only waits for a CPU now may be busy with something all the same.
            if late_s > self._stall_s and cause is not StallCause.AWAY:
                self._begun_at_s, self.holder = beat_at_s, Holder()
                told.append(Standstill(beat_at_s, late_s, cause, is_over=False))
        return told

    def _count_held(self, kind: str, for_s: float) -> None:
        # Kinds are few, being classes and functions; a bound all the same.
        if kind not in self.held and len(self.held) >= _KINDS_MAX:
            kind = OTHER
        before = self.held.get(kind, Held())
        # A new dict: the loop goes through the old one when it is scraped.
        self.held = self.held | {kind: Held(before.times + 1, before.seconds + for_s)}


def _sentence(cause: StallCause, found: list[Standstill], now_s: float) -> str:
    last, total_s = found[-1], sum(each.for_s for each in found)
    often = "once" if len(found) == 1 else f"{len(found)} times, {total_s:.1f} s in all"
    when = f"in the last 10 minutes, last {now_s - last.began_s:.0f} s ago for {last.for_s:.2f} s"
    if cause is StallCause.AWAY:
        return f"the process was stopped or had no CPU {often}, {when}"
    doing = (
        "it computed" if cause is StallCause.BUSY else "it waited for a file, a lock or a thread"
    )
    held = f", held by {last.holder}" if str(last.holder) else ""
    return f"it stood still {often}, {when}: {doing}{held}"
