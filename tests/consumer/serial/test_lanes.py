from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.consumer.serial.lanes import Lanes
from hermes_actors.model.record import StoredRecord

OFFSETS = PartitionOffsets(0)


def delivery(offset, size=10):
    return Delivery(StoredRecord(0, offset, 0, None, b"x" * size, ()), OFFSETS)


def filled(window, fresh, due, waiting_max=1_000):
    """Lanes with that many fresh messages and retries that are due at 0."""
    lanes = Lanes(window, waiting_max)
    for n in range(due):
        lanes.add(delivery(n))
    for _ in range(due):
        lanes.window = waiting_max
        lanes.wait(lanes.next(0), 0)
    lanes.window = window
    for n in range(fresh):
        lanes.add(delivery(1_000 + n))
    return lanes


def taken(lanes, now_s=0):
    found = []
    while (one := lanes.next(now_s)) is not None:
        found.append(one)
    return found


def test_each_lane_is_sure_of_half_of_the_window():
    found = taken(filled(window=10, fresh=100, due=100))
    assert sum(one.is_retry for one in found) == 5
    assert len(found) == 10


def test_a_lane_alone_has_the_whole_window():
    assert [one.is_retry for one in taken(filled(10, fresh=100, due=0))] == [False] * 10
    lanes = Lanes(10, 1_000)
    for n in range(50):
        lanes.add(delivery(n))
    for one in taken(lanes):
        lanes.wait(one, 5.0)
    lanes.waiting_max = 10
    assert taken(lanes, 4.9) == []
    assert [one.is_retry for one in taken(lanes, 5.0)] == [True] * 10


def test_in_a_window_of_one_the_lanes_take_turns():
    lanes = filled(window=1, fresh=50, due=50)
    turns = []
    for _ in range(20):
        one = lanes.next(0)
        turns.append(one.is_retry)
        lanes.remove(one)
    assert turns.count(True) == 10
    assert turns[::2] == [turns[0]] * 10


def test_retries_go_out_in_order_of_their_due_time():
    lanes = Lanes(10, 100)
    for n in range(3):
        lanes.add(delivery(n))
    for one, due_s in zip(taken(lanes), (3.0, 1.0, 2.0), strict=True):
        lanes.wait(one, due_s)
    assert lanes.next_due_s == 1.0
    assert [one.record.offset for one in taken(lanes, 9.0)] == [1, 2, 0]


def test_what_is_over_needs_no_room_in_the_window():
    lanes = filled(window=2, fresh=5, due=3)
    first, second = taken(lanes)
    assert lanes.next_over(0, lambda one: one.record.offset == 99) is None
    over = lanes.next_over(0, lambda _one: True)
    assert lanes.inflight == 3
    lanes.bury(over)
    lanes.forget(over)
    for one in (first, second):
        lanes.remove(one)
    assert (lanes.inflight, lanes.buried) == (0, 0)
    assert lanes.next_over(-1, lambda _one: True) is None


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens, no bound is passed and no message is lost or doubled."""

    def __init__(self):
        super().__init__()
        self.lanes = Lanes(4, 6)
        self.inflight = []
        self.known = self.done = 0
        self.now_s = 0.0

    @rule(count=st.integers(1, 5))
    def read(self, count):
        for _ in range(count):
            self.lanes.add(delivery(self.known))
            self.known += 1

    @rule(seconds=st.floats(0, 3))
    def take(self, seconds):
        self.now_s += seconds
        self.inflight += taken(self.lanes, self.now_s)

    @rule(at=st.integers(0, 9), delay_s=st.floats(0, 3))
    def fail(self, at, delay_s):
        if self.inflight:
            self.lanes.wait(self.inflight.pop(at % len(self.inflight)), self.now_s + delay_s)

    @rule(at=st.integers(0, 9))
    def settle(self, at):
        if self.inflight:
            self.lanes.remove(self.inflight.pop(at % len(self.inflight)))
            self.done += 1

    @invariant()
    def the_books_are_right(self):
        lanes = self.lanes
        assert lanes.inflight == len(self.inflight) <= 4
        assert lanes.waiting + lanes.inflight <= 6
        assert lanes.fresh + lanes.waiting + lanes.inflight + self.done == self.known
        assert len({one.record.offset for one in self.inflight}) == len(self.inflight)
        each = delivery(0).size_bytes
        assert lanes.buffered_bytes == (self.known - self.done) * each


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(deadline=None)
