"""The batcher keeps order, bounds and independence, whatever comes and ends when."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_actors.log.batching import RECORD_OVERHEAD_BYTES, Batcher, PartitionBatch
from hermes_actors.model.partitioner import partition_of

PARTITIONS, RECORDS_MAX, BYTES_MAX, SLOW_S = 3, 4, 1_000, 1.0


@dataclass
class Item:
    number: int
    key: bytes | None
    body: bytes
    is_done: bool = False
    count: int = 1

    @property
    def body_bytes(self) -> int:
        return len(self.body)


class Machine(RuleBasedStateMachine):
    """Random arrivals, answers, starts and ends of appends."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher = Batcher(
            PARTITIONS, records_max=RECORDS_MAX, bytes_max=BYTES_MAX, first=0, slow_s=SLOW_S
        )
        self.now_s = 0.0
        self.count = 0
        self.added: list[Item] = []
        self.flying: list[PartitionBatch] = []
        self.sent: dict[int, None] = {}
        self.last_by_key: dict[bytes | None, int] = {}

    @rule(key=st.sampled_from([None, b"a", b"b", b"c", b"d"]), size=st.integers(0, 1_500))
    def add(self, key: bytes | None, size: int) -> None:
        item = Item(self.count, key, bytes(size))
        self.count += 1
        self.added.append(item)
        self.batcher.add(item)

    @rule(step_s=st.floats(0, 2))
    def time_passes(self, step_s: float) -> None:
        self.now_s += step_s

    @rule(count=st.integers(1, 3))
    def the_oldest_are_answered(self, count: int) -> None:
        for item in [each for each in self.added if not each.is_done][:count]:
            item.is_done = True

    @rule()
    def start(self) -> None:
        was_answered = {item.number for item in self.added if item.is_done}
        batch = self.batcher.next_batch(self.now_s)
        if batch is None:
            return
        assert batch.partition not in {each.partition for each in self.flying}
        assert 1 <= len(batch.items) <= RECORDS_MAX
        sizes = [len(i.body) + len(i.key or b"") + RECORD_OVERHEAD_BYTES for i in batch.items]
        assert len(sizes) == 1 or sum(sizes) <= BYTES_MAX
        assert batch.body_bytes == sum(len(item.body) for item in batch.items)
        for item in batch.items:
            assert item.number not in was_answered, "an answered message was sent"
            assert item.number not in self.sent, "a message was sent twice"
            if item.key is not None:
                assert batch.partition == partition_of(item.key, PARTITIONS)
            assert self.last_by_key.get(item.key, -1) < item.number, "a key's order was broken"
            self.last_by_key[item.key] = item.number
            self.sent[item.number] = None
        self.flying.append(batch)

    @precondition(lambda self: self.flying)
    @rule(index=st.integers(0, PARTITIONS - 1))
    def an_append_ends(self, index: int) -> None:
        self.batcher.release(self.flying.pop(index % len(self.flying)))

    @invariant()
    def counts_agree(self) -> None:
        assert self.batcher.in_flight == len(self.flying)
        assert self.batcher.waiting >= len(
            [i for i in self.added if not i.is_done and i.number not in self.sent]
        )

    def teardown(self) -> None:
        """With every append ended, all that is unanswered goes out."""
        for batch in self.flying:
            self.batcher.release(batch)
        self.flying.clear()
        while (batch := self.batcher.next_batch(self.now_s)) is not None:
            self.sent.update({item.number: None for item in batch.items})
            self.batcher.release(batch)
        missing = [i.number for i in self.added if not i.is_done and i.number not in self.sent]
        assert not missing
        assert self.batcher.waiting == 0


Machine.TestCase.settings = settings(stateful_step_count=60, deadline=None)
TestBatcher = Machine.TestCase


def batcher(partitions: int = 3) -> Batcher:
    return Batcher(partitions, records_max=10, bytes_max=10_000, first=0, slow_s=SLOW_S)


def test_what_waits_while_a_keyless_batch_is_in_flight_is_the_next_batch_elsewhere() -> None:
    batches = batcher()
    batches.add(Item(0, None, b""))
    first = batches.next_batch(0.0)
    for number in range(1, 6):
        batches.add(Item(number, None, b""))
    assert batches.next_batch(0.5) is None
    assert first is not None
    batches.release(first)
    second = batches.next_batch(0.5)
    assert second is not None
    assert [item.number for item in second.items] == [1, 2, 3, 4, 5]
    assert second.partition != first.partition


def test_keyless_messages_leave_a_slow_partition_behind() -> None:
    batches = batcher()
    batches.add(Item(0, None, b""))
    stuck = batches.next_batch(0.0)
    batches.add(Item(1, None, b""))
    assert batches.slow_at_s() == SLOW_S
    second = batches.next_batch(SLOW_S)
    assert stuck is not None
    assert second is not None
    assert second.partition != stuck.partition


@given(st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=30))
def test_partitions_are_started_independently(keys: list[bytes]) -> None:
    batches = Batcher(5, records_max=100, bytes_max=10_000, first=0, slow_s=SLOW_S)
    for number, key in enumerate(keys):
        batches.add(Item(number, key, b""))
    started = set()
    while (batch := batches.next_batch(0.0)) is not None:
        started.add(batch.partition)
    assert started == {partition_of(key, 5) for key in keys}


def test_more_partitions_are_used_once_known() -> None:
    batches = batcher(partitions=1)
    batches.grow(3)
    used = set()
    for number in range(3):
        batches.add(Item(number, None, b""))
        batch = batches.next_batch(0.0)
        assert batch is not None
        used.add(batch.partition)
        batches.release(batch)
    assert used == {0, 1, 2}


def numbers_of_all(batches: Batcher) -> list[list[int]]:
    sent = []
    while (batch := batches.next_batch(0.0)) is not None:
        sent.append([item.number for item in batch.items])
        batches.release(batch)
    return sent


def test_messages_with_and_without_keys_share_a_batch_of_one_partition() -> None:
    batches = batcher(partitions=1)
    batches.add(Item(0, b"key", b""))
    batches.add(Item(1, None, b""))
    batches.add(Item(2, b"key", b""))
    assert numbers_of_all(batches) == [[1, 0, 2]]


def test_messages_with_and_without_keys_take_turns_where_a_batch_is_too_small_for_both() -> None:
    batches = Batcher(1, records_max=1, bytes_max=BYTES_MAX, first=0, slow_s=SLOW_S)
    for number in range(3):
        batches.add(Item(number, None, b""))
    for number in range(3, 5):
        batches.add(Item(number, b"key", b""))
    assert numbers_of_all(batches) == [[0], [3], [1], [4], [2]]


def test_answered_messages_at_the_heads_make_room() -> None:
    batches = batcher()
    items = [Item(0, None, b""), Item(1, b"a", b""), Item(2, b"a", b""), Item(3, b"b", b"")]
    for item in items:
        batches.add(item)
    items[0].is_done = items[1].is_done = True
    batches.drop_answered()
    assert batches.waiting == 2
