"""Weights follow what is measured, slowly; the new are like most; noise moves nothing."""

import random

import pytest
from msgspec.structs import replace

from hermes_actors.balancer.workload.planner import plan
from hermes_actors.balancer.workload.weights import WeightHistory
from hermes_actors.coordination.commands import TaskLoad
from hermes_actors.coordination.weights import WEIGHT_UNKNOWN, weight_of
from tests.balancer.workload.planned_clusters import NOW_S, after, heavy_tailed


def test_a_weight_is_the_cpu_in_thousandths_of_a_core_or_guessed_from_what_was_sent() -> None:
    assert weight_of(TaskLoad(messages=1_000, cpu=0.25)) == 250
    assert weight_of(TaskLoad(messages=1_000, size_bytes=1_024_000)) == pytest.approx(33)
    assert weight_of(TaskLoad()) == 0


def test_an_unknown_subscription_is_like_the_median_one() -> None:
    weights = WeightHistory()
    loads = {"a": TaskLoad(cpu=0.001), "b": TaskLoad(cpu=0.003), "c": TaskLoad(cpu=0.9)}
    assert weights.update(0.0, {**loads, "new": None})["new"] == pytest.approx(3.0)
    assert WeightHistory().update(0.0, {"new": None}) == {"new": WEIGHT_UNKNOWN}


def test_the_first_measurement_counts_at_once_and_each_later_one_by_the_time_that_went_by() -> None:
    weights = WeightHistory(window_s=100.0)
    assert weights.update(0.0, {"a": TaskLoad(cpu=0.1)}) == {"a": pytest.approx(100)}
    assert weights.update(0.0, {"a": TaskLoad(cpu=0.9)}) == {"a": pytest.approx(100)}
    assert weights.update(100.0, {"a": TaskLoad(cpu=0.2)}) == {"a": pytest.approx(163.2, abs=0.1)}
    assert weights.update(100_000.0, {"a": TaskLoad(cpu=0.2)}) == {"a": pytest.approx(200)}


def test_a_silent_subscription_keeps_its_weight_and_one_that_is_gone_is_forgotten() -> None:
    weights = WeightHistory()
    weights.update(0.0, {"a": TaskLoad(cpu=0.1), "b": TaskLoad(cpu=0.3)})
    assert weights.update(10.0, {"a": None, "b": TaskLoad(cpu=0.3)})["a"] == pytest.approx(100)
    weights.update(20.0, {"b": TaskLoad(cpu=0.3)})
    assert weights.update(30.0, {"a": None, "b": TaskLoad(cpu=0.3)})["a"] == pytest.approx(300)


@pytest.mark.slow
def test_noise_of_ten_percent_in_each_measurement_moves_nothing_for_hours() -> None:
    rng = random.Random(4)
    problem = heavy_tailed(4, nodes=6, works=240, moves_max=None)
    problem = after(problem, plan(problem))
    true = {work.name: work.weight for work in problem.works}
    weights = WeightHistory()
    moves = 0
    for minute in range(240):
        now_s = NOW_S + 10_000 + 60 * minute
        noisy = {
            name: TaskLoad(cpu=weight / 1_000 * rng.uniform(0.9, 1.1))
            for name, weight in true.items()
        }
        measured = weights.update(now_s, noisy)
        works = tuple(replace(work, weight=measured[work.name]) for work in problem.works)
        problem = replace(problem, works=works, now_s=now_s)
        planned = plan(problem)
        moves += planned.moves
        problem = after(problem, planned)
    assert moves <= 4
