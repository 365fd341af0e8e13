"""One subscription's owners, as plans name them."""

from msgspec.structs import replace

from hermes_actors.coordination.owning import without
from hermes_actors.coordination.values import Grant, Ownership


def test_partitions_are_lost_until_an_owner_of_them_ends_in_good_order() -> None:
    grants = (Grant("a1", (0, 1), 5, 1.0, 0), Grant("b1", (2,), 5, 1.0, 0))
    ownership = without(Ownership(grants=grants), "a1", is_expired=True)
    assert ownership.lost == (0, 1)
    ownership = replace(ownership, grants=(Grant("b1", (1, 2), 9, 1.0, 0),))
    ownership = without(ownership, "b1")
    assert (ownership.grants, ownership.lost) == ((), (0,))
