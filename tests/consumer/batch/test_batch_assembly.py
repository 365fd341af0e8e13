"""Batches over random messages, bounds, answers and changes: bounded, in order, nothing lost."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.consumer.batch.assembly import (
    BatchAssembly,
    array_of,
    element_of,
    require_json,
)
from hermes_actors.consumer.batch.pacing import BatchPacing
from hermes_actors.consumer.delivery.delivery import OVERHEAD_BYTES, Delivery
from hermes_actors.consumer.offsets.partition import PartitionOffsets
from hermes_actors.coordination.owned import Owned
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import Message, UndecodableRecord
from hermes_actors.model.record import StoredRecord
from hermes_actors.model.subscription import BatchBody, BatchPolicy


def bounded(size=3, time_s=10.0, volume_bytes=1_000):
    return BatchPolicy(
        batch_size=size,
        batch_time=int(time_s * 1_000),
        batch_volume=volume_bytes,
        body=BatchBody.MESSAGES,
    )


THREE = bounded()


class Line:
    """An assembly fed from two partitions, with what has been read and what became of it."""

    def __init__(self, policy=THREE, *, bytes_max=1_000_000, buried_max=1_000):
        self.now_s = 0.0
        self.policy = policy
        self.rejected = []
        self.partitions = {0: PartitionOffsets(0), 1: PartitionOffsets(0)}
        self.read = []
        self.ended = []
        self.taken = []
        self.assembly = BatchAssembly(
            policy,
            lambda delivery, _form: self.render(delivery),
            lambda: self.now_s,
            bytes_max=bytes_max,
            buried_max=buried_max,
        )

    @staticmethod
    def render(delivery):
        require_json(delivery.record.value)
        return delivery.record.value

    def add(self, body, partition=0):
        offsets = self.partitions[partition]
        offset = offsets.read_end
        assert offsets.begin(offset)
        record = StoredRecord(
            key=None, value=body, headers=(), timestamp_ms=0, partition=partition, offset=offset
        )
        self.read.append((partition, offset))
        self.assembly.add(Delivery(record, offsets))

    def end(self, deliveries):
        self.ended += [(each.record.partition, each.record.offset) for each in deliveries]

    def fill(self):
        self.assembly.fill(100, self.reject)

    def reject(self, delivery, reason, detail):
        self.rejected.append((reason, detail))
        self.bury(delivery)

    def bury(self, delivery):
        self.end([delivery])
        delivery.settled()
        self.assembly.forget(delivery)

    def step(self, answer):
        """Send the batch that is due, if one is, and take the answer in."""
        assembly = self.assembly
        self.fill()
        if assembly.current is None and assembly.ready_s <= self.now_s:
            self.check(assembly.close("id", self.now_s))
        batch = assembly.current
        if batch is None:
            return
        self.fly(batch)
        if answer == "taken":
            self.end(batch.deliveries)
            self.taken += [(d.record.partition, d.record.offset) for d in batch.deliveries]
            batch.settled()
            assembly.remove(batch)
        elif answer == "given up":
            assembly.bury(batch)
            for each in batch.deliveries:
                self.bury(each)
        elif batch.is_superseded:
            assembly.let_go(batch)
        else:
            assembly.wait(batch, self.now_s)

    def fly(self, batch):
        if not self.assembly.inflight:
            batch.sent(self.now_s)
            self.assembly.inflight = len(batch.deliveries)

    def check(self, batch):
        assert 1 <= len(batch.deliveries) <= self.policy.batch_size
        assert len(batch.body) <= self.policy.batch_volume
        assert len(json.loads(batch.body)) == len(batch.deliveries)


def bodies():
    return st.one_of(
        st.integers(0, 10**12).map(lambda n: b"%d" % n),
        st.text("ab", max_size=60).map(lambda text: json.dumps(text).encode()),
        st.sampled_from([b"", b"{", b"\xff"]),
    )


bounds = st.builds(
    bounded,
    size=st.integers(1, 5),
    time_s=st.sampled_from([0.001, 1.0, 10.0]),
    volume_bytes=st.integers(1, 100),
)
steps = st.one_of(
    st.tuples(st.just("add"), bodies(), st.integers(0, 1)),
    st.tuples(st.just("send"), st.sampled_from(["taken", "failed", "given up"])),
    st.tuples(st.just("sleep"), st.sampled_from([0.5, 10.0])),
    st.tuples(st.just("change"), bounds),
    st.tuples(st.just("fly"), st.booleans()),
)


@settings(deadline=None)
@given(bounds, st.lists(steps, max_size=40))
def test_batches_keep_to_their_bounds_and_lose_nothing_in_any_order(first, story):
    line = Line(first)
    for step, *arguments in story:
        if step == "add":
            line.add(*arguments)
        elif step == "send":
            line.step(*arguments)
        elif step == "sleep":
            line.now_s += arguments[0]
        elif step == "change":
            line.policy = arguments[0]
            line.assembly.change(*arguments)
        elif line.assembly.current is not None:
            line.fly(line.assembly.current)
            if not arguments[0]:
                line.step("failed")
        held = line.assembly
        gathered = 0 if held.current else held.due[1]
        if not held.current:
            assert held.fresh + gathered + held.buried == len(line.read) - len(line.ended)
    # Once answers are good, everything ends, each message once, each partition in order.
    for _ in range(3 * len(line.read) + 3):
        line.now_s += 10.0
        line.step("taken")
    assert sorted(line.ended) == sorted(line.read)
    assert (line.assembly.buffered_bytes, line.assembly.buried) == (0, 0)
    for partition in (0, 1):
        taken = [offset for p, offset in line.taken if p == partition]
        assert taken == sorted(taken)
        ended = [offset for p, offset in line.ended if p == partition]
        assert line.partitions[partition].position == len(ended)


def test_a_batch_is_complete_by_size_by_volume_and_by_time():
    line = Line()
    assert line.assembly.ready_s == float("inf")
    line.now_s = 5.0
    line.add(b"1")
    line.fill()
    assert line.assembly.ready_s == 15.0
    line.add(b"2")
    line.now_s = 7.0
    line.add(b"3")
    line.fill()
    assert line.assembly.ready_s == float("-inf")
    assert line.assembly.close("a", 7.0).body == b"[1,2,3]"

    line = Line(bounded(size=9, volume_bytes=7))
    for body in (b"11", b"222", b"3"):
        line.add(body)
        line.fill()
    # [11,222] would be 8 bytes.
    first = line.assembly.close("a", 0.0)
    assert first.body == b"[11]"
    first.sent(0.0)
    first.settled()
    line.assembly.remove(first)
    line.fill()
    assert line.assembly.close("b", 0.0).body == b"[222,3]"


def test_a_message_that_fits_into_no_batch_is_rejected_with_its_sizes():
    line = Line(bounded(size=9, volume_bytes=7))
    for body in (b"123456", b"{", b"12345"):
        line.add(body)
    line.fill()
    (too_large, detail), (undecodable, _) = line.rejected
    assert (too_large, undecodable) == (DiscardReason.TOO_LARGE, DiscardReason.UNDECODABLE)
    assert detail == "6 bytes do not fit into a batchVolume of 7"
    assert line.assembly.due[1] == 1


def test_nothing_is_taken_up_while_too_many_dead_letters_are_on_their_way():
    line, rejected = Line(buried_max=2), []
    for body in (b"{", b"{", b"{", b"1"):
        line.add(body)
    line.assembly.fill(100, lambda delivery, _reason, _detail: rejected.append(delivery))
    assert (line.assembly.can_fill, line.assembly.fresh) == (False, 2)
    line.assembly.forget(rejected[0])
    assert line.assembly.can_fill


def test_a_batch_goes_when_nothing_more_can_be_read():
    line = Line(bytes_max=2 * OVERHEAD_BYTES)
    line.add(b"1")
    line.fill()
    assert line.assembly.ready_s == 10.0
    line.add(b"2")
    line.fill()
    assert line.assembly.ready_s == float("-inf")


@pytest.mark.parametrize("is_inflight", [False, True])
def test_what_a_retransmission_moves_leaves_queue_open_and_current_batch(is_inflight):
    line = Line(bounded(size=4))
    for n in range(12):
        line.add(b"%d" % n, partition=n % 2)
    line.fill()
    batch = line.assembly.close("a", 0.0)
    line.fill()
    if is_inflight:
        line.fly(batch)
    line.partitions[1].is_superseded = True
    line.assembly.drop_superseded()
    if is_inflight:
        # What is in flight cannot be changed; it is made anew if it fails.
        assert (line.assembly.inflight, line.assembly.fresh) == (4, 4)
        assert batch.is_superseded
        line.assembly.let_go(batch)
    line.fill()
    assert line.assembly.close("b", 0.0).body == b"[0,2,4,6]"
    assert line.assembly.fresh == 2
    assert line.assembly.buffered_bytes == 6 * (OVERHEAD_BYTES + 1) + 1


@given(
    st.integers(1, 200),
    st.integers(1, 100),
    st.lists(st.tuples(st.floats(0, 0.7), st.integers(1, 100)), max_size=30),
)
def test_no_second_sees_more_than_the_rate_and_every_batch_gets_its_turn(rate, size, sends):
    pacing, now_s = paced(size, rate), 1.0
    taken = []
    for pause_s, count in sends:
        now_s += pause_s
        count = min(count, pacing.size_max)
        for _ in range(1_000):
            wait_s = pacing.wait_s(now_s, count)
            if wait_s == 0.0:
                break
            now_s += wait_s
        assert wait_s == 0.0
        pacing.take(now_s, count)
        taken.append((now_s, count))
    for at_s, _ in taken:
        assert sum(n for each_s, n in taken if at_s <= each_s < at_s + 1 - 1e-6) <= rate


def paced(size, rate):
    """The pacing of a batch consumer that began at 0."""
    clock = SimpleNamespace(monotonic_s=lambda: 0.0)
    return BatchPacing(BatchPolicy(batch_size=size, message_rate=rate), Owned(), clock)


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_whole_batches_fill_a_second(size, rate):
    most = paced(size, rate).size_max
    assert 1 <= most <= size
    # Less than one message of each batch is given away.
    assert rate - rate // most * most <= rate // most
    assert paced(size, None).size_max == size


def test_a_lowered_rate_does_not_hold_a_larger_batch_for_ever():
    pacing = paced(100, 10)
    assert pacing.wait_s(1.0, 50) == 0.0
    pacing.take(1.0, 50)
    assert pacing.wait_s(1.0, 1) == pytest.approx(1.0)
    assert pacing.wait_s(2.0, 1) == 0.0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(json_values, st.booleans()), max_size=5), st.sampled_from(BatchBody))
def test_a_body_of_any_json_values_is_one_json_array_of_them(values, form):
    messages = [
        Message(
            id=f"id {n}",
            body=json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "replace"),
            published_at_ms=n,
        )
        for n, (value, is_ascii) in enumerate(values)
    ]
    array = json.loads(array_of([element_of(each, form) for each in messages]))
    if form is BatchBody.ENVELOPES:
        assert [each["metadata"]["id"] for each in array] == [each.id for each in messages]
        array = [each["message"] for each in array]
    assert array == [json.loads(each.body) for each in messages]


def refuse(constant):
    raise ValueError(constant)


@given(st.binary(max_size=30))
def test_what_may_go_into_a_batch_is_what_other_readers_take_for_json(body):
    try:
        json.loads(body.decode(), parse_constant=refuse)
    except ValueError:
        with pytest.raises(UndecodableRecord):
            require_json(body)
    else:
        require_json(body)
