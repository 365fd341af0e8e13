"""Whole runs keep every promise, and the seeded bugs break one."""

from collections import Counter
from functools import cache

import pytest

from hermes_chaos.sim.mutants.all import MUTANTS
from hermes_chaos.sim.mutants.mutant import SHORT
from hermes_chaos.sim.run import finding_seed, run_seed
from hermes_chaos.sim.world import Shape
from tests.simulation.shapes import TINY

SEEDS = (5, 6, 10, 8, 1, 2)
"""`make soak` runs hundreds. Between them, every checker has something to examine."""
PULLED_SEEDS = (1, 2)
"""In these runs there are pull clients too."""
NEAR = range(1, 9)
"""Tried when a change of the product has changed the history of a noted seed."""

run = cache(run_seed)


@pytest.mark.slow
def test_every_promise_holds_in_a_short_run() -> None:
    verdict = run(1, shape=SHORT)
    assert verdict.holds, verdict.report()
    assert verdict.faults, "a run without faults proves little"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_promise_holds_and_is_examined_in_some_seed() -> None:
    examined: Counter[str] = Counter()
    pulled = Shape(pull_clients=3)
    runs = [(seed, Shape()) for seed in SEEDS] + [(seed, pulled) for seed in PULLED_SEEDS]
    for seed, shape in runs:
        verdict = run(seed, shape=shape)
        assert verdict.holds, verdict.report()
        assert verdict.faults, "a run without faults proves little"
        examined.update(verdict.examined)
    assert [name for name in examined if not examined[name]] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_seeded_bug_is_caught(mutant: str) -> None:
    assert finding_seed(mutant, NEAR) is not None, "look for another: hermes chaos mutants --find"


QUIET = {
    (each.seed, each.shape): name
    for name, each in sorted(MUTANTS.items())
    if each.shape != Shape() or each.seed not in SEEDS
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "shape"), QUIET, ids=QUIET.values())
def test_the_same_run_without_the_bug_breaks_no_promise(seed: int, shape: Shape) -> None:
    verdict = run(seed, shape=shape)
    assert not verdict.catches, verdict.report()


@pytest.mark.slow
def test_a_seed_has_one_history() -> None:
    assert run_seed(1, shape=TINY) == run(1, shape=TINY)
    assert run(1, shape=TINY).digest != run(2, shape=TINY).digest


@pytest.mark.slow
def test_a_planted_bug_is_gone_after_the_run() -> None:
    before = [getattr(owner, name) for m in MUTANTS.values() for owner, name, _ in m.patches]
    assert run_seed(1, shape=TINY, mutant="no-retry").catches
    after = [getattr(owner, name) for m in MUTANTS.values() for owner, name, _ in m.patches]
    assert before == after
