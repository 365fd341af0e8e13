"""The command: what it prints, and its exit code."""

from functools import partial

import pytest
from typer.testing import CliRunner

from hermes_chaos.cli import app
from hermes_chaos.sim import run as running
from tests.simulation.shapes import SHORTER

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed does not depend on how long a run is."""
    monkeypatch.setattr(running, "run_seed", partial(running.run_seed, shape=SHORTER))


@pytest.mark.slow
def test_a_seed_that_holds_is_one_line_and_exit_code_0() -> None:
    result = run(app, ["sim", "--seeds", "10"])
    assert result.exit_code == 0, result.output
    seed, faults, summary = result.output.splitlines()
    assert seed.startswith("seed 10    ok ")
    assert faults.startswith("faults in all: ")
    assert summary == "1 of 1 seeds held every promise"


@pytest.mark.slow
def test_a_violation_is_exit_code_1_and_says_how_to_replay() -> None:
    result = run(app, ["sim", "--seeds", "4:4", "--mutant", "ack-before-append"])
    assert result.exit_code == 1
    assert "violated: acknowledged are stored: " in result.output
    assert "replay: hermes chaos sim --seeds 4:4 --trace --mutant ack-before-append" in (
        result.output
    )
    assert "violations with seeds 4" in result.output


@pytest.mark.slow
def test_the_trace_shows_every_event() -> None:
    result = run(app, ["sim", "--seeds", "10", "--trace"])
    assert "world        set up" in result.output
    assert "nemesis      healed" in result.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--seeds", "many"], "is not a seed or a range"),
        (["--seeds", "9:3"], "is an empty range"),
        (["--seeds", "-4:-1"], "is an empty range"),
        (["--mutant", "no-such"], "there is no mutant no-such"),
    ],
)
def test_a_bad_argument_is_refused_with_the_way_out(arguments: list[str], why: str) -> None:
    result = run(app, ["sim", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert why in result.output
