"""What waits: in order for each key, nothing lost, nothing sent before its time."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_actors.fallback.spool.index import KEYLESS, Place, SpoolIndex, Waiting
from hermes_actors.model.partitioner import partition_of

T = "shop.orders"


def add(
    index: SpoolIndex, sequence: int, key: bytes | None = None, *, held_until_s: float = 0.0
) -> Waiting:
    waiting = index.reserve(
        T,
        T,
        0,
        key,
        sequence=sequence,
        since_s=sequence,
        size_bytes=10,
        held_until_s=held_until_s,
    )
    index.written(waiting, Place(1, sequence, 10))
    return waiting


def select(index: SpoolIndex, lane: int, now_s: float = 0.0, records_max: int = 100) -> list[int]:
    queue = index.queue(T)
    assert queue is not None
    chosen, _again_s = queue.select(lane, now_s, records_max=records_max, bytes_max=10**6)
    return [each.sequence for each in chosen]


def test_a_key_is_held_from_the_offer_until_the_last_of_its_messages_is_settled() -> None:
    index = SpoolIndex()
    first = index.reserve(T, T, 0, b"k", sequence=1, since_s=1, size_bytes=10)
    assert index.holds(T, b"k")
    assert not index.holds(T, b"other")
    assert not index.holds("shop.other", b"k")
    index.written(first, Place(1, 1, 10))
    second = add(index, 2, b"k")
    index.settle(first)
    assert index.holds(T, b"k")
    index.settle(second)
    assert not index.holds(T, b"k")


def test_what_could_not_be_written_holds_nothing_and_waits_nowhere() -> None:
    index = SpoolIndex()
    index.release(index.reserve(T, T, 0, b"k", sequence=1, since_s=1, size_bytes=10))
    assert not index.holds(T, b"k")
    assert (index.entries, index.being_written, index.being_written_bytes) == (0, 0, 0)
    assert index.queue(T) is None


def test_what_an_append_may_still_store_holds_up_its_key_and_no_other() -> None:
    index = SpoolIndex()
    add(index, 1, b"a", held_until_s=5.0)
    add(index, 2, b"b")
    add(index, 3, b"a")
    add(index, 4, b"b")
    assert select(index, 0) == [2, 4]
    assert select(index, 0, now_s=5.0) == [1, 2, 3, 4]


def test_a_held_message_without_a_key_holds_up_none() -> None:
    index = SpoolIndex()
    add(index, 1, held_until_s=5.0)
    add(index, 2)
    assert select(index, KEYLESS) == [2]


def test_when_all_is_held_it_says_when_to_look_again() -> None:
    index = SpoolIndex()
    add(index, 1, b"a", held_until_s=5.0)
    add(index, 2, b"b", held_until_s=3.0)
    queue = index.queue(T)
    assert queue is not None
    assert queue.select(0, 0.0, records_max=9, bytes_max=99) == ([], 3.0)


def test_a_batch_has_at_most_its_bytes_but_always_one_entry() -> None:
    index = SpoolIndex()
    for sequence in range(1, 6):
        add(index, sequence)
    queue = index.queue(T)
    assert queue is not None
    assert len(queue.select(KEYLESS, 0.0, records_max=9, bytes_max=25)[0]) == 2
    assert len(queue.select(KEYLESS, 0.0, records_max=9, bytes_max=5)[0]) == 1


@given(
    keys=st.lists(st.none() | st.binary(min_size=1, max_size=2), min_size=1, max_size=30),
    partitions=st.integers(1, 7),
)
def test_arranging_keeps_all_entries_in_their_order_in_the_lanes_of_their_partitions(
    keys: list[bytes | None], partitions: int
) -> None:
    index = SpoolIndex()
    for sequence, key in enumerate(keys, 1):
        add(index, sequence, key)
    queue = index.queue(T)
    assert queue is not None
    queue.arrange(partitions)
    expected: dict[int, list[int]] = {}
    for sequence, key in enumerate(keys, 1):
        lane = KEYLESS if key is None else partition_of(key, partitions)
        expected.setdefault(lane, []).append(sequence)
    assert {lane: select(index, lane) for lane in queue.lanes} == expected


def test_a_segment_is_needed_while_one_of_its_entries_is() -> None:
    index = SpoolIndex()
    first, second = add(index, 1), add(index, 2)
    index.settle(first)
    assert index.is_needed(1)
    index.move(second, Place(2, 0, 10))
    assert not index.is_needed(1)
    assert index.unsettled(2) == [second]
    index.settle(second)
    assert not index.is_needed(2)


class Modelled(RuleBasedStateMachine):
    """Against a plain list of what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SpoolIndex()
        self.sequence = 0
        self.being_written: list[Waiting] = []
        self.model: list[Waiting] = []
        self.now_s = 0.0

    @rule(key=st.sampled_from([None, b"a", b"b", b"c"]), held_s=st.sampled_from([0.0, 0.0, 2.0]))
    def offer(self, key: bytes | None, held_s: float) -> None:
        self.sequence += 1
        self.being_written.append(
            self.index.reserve(
                T,
                T,
                0,
                key,
                sequence=self.sequence,
                since_s=self.sequence,
                size_bytes=self.sequence % 7 + 1,
                held_until_s=self.now_s + held_s if held_s else 0.0,
            )
        )

    @precondition(lambda self: self.being_written)
    @rule(is_ok=st.booleans())
    def end_writing(self, is_ok: bool) -> None:
        for each in self.being_written:
            if is_ok:
                self.index.written(each, Place(each.sequence // 5, each.sequence, each.size_bytes))
                self.model.append(each)
            else:
                self.index.release(each)
        self.being_written = []

    @rule(lane=st.integers(-1, 2), records_max=st.integers(1, 4), fails_at=st.integers(0, 4))
    def send(self, lane: int, records_max: int, fails_at: int) -> None:
        queue = self.index.queue(T)
        if queue is None:
            return
        chosen, _ = queue.select(lane, self.now_s, records_max=records_max, bytes_max=12)
        for each in chosen:
            older = [w for w in self.model if w.key == each.key and w.sequence < each.sequence]
            assert each.held_until_s <= self.now_s
            assert each.key is None or all(w in chosen for w in older)
        for each in chosen[:fails_at]:
            assert self.index.settle(each)
            assert not self.index.settle(each)
            self.model.remove(each)

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(partitions=st.integers(1, 3))
    def arrange(self, partitions: int) -> None:
        queue = self.index.queue(T)
        if queue is not None:
            queue.arrange(partitions)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def acknowledge_late(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.model))
        assert self.index.settle(each)
        self.model.remove(each)

    @invariant()
    def agrees(self) -> None:
        assert self.index.entries == len(self.model)
        assert self.index.size_bytes == sum(each.size_bytes for each in self.model)
        assert self.index.oldest_s() == min((w.sequence for w in self.model), default=None)
        for key in (b"a", b"b", b"c"):
            here = any(w.key == key for w in [*self.model, *self.being_written])
            assert self.index.holds(T, key) == here
        for segment in range(self.sequence // 5 + 1):
            needed = [w.sequence for w in self.model if w.sequence // 5 == segment]
            assert sorted(w.sequence for w in self.index.unsettled(segment)) == needed


TestModelled = Modelled.TestCase
