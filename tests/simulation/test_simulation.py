"""The ordinary run's seeds, and the seeded bugs that they must find."""

from collections import Counter
from functools import cache

import pytest

from hermes_chaos.sim.mutants.all import MUTANTS
from hermes_chaos.sim.run import Verdict, run_seed
from hermes_chaos.sim.world import Shape
from tests.simulation.shapes import SOON_OVER, TINY

SEEDS = range(1, 21)
AT_EACH_COMMIT = 2
"""Seeds that are run at each commit, soon over; whole runs are for `make test`."""

run = cache(run_seed)


def is_caught(verdict: Verdict) -> bool:
    """A run in which some checker had nothing to examine has failed, but caught no bug."""
    return any("nothing was examined" not in each for each in verdict.violations)


@pytest.mark.parametrize(
    ("seed", "shape"),
    [
        *((seed, SOON_OVER) for seed in range(1, AT_EACH_COMMIT + 1)),
        *(pytest.param(seed, Shape(), marks=pytest.mark.slow) for seed in SEEDS),
    ],
    ids=lambda each: {Shape(): "whole", SOON_OVER: "soon over"}.get(each, each),
)
def test_every_promise_holds(seed: int, shape: Shape) -> None:
    verdict = run(seed, shape=shape)
    assert verdict.holds, verdict.report()
    assert verdict.faults, "a run without faults proves little"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_promise_is_examined_in_some_seed() -> None:
    examined: Counter[str] = Counter()
    # These three have sufficed; what has changed in the product may have changed the histories.
    for seed in dict.fromkeys((6, 8, 10, *SEEDS)):
        examined.update(run(seed, shape=Shape()).examined)
        if all(examined.values()):
            return
    raise AssertionError(
        f"nothing was examined: {[name for name in examined if not examined[name]]}"
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant",
    sorted(MUTANTS),
)
def test_a_seeded_bug_is_caught_by_its_seed_or_within_twenty(mutant: str) -> None:
    # A change of the product may have changed the histories since its seed was noted.
    known = MUTANTS[mutant].seed
    seeds = dict.fromkeys((known, *SEEDS, *range(known + 1, known + 20)))
    assert any(is_caught(run_seed(seed, mutant=mutant, is_hunt=True)) for seed in seeds)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lost_wake_up_is_found_by_the_publish_that_it_stalls() -> None:
    assert any(
        each.startswith("publishes are answered in time: ") and "nothing was broken" in each
        for seed in SEEDS
        for each in run_seed(seed, mutant="wake-up-taken").violations
    )


@pytest.mark.parametrize(
    "shape",
    [TINY, pytest.param(Shape(), marks=pytest.mark.slow)],
    ids=["tiny", "whole"],
)
def test_a_seed_has_one_history(shape: Shape) -> None:
    assert run_seed(1, shape=shape) == run(1, shape=shape)
    assert run(1, shape=shape).digest != run(2, shape=shape).digest


@pytest.mark.slow
def test_a_planted_bug_is_gone_after_the_run() -> None:
    before = [getattr(owner, name) for m in MUTANTS.values() for owner, name, _ in m.patches]
    assert is_caught(run_seed(1, shape=TINY, mutant="no-retry"))
    after = [getattr(owner, name) for m in MUTANTS.values() for owner, name, _ in m.patches]
    assert before == after


@pytest.mark.slow
def test_a_failing_run_shows_how_to_replay_it_and_its_last_events() -> None:
    verdict = next(
        verdict
        for verdict in (run_seed(seed, shape=TINY, mutant="ack-before-append") for seed in SEEDS)
        if is_caught(verdict)
    )
    report = verdict.report()
    assert (
        f"replay: hermes chaos sim --seeds {verdict.seed}:{verdict.seed} --trace "
        "--mutant ack-before-append"
    ) in report
    assert len(verdict.last_lines) == 50
    assert verdict.last_lines[-1] in report
