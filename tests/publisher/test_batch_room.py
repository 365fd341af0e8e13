"""What is under way is bounded, and who waits longest for a topic is served first."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.publisher.batches.room import Need, Room

ROUTES: list = []
STEPS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0, 1]), st.integers(1, 25), st.integers(1, 25)),
    max_size=60,
)


@given(st.integers(1, 20), st.integers(1, 40), STEPS)
def test_never_more_than_there_is_room_for_and_in_order(messages_max, bytes_max, steps) -> None:
    ROUTES[:] = [type("Route", (), {})(), type("Route", (), {})()]
    room = Room(messages_max, bytes_max)
    asked, held, served = [], [], []

    def serve(need) -> None:
        held.append(need)
        served.append(need)

    for takes, route, count, size_bytes in steps:
        if takes:
            need = Need(ROUTES[route], count, size_bytes, lambda: None)
            need.wake = lambda need=need: serve(need)
            asked.append(need)
            if room.take(need):
                serve(need)
        elif held:
            room.leave(held.pop(0))
        assert room.size_bytes == sum(need.size_bytes for need in held)
        assert room.size_bytes <= bytes_max or len(held) == 1
        for each in ROUTES:
            mine = [need for need in held if need.route is each]
            assert sum(need.count for need in mine) == room.messages[each]
            assert room.messages[each] <= messages_max or len(mine) == 1
    while held:
        room.leave(held.pop(0))
    assert room.size_bytes == 0
    assert len(served) == len(asked)
    for each in ROUTES:
        assert [n for n in served if n.route is each] == [n for n in asked if n.route is each]
