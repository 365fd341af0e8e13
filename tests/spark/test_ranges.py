"""Which offsets a read needs: nothing too little, and each once."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_spark.snapshot import PartitionRange
from hermes_spark.sources.ranges import Condition, Piece, earliest_ms, narrowed, tasks

TOPICS = {
    "a.x": [PartitionRange(0, 0, 7), PartitionRange(1, 3, 9)],
    "a.y": [PartitionRange(0, 2, 2), PartitionRange(1, 0, 4)],
}
small = st.integers(-1, 10)
comparisons = st.sampled_from(["=", "<", "<=", ">", ">="])
conditions = st.one_of(
    st.builds(Condition, st.sampled_from(["partition", "offset"]), comparisons, small),
    st.builds(
        Condition,
        st.sampled_from(["partition", "offset"]),
        st.just("in"),
        st.lists(small, max_size=3).map(tuple),
    ),
    st.builds(Condition, st.just("topic"), st.just("="), st.sampled_from(["a.x", "a.y", "b"])),
    st.builds(Condition, st.just("dc"), st.just("in"), st.just(("dc1", "dc2"))),
)
HOLDS = {
    "=": lambda one, other: one == other,
    "in": lambda one, other: one in other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


@given(st.lists(conditions, max_size=4))
def test_what_is_left_is_what_the_conditions_let_pass(some):
    left = [
        (piece.topic, piece.partition, offset)
        for piece in narrowed("dc1", TOPICS, some)
        for offset in range(piece.start, piece.end)
    ]
    rows = [
        {"dc": "dc1", "topic": topic, "partition": each.partition, "offset": offset}
        for topic, ranges in TOPICS.items()
        for each in ranges
        for offset in range(each.start, each.end)
    ]
    assert sorted(left) == sorted(
        (row["topic"], row["partition"], row["offset"])
        for row in rows
        if all(HOLDS[each.comparison](row[each.column], each.value) for each in some)
    )


@given(st.integers(0, 50), st.integers(0, 300), st.integers(1, 60))
def test_tasks_are_all_offsets_once_and_nearly_equal(start, length, records):
    piece = Piece("a.x", 0, start, start + length)
    cut = list(tasks([piece] if length else [], records))
    assert [n for each in cut for n in range(each.start, each.end)] == list(
        range(start, start + length)
    )
    sizes = {each.end - each.start for each in cut}
    assert not sizes or (max(sizes) <= records and max(sizes) - min(sizes) <= 1)


def test_the_lower_bounds_in_time_say_where_to_begin():
    assert earliest_ms([]) is None
    assert earliest_ms([Condition("timestamp_ms", "<", 5), Condition("offset", ">", 9)]) is None
    assert earliest_ms([Condition("timestamp_ms", ">", 5), Condition("timestamp_ms", ">=", 3)]) == 6
    assert earliest_ms([Condition("timestamp_ms", "=", 5)]) == 5
