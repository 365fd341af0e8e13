"""The demonstration's lost node: which one it is, and when its work is somebody else's."""

import pytest

BEFORE = {"n1": {"A": (0, 1)}, "n2": {"A": (2, 3), "B": (0, 1)}, "n3": {"B": (2, 3)}}


@pytest.fixture
def losing(hermes):
    from examples.flights import losing

    return losing


def ready(*consumers):
    return {"dcs": [{"dc": "dc1", "consumers": list(consumers)}, {"dc": "dc2"}]}


def test_the_last_node_of_the_first_datacentre_is_lost(losing):
    victim = losing.victim_of(ready({"node": "n1", "pid": 7}, {"node": "n2", "pid": 8}), 1)
    assert (victim.node, victim.how) == ("n2", "killed with SIGKILL")
    victim = losing.victim_of(ready({"node": "n1"}, {"node": "n2"}), 1)
    assert (victim.node, victim.how) == ("n2", "dropped from its process")


@pytest.mark.parametrize("consumers", [(), ({"node": "n1", "pid": 7},)])
def test_where_nobody_could_take_over_no_node_is_lost(losing, consumers):
    assert losing.victim_of(ready(*consumers), 1) is None
    assert losing.victim_of({"dcs": [{"dc": "dc1"}]}, 1) is None


def test_work_is_taken_over_when_all_of_it_is_owned_and_the_node_is_gone(losing):
    after = {"n1": {"A": (0, 1), "B": (0, 1)}, "n3": {"A": (2, 3), "B": (2, 3)}}
    assert losing.is_taken_over(BEFORE, after, "n2")


@pytest.mark.parametrize(
    "after",
    [
        {},
        BEFORE,
        {"n1": {"A": (0, 1), "B": (0, 1)}, "n3": {"B": (2, 3)}},
        {"n1": {"A": (0, 1, 2, 3)}, "n2": {}, "n3": {"B": (0, 1, 2, 3)}},
    ],
)
def test_work_that_is_nobodys_or_a_node_that_is_still_there_is_not_taken_over(losing, after):
    assert not losing.is_taken_over(BEFORE, after, "n2")


def test_the_table_shows_partitions_as_ranges(losing):
    assert losing._shown({"B": (5, 0, 1, 2, 9), "A": (3,)}) == "A 3  B 0-2,5,9"
    assert losing._shown({}) == "-"
