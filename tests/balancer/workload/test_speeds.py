"""The CPU controller in a closed loop: it settles where all nodes are equally busy, and stays."""

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from hermes_actors.balancer.workload.planner import plan
from hermes_actors.balancer.workload.problem import Problem
from hermes_actors.balancer.workload.speeds import CHANGE_MAX, NodeCost, Speeds
from tests.balancer.workload.planned_clusters import NOW_S, after, heavy_tailed, loads, unevenness


class Loop:
    """A cluster whose node n00 needs `slow` times the CPU of the others for the same work."""

    def __init__(self, problem: Problem, slow: float, noise: Callable[[], float]) -> None:
        self.problem = after(problem, plan(problem))
        self.slow = {"boot-0": slow}
        self.noise = noise
        self.speeds = Speeds()
        self.moves: list[int] = []
        self.history: list[dict[str, float]] = []
        self.busiest = 0.0

    def run(self, minutes: int) -> None:
        for _ in range(minutes):
            problem = replace(self.problem, now_s=self.problem.now_s + 60)
            weight = loads(problem)
            scale = len(weight) * 0.5 / sum(weight.values())
            cpu = {
                boot: 0.01 + each * scale * self.slow.get(boot, 1.0)
                for boot, each in weight.items()
            }
            self.busiest = max(cpu.values()) / (sum(cpu.values()) / len(cpu))
            speeds = self.speeds.update(
                problem.now_s,
                {
                    boot: NodeCost(1.0, cpu[boot] * self.noise(), 1.0, weight[boot])
                    for boot in weight
                },
            )
            self.history.append(speeds)
            nodes = tuple(replace(node, speed=speeds[node.boot]) for node in problem.nodes)
            planned = plan(replace(problem, nodes=nodes))
            self.moves.append(planned.moves)
            self.problem = after(replace(problem, nodes=nodes), planned)


@pytest.mark.parametrize("nodes", [3, 5, pytest.param(50, marks=pytest.mark.slow)])
def test_a_node_at_half_speed_ends_up_as_busy_as_the_others_and_nothing_moves_any_more(
    nodes: int,
) -> None:
    rng = random.Random(nodes)
    loop = Loop(
        heavy_tailed(nodes, nodes, 12 * nodes, sigma=1.0, moves_max=None),
        2.0,
        lambda: rng.uniform(0.95, 1.05),
    )
    loop.run(150)
    assert loop.busiest < 1.1
    last = loop.history[-1]
    assert last["boot-0"] / last["boot-1"] == pytest.approx(0.5, rel=0.12)
    # Settled: neither speeds nor tasks move in the last hour.
    assert all(
        each["boot-0"] == pytest.approx(last["boot-0"], rel=0.1) for each in loop.history[-60:]
    )
    assert sum(loop.moves[-60:]) <= 2
    assert unevenness(loop.problem) <= 1.06


def test_a_speed_changes_by_a_bounded_part_in_a_round_and_not_for_a_small_difference() -> None:
    speeds = Speeds(window_s=1.0)
    even = {boot: NodeCost(1.0, 0.5, 1.0, 100) for boot in "abcd"}
    assert set(speeds.update(0.0, even).values()) == {1.0}
    bit = {**even, "a": NodeCost(1.0, 0.52, 1.0, 100)}
    assert set(speeds.update(60.0, bit).values()) == {1.0}
    slow = {**even, "a": NodeCost(1.0, 1.0, 1.0, 100)}
    now = speeds.update(120.0, slow)
    assert 1.0 > now["a"] >= (1 - CHANGE_MAX) * 0.99
    for minute in range(3, 20):
        now = speeds.update(60.0 * minute, slow)
    assert now["a"] / now["b"] == pytest.approx(0.5, rel=0.08)


def test_a_machine_that_leaves_a_node_half_its_cores_halves_its_speed() -> None:
    costs = {boot: NodeCost(4.0, 1.0, 4.0, 100) for boot in "bcde"}
    speeds = Speeds().update(0.0, {**costs, "a": NodeCost(4.0, 1.0, 2.0, 100)})
    assert speeds["a"] / speeds["b"] == pytest.approx(0.5)


def test_a_node_with_more_cores_is_no_faster_for_it() -> None:
    """Its capacity says so already."""
    speeds = Speeds().update(
        0.0, {"a": NodeCost(4.0, 2.0, 4.0, 400), "b": NodeCost(1.0, 0.5, 1.0, 100)}
    )
    assert speeds == {"a": 1.0, "b": 1.0}


def test_a_node_that_does_next_to_nothing_tells_nothing_of_its_speed() -> None:
    costs = {"a": NodeCost(1.0, 0.5, 1.0, 100), "b": NodeCost(1.0, 0.5, 1.0, 100)}
    costs["new"] = NodeCost(1.0, 0.3, 1.0, 1)
    costs["idle"] = NodeCost(1.0, 0.001, 1.0, 100)
    assert Speeds().update(NOW_S, costs)["new"] == 1.0
    assert Speeds().update(NOW_S, costs)["idle"] == 1.0
    nothing = {boot: NodeCost(1.0, 0.0, 0.0, 0.0) for boot in "ab"}
    assert Speeds().update(NOW_S, nothing) == {"a": 1.0, "b": 1.0}
