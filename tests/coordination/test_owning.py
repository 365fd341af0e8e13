"""One subscription's owners, as plans name them."""

from msgspec.structs import replace

from hermes_actors.coordination.commands import Assignment, Target
from hermes_actors.coordination.owning import planned, without
from hermes_actors.coordination.values import Grant, Ownership, Track


def test_what_a_node_gets_back_in_its_next_life_has_not_moved() -> None:
    nodes = {"a1": "a", "a2": "a", "b1": "b"}.__getitem__
    ownership = Ownership()
    for log_ms, boot in enumerate(("a1", "a2", "b1", "a2")):
        assignment = Assignment("g.t$s", (Target(boot, (0,)),))
        ownership = planned(ownership, assignment, log_ms, log_ms, nodes)
    assert ownership.tracks == (Track((0,), (2, 3)),)
    assert ownership.moved_log_ms == 3


def test_partitions_are_lost_until_an_owner_of_them_ends_in_good_order() -> None:
    grants = (Grant("a1", (0, 1), 5, 1.0, 0), Grant("b1", (2,), 5, 1.0, 0))
    ownership = without(Ownership(grants=grants), "a1", is_expired=True)
    assert ownership.lost == (0, 1)
    ownership = replace(ownership, grants=(Grant("b1", (1, 2), 9, 1.0, 0),))
    ownership = without(ownership, "b1")
    assert (ownership.grants, ownership.lost) == ((), (0,))
