"""A loop's standstills, told from its beats and from what the thread beside it has counted."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.runtime.holders import OTHER, UNSEEN, Holder
from hermes_actors.runtime.standstills import (
    BEATS_A_STALL,
    Sample,
    StallCause,
    Standstill,
    Standstills,
    cause_between,
)

STALL_S = 0.125
BEAT_S = STALL_S / BEATS_A_STALL


class Machine:
    """A loop and a watching thread on a machine whose time and CPU are dealt out by hand."""

    def __init__(self) -> None:
        self.now_s = self.loop_cpu_s = self.process_cpu_s = self.waited_s = self.late_s = 0.0
        self.standstills = Standstills(STALL_S)
        self.told: list[Standstill] = []

    def run(self, seconds: float) -> None:
        """All is well."""
        for _ in range(round(seconds / BEAT_S)):
            self.now_s += BEAT_S
            self.standstills.beat(self.now_s)
            self.look()

    def look(self) -> None:
        sample = Sample(self.now_s, self.loop_cpu_s, self.process_cpu_s, self.waited_s, self.late_s)
        self.told += self.standstills.look(sample)

    def stand_still(
        self, seconds: float, *, cpu: float = 0.0, process: float = 0.0, waited: float = 0.0
    ) -> None:
        """The loop does not beat while the thread looks on."""
        for _ in range(round(seconds / BEAT_S)):
            self.now_s += BEAT_S
            self.loop_cpu_s += BEAT_S * cpu
            self.process_cpu_s += BEAT_S * max(cpu, process)
            self.waited_s += BEAT_S * waited
            self.look()

    def stop(self, seconds: float, *, cpu: float = 0.0, process: float = 0.0) -> None:
        """Nobody runs: neither the loop nor the thread that looks, which wakes first or last."""
        self.now_s += seconds
        self.late_s += seconds
        self.loop_cpu_s += seconds * cpu
        self.process_cpu_s += seconds * max(cpu, process)

    def over(self) -> list[Standstill]:
        return [each for each in self.told if each.is_over]


def test_a_loop_that_beats_never_stood_still() -> None:
    machine = Machine()
    machine.run(20)
    assert machine.told == []
    assert machine.standstills.words(machine.now_s) == []
    assert machine.standstills.lag_ms < 1


def test_a_standstill_is_told_once_when_it_is_seen_and_once_when_it_is_over() -> None:
    machine = Machine()
    machine.run(1)
    machine.stand_still(3, cpu=1.0)
    begun = list(machine.told)
    machine.standstills.holder = Holder("Filters", "agent / a.b$c", "filters/paths.py:88 walk")
    machine.run(1)
    (first,), (last,) = begun, machine.over()
    assert (first.is_over, first.cause) == (False, StallCause.BUSY)
    assert STALL_S < first.for_s <= STALL_S + 2 * BEAT_S
    assert abs(last.for_s - 3) <= 2 * BEAT_S
    assert (last.cause, last.holder.place) == (StallCause.BUSY, "filters/paths.py:88 walk")
    assert machine.standstills.counts[StallCause.BUSY] == 1
    (words,) = machine.standstills.words(machine.now_s)
    assert "stood still once" in words
    assert "filters/paths.py:88 walk" in words


def test_who_waits_without_using_cpu_is_blocked() -> None:
    machine = Machine()
    machine.run(1)
    machine.stand_still(1)
    machine.run(1)
    assert [each.cause for each in machine.over()] == [StallCause.BLOCKED]


def test_a_stopped_process_is_not_its_loops_fault_whoever_wakes_first() -> None:
    for is_loop_first in (True, False):
        machine = Machine()
        machine.run(1)
        machine.stop(5)
        if not is_loop_first:
            machine.look()
        machine.run(1)
        assert {each.cause for each in machine.told} == {StallCause.AWAY}
        assert machine.standstills.counts[StallCause.AWAY] == 1
        (words,) = machine.standstills.words(machine.now_s)
        assert words.startswith("the process was stopped or had no CPU once")


def test_a_loop_that_other_processes_keep_from_its_cpu_is_away() -> None:
    machine = Machine()
    machine.run(1)
    machine.stand_still(1, cpu=0.2, waited=0.8)
    machine.run(1)
    assert [each.cause for each in machine.over()] == [StallCause.AWAY]


def test_a_loop_that_holds_the_interpreter_is_busy_though_the_watcher_is_late_too() -> None:
    machine = Machine()
    machine.run(1)
    machine.stop(2, cpu=1.0)
    machine.look()
    machine.run(1)
    assert {each.cause for each in machine.told} == {StallCause.BUSY}


def test_another_thread_that_holds_the_interpreter_blocks_the_loop() -> None:
    machine = Machine()
    machine.run(1)
    machine.stop(2, process=1.0)
    machine.look()
    machine.run(1)
    assert {each.cause for each in machine.told} == {StallCause.BLOCKED}


def test_a_loop_that_has_ended_is_late_for_nothing() -> None:
    machine = Machine()
    machine.run(1)
    machine.standstills.end()
    machine.stand_still(5)
    assert machine.told == []


def test_ten_minutes_later_nothing_is_told_of_it() -> None:
    machine = Machine()
    machine.run(1)
    machine.stand_still(1, cpu=1.0)
    machine.run(1)
    assert machine.standstills.words(machine.now_s + 590) != []
    assert machine.standstills.words(machine.now_s + 601) == []


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(min_value=1, max_value=400)), min_size=1, max_size=30
    )
)
def test_every_standstill_is_counted_once_with_its_time(parts: list[tuple[bool, int]]) -> None:
    machine = Machine()
    machine.run(BEAT_S)
    expected, silent = [], 0
    for is_still, looks in [*parts, (False, 1)]:
        if is_still:
            machine.stand_still(looks * BEAT_S, cpu=1.0)
            silent += looks
            continue
        machine.run(looks * BEAT_S)
        if silent > STALL_S / BEAT_S:
            expected.append(silent * BEAT_S)
        silent = 0
    assert [round(each.for_s, 3) for each in machine.over()] == [round(s, 3) for s in expected]
    begun = [each.began_s for each in machine.told if not each.is_over]
    assert len(begun) == len(set(begun))
    assert sum(machine.standstills.counts.values()) == len(expected)


@given(*[st.floats(min_value=0, max_value=100)] * 5)
def test_the_cause_of_any_two_samples_is_one_of_the_three(
    elapsed_s: float, cpu_s: float, process_s: float, waited_s: float, late_s: float
) -> None:
    after = Sample(elapsed_s, cpu_s, process_s, waited_s, late_s)
    cause = cause_between(Sample(0, 0, 0, 0, 0), after)
    if cpu_s >= elapsed_s / 2 and cpu_s >= waited_s:
        assert cause is StallCause.BUSY
    if cause is StallCause.AWAY:
        assert waited_s > 0 or late_s >= elapsed_s / 2


def test_what_was_its_own_doing_is_counted_by_who_held_it() -> None:
    machine = Machine()
    machine.run(1)
    machine.stand_still(0.5, cpu=1.0)
    machine.standstills.holder = Holder("Registry")
    machine.run(1)
    # Too short to be seen; and no fault of anybody.
    machine.stand_still(STALL_S + BEAT_S, cpu=1.0)
    machine.run(1)
    machine.stop(1.0)
    machine.run(1)
    held = machine.standstills.held
    assert held["Registry"].times == 1
    assert 0.3 < held["Registry"].seconds < 0.6
    assert sum(each.times for each in held.values()) == len(
        [each for each in machine.over() if each.cause is not StallCause.AWAY]
    )


def test_kinds_are_never_too_many() -> None:
    standstills = Standstills()
    for number in range(1_000):
        standstills._count_held(f"Kind{number}", 1.0)
    assert len(standstills.held) <= 65
    assert sum(each.times for each in standstills.held.values()) == 1_000
    assert standstills.held[UNSEEN].times == 0
    assert standstills.held[OTHER].times > 900
