"""All nodes restarted one after the other: no partition has another node more than twice."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hermes_actors.balancer.workload.problem import Strategy
from hermes_actors.coordination.restarting import (
    LASTS_MAX_MS,
    PAUSE_MAX_MS,
    restarting_since,
)
from hermes_actors.coordination.values import Departed, Member
from tests.balancer.restarted_cluster import Cluster, cluster_of

STRATEGIES = list(Strategy)


@settings(deadline=None)
@given(
    nodes=st.integers(1, 7),
    subscriptions=st.integers(1, 40),
    strategy=st.sampled_from(STRATEGIES),
    owners=st.integers(1, 4),
    partitions=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    is_crash=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_whatever_the_cluster_nothing_moves_more_than_twice(
    nodes: int,
    subscriptions: int,
    strategy: Strategy,
    owners: int,
    partitions: list[int],
    is_crash: bool,
    seed: int,
) -> None:
    # The one shape that may need a third move: below.
    assume(not (nodes == owners == 4 and 7 in partitions))
    cluster = restarted(nodes, subscriptions, strategy, owners, partitions, is_crash, seed)
    assert cluster.is_all_owned()
    assert cluster.moves_worst <= 2


def test_one_of_seven_partitions_that_all_of_four_nodes_own_may_move_three_times() -> None:
    """Parts of 2, 2, 2 and 1 become 3, 2 and 2 with each node that goes."""
    assert restarted(4, 1, Strategy.COUNT, 4, [7], False, 86).moves_worst == 3


def restarted(
    nodes: int,
    subscriptions: int,
    strategy: Strategy,
    owners: int,
    partitions: list[int],
    is_crash: bool,
    seed: int,
) -> Cluster:
    """A cluster whose nodes have been restarted one after the other, in any order."""
    cluster = cluster_of(
        nodes, subscriptions, seed, owners=owners, partitions=partitions, strategy=strategy
    )
    rng = random.Random(seed)
    # Some come back and the next goes before anything has been planned.
    pauses = [rng.choice([0, 0, 1, 2, 8]) for _ in range(nodes)]
    cluster.restart_all(rng.sample(cluster.nodes, nodes), pauses, is_crash=is_crash)
    cluster.settle()
    return cluster


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("nodes", "rounds"),
    [
        (3, 0),
        (3, 2),
        (4, 1),
        (8, 0),
        pytest.param(8, 3, marks=pytest.mark.slow),
        pytest.param(12, 1, marks=pytest.mark.slow),
    ],
)
def test_the_nodes_stay_about_even_with_two_moves_at_the_most(
    nodes: int, rounds: int, strategy: Strategy
) -> None:
    cluster = cluster_of(nodes, 20 * nodes, nodes + rounds, strategy=strategy)
    worst = []
    for node in cluster.nodes:
        cluster.restart_all([node], [rounds])
        worst.append(cluster.counts_worst() if strategy is Strategy.COUNT else cluster.unevenness())
    cluster.settle()
    assert cluster.moves_worst <= 2
    # While a node is away, or not filled yet, the others have its part.
    assert max(worst) <= 1.3 * nodes / (nodes - 1)
    if strategy is Strategy.COUNT:
        assert cluster.counts_worst() <= 1.15
    else:
        assert cluster.unevenness() <= 1.3


def test_when_the_restart_is_long_over_balance_is_as_good_as_ever() -> None:
    cluster = cluster_of(8, 160, 2)
    cluster.restart_all(cluster.nodes, [1] * 8)
    cluster.pass_time(PAUSE_MAX_MS + 31 * 60_000)
    cluster.settle()
    assert cluster.unevenness() <= 1.03


def test_a_node_that_is_lost_and_does_not_come_back_leaves_the_others_even() -> None:
    cluster = cluster_of(8, 160, 3)
    cluster.leave("n03")
    cluster.settle()
    assert cluster.moves_worst <= 1
    assert cluster.unevenness() <= 1.03


def test_who_takes_the_lead_of_a_lost_node_does_not_take_its_own_company_for_fast() -> None:
    # Two pairs of nodes with the same subscriptions each: those of the leader's companion have
    # only one owner now, which does not mean that it has done the other's work.
    cluster = cluster_of(4, 60, 0)
    cluster.cpu = 0.5
    cluster.pass_time(300_000)
    leader = cluster.state.node_of(cluster.state.leader)
    cluster.leave(leader)
    cluster.settle()
    assert cluster.unevenness() <= 1.03


# When a restart is under way.


def _member(node: str, joined_ms: int) -> Member:
    return Member(f"{node}-{joined_ms}", node, 1.0, "1", joined_ms, joined_ms)


def _gone(node: str, at_ms: int) -> Departed:
    return Departed(f"{node}-0", node, False, 0, at_ms)


MINUTE_MS = 60_000


def test_nodes_that_only_come_are_no_restart() -> None:
    members = [_member("a", 0), _member("b", 1_000)]
    assert restarting_since(members, [], 2_000) is None


def test_a_restart_begins_with_the_first_that_went_and_ends_after_a_pause() -> None:
    members = [_member("a", 5 * MINUTE_MS), _member("b", 12 * MINUTE_MS), _member("c", 0)]
    departed = [_gone("a", 4 * MINUTE_MS), _gone("b", 11 * MINUTE_MS)]
    end_ms = 12 * MINUTE_MS + PAUSE_MAX_MS
    assert restarting_since(members, departed, 12 * MINUTE_MS) == 4 * MINUTE_MS
    assert restarting_since(members, departed, end_ms) == 4 * MINUTE_MS
    assert restarting_since(members, departed, end_ms + 1) is None


def test_what_was_before_a_pause_is_another_restart() -> None:
    members = [_member("a", MINUTE_MS), _member("b", 13 * MINUTE_MS)]
    departed = [_gone("a", 0), _gone("b", 12 * MINUTE_MS)]
    assert restarting_since(members, departed, 14 * MINUTE_MS) == 12 * MINUTE_MS


def test_a_node_that_goes_once_more_begins_another_restart() -> None:
    members = [_member("a", 8 * MINUTE_MS), _member("b", 6 * MINUTE_MS)]
    departed = [_gone("a", MINUTE_MS), _gone("b", 5 * MINUTE_MS), _gone("a", 7 * MINUTE_MS)]
    assert restarting_since(members, departed, 8 * MINUTE_MS) == 5 * MINUTE_MS


def test_nodes_that_come_and_go_for_hours_are_no_restart_of_hours() -> None:
    departed = [_gone(f"n{minute}", minute * MINUTE_MS) for minute in range(0, 600, 5)]
    now_ms = 600 * MINUTE_MS
    since_ms = restarting_since([], departed, now_ms)
    assert since_ms is not None
    assert now_ms - LASTS_MAX_MS <= since_ms <= now_ms - LASTS_MAX_MS + 5 * MINUTE_MS


def test_a_departure_of_which_the_time_was_not_noted_begins_none() -> None:
    assert restarting_since([_member("a", 10)], [_gone("b", -1)], 20) is None
