"""How many nodes a load needs: counted by the product's planner, on costs that are known."""

from failing_over.balance import BUSY_MAX, COPIES, nodes_needed, uneven


def test_equal_tasks_on_equal_nodes_need_what_their_sum_needs() -> None:
    # Each has two owners, and a node can carry sixteen of their tasks.
    costs = {f"s{number}": 2 * BUSY_MAX / 16 for number in range(4)}
    least = sum(costs.values()) * COPIES / BUSY_MAX
    assert nodes_needed(costs, [1.0]) == least


def test_nothing_measured_needs_no_answer() -> None:
    assert nodes_needed({}, [1.0]) is None


def test_the_uneven_loads_first_topic_gets_most_and_every_topic_something() -> None:
    load = uneven(20, 10, 100.0)
    counts = [load.published.count(f"balance.t{number}") for number in range(10)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] >= 8 * counts[-1] > 0
    assert len(load.topics) == 20
