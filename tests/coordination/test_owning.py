"""One subscription's owners, as plans name them."""

from hermes_actors.coordination.commands import Assignment, Target
from hermes_actors.coordination.owning import planned
from hermes_actors.coordination.values import Ownership, Track


def test_what_a_node_gets_back_in_its_next_life_has_not_moved() -> None:
    nodes = {"a1": "a", "a2": "a", "b1": "b"}.__getitem__
    ownership = Ownership()
    for log_ms, boot in enumerate(("a1", "a2", "b1", "a2")):
        assignment = Assignment("g.t$s", (Target(boot, (0,)),))
        ownership = planned(ownership, assignment, log_ms, log_ms, nodes)
    assert ownership.tracks == (Track((0,), (2, 3)),)
    assert ownership.moved_log_ms == 3
