"""How many nodes a load needs: counted by the product's planner, on costs that are known."""

import pytest

from failing_over.balance import BUSY_MAX, COPIES, nodes_needed, uneven
from hermes_actors.balancer.workload.problem import Strategy


@pytest.mark.parametrize("strategy", list(Strategy))
def test_equal_tasks_on_equal_nodes_need_what_their_sum_needs(strategy: Strategy) -> None:
    # Each has two owners, and a node can carry sixteen of their tasks.
    costs = {f"s{number}": 2 * BUSY_MAX / 16 for number in range(4)}
    least = sum(costs.values()) * COPIES / BUSY_MAX
    assert nodes_needed(costs, [1.0], strategy) == least


def test_uneven_tasks_need_more_nodes_by_count_than_by_weight() -> None:
    costs = {f"s{number}": 0.08 if number % 7 == 0 else 0.005 for number in range(21)}
    by_count, by_weight = (nodes_needed(costs, [1.0, 0.5], each) for each in Strategy)
    assert by_count is not None
    assert by_weight is not None
    assert by_weight < by_count
    # Every other node, from the first on, is a whole one.
    budget = (by_weight + 1) // 2 + by_weight // 2 * 0.5
    assert budget * BUSY_MAX >= sum(costs.values()) * COPIES


def test_nothing_measured_needs_no_answer() -> None:
    assert nodes_needed({}, [1.0], Strategy.COUNT) is None


def test_the_uneven_loads_first_topic_gets_most_and_every_topic_something() -> None:
    load = uneven(20, 10, 100.0)
    counts = [load.published.count(f"balance.t{number}") for number in range(10)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] >= 8 * counts[-1] > 0
    assert len(load.topics) == 20
