"""What is left to a process: found without being told, whatever it does itself, and kept calm."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.runtime.cpu_share import CpuSample, CpuShare
from tests.seeds import seeds

PARTS = st.floats(0.0, 1.0)
FIGURES = st.floats(-1e6, 1e6)
EVERY_S = 10.0


class Machine:
    """One on which the process wants some part of a core, and gets some part of what it wants."""

    def __init__(self, share: CpuShare, quota: float = float("inf")) -> None:
        self.share = share
        self.quota = quota
        self.at_s = self.ran_s = self.waited_s = 0.0
        self.left = [share.update(self.sample())]

    def sample(self) -> CpuSample:
        return CpuSample(self.at_s, self.ran_s, self.waited_s, self.quota)

    def run(self, seconds: float, ran: float, waited: float) -> float:
        for _ in range(round(seconds / EVERY_S)):
            self.at_s += EVERY_S
            self.ran_s += ran * EVERY_S
            self.waited_s += waited * EVERY_S
            self.left.append(self.share.update(self.sample()))
        return self.left[-1]


@given(part=st.floats(0.1, 0.8))
def test_who_wants_a_whole_core_and_gets_a_part_has_that_part(part: float) -> None:
    assert Machine(CpuShare(1.0)).run(600, part, 1 - part) == pytest.approx(part, rel=0.13)


@given(part=st.floats(0.1, 0.8), wanted=st.floats(0.3, 1.0))
def test_what_is_left_hardly_depends_on_how_much_is_wanted(part: float, wanted: float) -> None:
    # As is measured beside a busy process: it waits for each piece of work as for all of it.
    busy = Machine(CpuShare(1.0)).run(600, part, 1 - part)
    calm = Machine(CpuShare(1.0)).run(600, wanted * part, wanted * (1 - part))
    assert busy * 0.85 <= calm <= busy + 0.25


@given(quota=st.floats(0.05, 4.0), ran=PARTS)
def test_a_quota_bounds_it_at_once_and_what_waits_for_it_is_not_taken_off_again(
    quota: float, ran: float
) -> None:
    machine = Machine(CpuShare(1.0), quota)
    assert machine.left == [min(1.0, quota)]
    # What it has, it uses, and for the rest it is kept waiting.
    used = min(ran, quota)
    assert machine.run(600, used, min(ran - used, 1 - used)) == pytest.approx(
        min(1.0, quota), rel=0.13
    )


def test_cores_that_were_told_are_the_most_that_is_ever_left() -> None:
    half, four = CpuShare(0.5), CpuShare(4.0)
    # Half of the core is another's: of the half that was told nothing is missing.
    assert Machine(half).run(600, 0.5, 0.5) == 0.5
    assert Machine(half).run(600, 0.2, 0.8) == pytest.approx(0.2, rel=0.13)
    # Four says what this core is worth, and half of it is left.
    assert Machine(four).run(600, 0.5, 0.5) == pytest.approx(2.0, rel=0.1)


def test_it_is_known_within_two_minutes_and_forgotten_within_four() -> None:
    machine = Machine(CpuShare(1.0))
    assert machine.run(120, 0.3, 0.3) < 0.62
    assert machine.run(240, 0.3, 0.0) == 1.0


@pytest.mark.parametrize("seed", seeds(20))
def test_noise_does_not_change_what_is_said(seed: int) -> None:
    rng = random.Random(seed)
    machine = Machine(CpuShare(1.0))
    for waiting in (0.03, 0.5):
        machine.run(600, 0.4, 0.4 * waiting / (1 - waiting))
        settled = len(machine.left)
        for _ in range(8_640):
            ran = 0.4 * rng.uniform(0.7, 1.3)
            machine.run(EVERY_S, ran, ran * waiting * rng.uniform(0.5, 1.5) / (1 - waiting))
        # It may be that it had not quite settled.
        assert sum(now != before for before, now in pairwise(machine.left[settled:])) <= 1


@pytest.mark.parametrize("seed", seeds(5))
def test_a_process_that_takes_the_core_for_ten_seconds_each_quarter_of_an_hour_is_not_minded(
    seed: int,
) -> None:
    rng = random.Random(seed)
    machine = Machine(CpuShare(1.0))
    for _ in range(96):
        machine.run(600 + EVERY_S * rng.randrange(30), 0.4, 0.01)
        machine.run(EVERY_S, 0.3, 0.15)
    assert set(machine.left) == {1.0}


@given(
    cores=st.floats(0.01, 1e4),
    told=st.lists(st.tuples(FIGURES, FIGURES, FIGURES, st.floats(0.01, 1e4)), max_size=30),
)
def test_whatever_is_read_what_is_left_is_above_nothing_and_at_most_all(
    cores: float, told: list[tuple[float, float, float, float]]
) -> None:
    share = CpuShare(cores)
    for at_s, ran_s, waited_s, quota in told:
        left = share.update(CpuSample(at_s, ran_s, waited_s, quota))
        assert 0 < left <= min(cores, quota)
