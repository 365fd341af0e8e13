from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.serial.queue import SerialQueue
from hermes_actors.model.record import StoredRecord

OFFSETS = PartitionOffsets(0)


def delivery(offset, size=10):
    return Delivery(StoredRecord(0, offset, 0, None, b"x" * size, ()), OFFSETS)


def filled(window, fresh, due, waiting_max=1_000):
    """SerialQueue with that many fresh messages and retries that are due at 0."""
    queue = SerialQueue(window, waiting_max)
    for n in range(due):
        queue.add(delivery(n))
    for _ in range(due):
        queue.window = waiting_max
        queue.wait(queue.next(0), 0)
    queue.window = window
    for n in range(fresh):
        queue.add(delivery(1_000 + n))
    return queue


def taken(queue, now_s=0):
    found = []
    while (one := queue.next(now_s)) is not None:
        found.append(one)
    return found


def test_each_lane_is_sure_of_half_of_the_window():
    found = taken(filled(window=10, fresh=100, due=100))
    assert sum(one.is_retry for one in found) == 5
    assert len(found) == 10


def test_a_lane_alone_has_the_whole_window():
    assert [one.is_retry for one in taken(filled(10, fresh=100, due=0))] == [False] * 10
    queue = SerialQueue(10, 1_000)
    for n in range(50):
        queue.add(delivery(n))
    for one in taken(queue):
        queue.wait(one, 5.0)
    queue.waiting_max = 10
    assert taken(queue, 4.9) == []
    assert [one.is_retry for one in taken(queue, 5.0)] == [True] * 10


def test_in_a_window_of_one_the_lanes_take_turns():
    queue = filled(window=1, fresh=50, due=50)
    turns = []
    for _ in range(20):
        one = queue.next(0)
        turns.append(one.is_retry)
        queue.remove(one)
    assert turns.count(True) == 10
    assert turns[::2] == [turns[0]] * 10


def test_retries_go_out_in_order_of_their_due_time():
    queue = SerialQueue(10, 100)
    for n in range(3):
        queue.add(delivery(n))
    for one, due_s in zip(taken(queue), (3.0, 1.0, 2.0), strict=True):
        queue.wait(one, due_s)
    assert queue.next_due_s == 1.0
    assert [one.record.offset for one in taken(queue, 9.0)] == [1, 2, 0]


def test_what_is_over_needs_no_room_in_the_window():
    queue = filled(window=2, fresh=5, due=3)
    first, second = taken(queue)
    assert queue.next_over(0, lambda one: one.record.offset == 99) is None
    over = queue.next_over(0, lambda _one: True)
    assert queue.inflight == 3
    queue.bury(over)
    queue.forget(over)
    for one in (first, second):
        queue.remove(one)
    assert (queue.inflight, queue.buried) == (0, 0)
    assert queue.next_over(-1, lambda _one: True) is None


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens, no bound is passed and no message is lost or doubled."""

    def __init__(self):
        super().__init__()
        self.queue = SerialQueue(4, 6)
        self.inflight = []
        self.known = self.done = 0
        self.now_s = 0.0

    @rule(count=st.integers(1, 5))
    def read(self, count):
        for _ in range(count):
            self.queue.add(delivery(self.known))
            self.known += 1

    @rule(seconds=st.floats(0, 3))
    def take(self, seconds):
        self.now_s += seconds
        self.inflight += taken(self.queue, self.now_s)

    @rule(at=st.integers(0, 9), delay_s=st.floats(0, 3))
    def fail(self, at, delay_s):
        if self.inflight:
            self.queue.wait(self.inflight.pop(at % len(self.inflight)), self.now_s + delay_s)

    @rule(at=st.integers(0, 9))
    def settle(self, at):
        if self.inflight:
            self.queue.remove(self.inflight.pop(at % len(self.inflight)))
            self.done += 1

    @invariant()
    def the_books_are_right(self):
        queue = self.queue
        assert queue.inflight == len(self.inflight) <= 4
        assert queue.waiting + queue.inflight <= 6
        assert queue.fresh + queue.waiting + queue.inflight + self.done == self.known
        assert len({one.record.offset for one in self.inflight}) == len(self.inflight)
        each = delivery(0).size_bytes
        assert queue.buffered_bytes == (self.known - self.done) * each


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(deadline=None)
