"""One message of each key on its way, in order, and nobody else held up."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.serial.queue import SerialQueue
from hermes_actors.model.record import StoredRecord

OFFSETS = PartitionOffsets(0)


def delivery(offset, key, partition=0, offsets=OFFSETS):
    return Delivery(StoredRecord(partition, offset, 0, key, b"x", ()), offsets)


def taken(queue, now_s=0.0):
    found = []
    while (one := queue.next(now_s)) is not None:
        found.append(one)
    return found


def offsets_of(deliveries):
    return [each.record.offset for each in deliveries]


def ordered(*keys, window=100, waiting_max=1_000):
    queue = SerialQueue(window, waiting_max, is_ordered=True)
    for offset, key in enumerate(keys):
        queue.add(delivery(offset, key))
    return queue


def test_a_key_has_one_message_under_way_and_others_pass_it():
    queue = ordered(b"a", b"a", b"b", b"a", b"c")
    first = taken(queue)
    assert offsets_of(first) == [0, 2, 4]
    assert queue.parked == 2
    queue.remove(first[0])
    (second,) = taken(queue)
    assert second.record.offset == 1


def test_equal_keys_of_two_partitions_are_two_sequences():
    queue = SerialQueue(10, 100, is_ordered=True)
    queue.add(delivery(0, b"a", partition=0))
    queue.add(delivery(0, b"a", partition=1))
    assert len(taken(queue)) == 2


def test_a_hot_key_does_not_starve_the_others_within_the_bound():
    queue = ordered(*[b"hot"] * 500, *(b"%d" % n for n in range(50)))
    found = taken(queue)
    assert len(found) == 51
    assert queue.parked == 499


def test_a_retransmission_forgets_what_is_parked_and_keeps_what_is_under_way():
    old, new = PartitionOffsets(0), PartitionOffsets(0)
    queue = SerialQueue(10, 100, is_ordered=True)
    for offset in range(4):
        queue.add(delivery(offset, b"a", offsets=old))
    (first,) = taken(queue)
    old.is_superseded = True
    queue.drop_superseded()
    assert queue.parked == queue.fresh == 0
    queue.add(delivery(0, b"a", offsets=new))
    assert taken(queue) == []
    queue.remove(first)
    (again,) = taken(queue)
    assert again.offsets is new
    queue.remove(again)
    assert queue.buffered_bytes == 0


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens, each key's messages end in order, and all of them end."""

    keys = (b"a", b"b", b"c", None)

    def __init__(self):
        super().__init__()
        self.queue = SerialQueue(3, 8, is_ordered=True)
        self.inflight, self.buried = [], []
        self.known = 0
        self.now_s = 0.0
        self.begun = {}
        self.done = {key: [] for key in self.keys}

    @rule(keys=st.lists(st.sampled_from(keys), min_size=1, max_size=6))
    def read(self, keys):
        for key in keys:
            self.queue.add(delivery(self.known, key))
            self.known += 1

    @rule(seconds=st.floats(0, 3))
    def take(self, seconds):
        self.now_s += seconds
        self.inflight += taken(self.queue, self.now_s)

    @precondition(lambda self: self.inflight)
    @rule(at=st.integers(0, 9), delay_s=st.floats(0, 3))
    def fail(self, at, delay_s):
        self.queue.wait(self.inflight.pop(at % len(self.inflight)), self.now_s + delay_s)

    @precondition(lambda self: self.inflight)
    @rule(at=st.integers(0, 9))
    def settle(self, at):
        one = self.inflight.pop(at % len(self.inflight))
        self.queue.remove(one)
        self.done[one.record.key].append(one.record.offset)

    @precondition(lambda self: self.inflight)
    @rule(at=st.integers(0, 9))
    def bury(self, at):
        one = self.inflight.pop(at % len(self.inflight))
        self.queue.bury(one)
        self.buried.append(one)

    @precondition(lambda self: self.buried)
    @rule()
    def keep(self):
        one = self.buried.pop()
        self.queue.forget(one)
        self.done[one.record.key].append(one.record.offset)

    @invariant()
    def one_of_each_key_is_on_its_way(self):
        keyed = [each.record.key for each in self.inflight + self.buried if each.record.key]
        assert len(keyed) == len(set(keyed))
        for key in self.keys[:-1]:
            assert self.done[key] == sorted(self.done[key])
        queue = self.queue
        assert queue.waiting + queue.inflight + queue.buried + queue.parked <= 8

    def teardown(self):
        for _ in range(20 * self.known + 20):
            self.now_s += 5.0
            while self.buried:
                self.keep()
            self.inflight += taken(self.queue, self.now_s)
            while self.inflight:
                self.settle(0)
        assert sum(map(len, self.done.values())) == self.known
        assert self.queue.buffered_bytes == 0


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(deadline=None)


@given(keys=st.lists(st.sampled_from([b"a", b"b", None]), max_size=40))
def test_in_a_window_of_one_the_order_of_reading_is_kept(keys):
    queue = ordered(*keys, window=1)
    seen = []
    while (one := queue.next(0.0)) is not None:
        seen.append(one.record.offset)
        queue.remove(one)
    assert seen == list(range(len(keys)))
