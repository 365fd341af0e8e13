"""All nodes restarted one after the other: a partition moves about twice, and loads stay even."""

import pytest

from tests.balancer.restarted_cluster import cluster_of


@pytest.mark.parametrize(("nodes", "rounds"), [(3, 0), (3, 2), (4, 1), (8, 0)])
def test_nodes_stay_about_even_with_two_moves_of_a_partition_on_the_average(
    nodes: int, rounds: int
) -> None:
    cluster = cluster_of(nodes, 20 * nodes, nodes + rounds)
    worst = []
    for node in cluster.nodes:
        cluster.restart_all([node], [rounds])
        worst.append(cluster.unevenness())
    cluster.settle()
    assert cluster.is_all_owned()
    assert cluster.moves_mean <= 2
    # A node that is not filled yet leaves its part to the others.
    assert max(worst) <= 1.3 * nodes / (nodes - 1)
    assert cluster.unevenness() <= 1.25


def test_nodes_that_crash_one_after_the_other_move_no_more_than_that() -> None:
    cluster = cluster_of(4, 80, 5)
    cluster.restart_all(cluster.nodes, [1] * 4, is_crash=True)
    cluster.settle()
    assert cluster.is_all_owned()
    assert cluster.moves_mean <= 2


def test_when_all_has_rested_for_a_while_balance_is_as_good_as_ever() -> None:
    cluster = cluster_of(8, 160, 2)
    cluster.restart_all(cluster.nodes, [1] * 8)
    cluster.pass_time(31 * 60_000)
    cluster.settle()
    assert cluster.unevenness() <= 1.03


def test_a_node_that_is_lost_and_does_not_come_back_leaves_the_others_even() -> None:
    cluster = cluster_of(8, 160, 3)
    cluster.leave("n03")
    cluster.settle()
    assert max(cluster.moves.values()) <= 1
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
