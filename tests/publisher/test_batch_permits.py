"""What is under way is bounded, and who waits longest is served first."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.publisher.batches.permits import Permits


@given(st.integers(1, 20), st.lists(st.tuples(st.booleans(), st.integers(1, 25)), max_size=60))
def test_never_more_than_the_total_is_taken_and_the_order_is_kept(total, steps) -> None:
    permits = Permits(total)
    held: list[tuple[int, int]] = []
    served: list[int] = []

    def taken(number: int, units: int) -> None:
        held.append((number, units))
        served.append(number)

    for number, (takes, units) in enumerate(steps):
        if takes:
            if permits.take(units, lambda number=number, units=units: taken(number, units)):
                taken(number, units)
        elif held:
            _, back = held.pop(0)
            permits.give_back(back)
        assert permits.taken == sum(units for _, units in held)
        assert permits.taken <= total or len(held) == 1
    while held:
        permits.give_back(held.pop(0)[1])
    assert permits.taken == 0
    assert served == [number for number, (takes, _) in enumerate(steps) if takes]
