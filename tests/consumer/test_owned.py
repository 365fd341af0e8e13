"""What a consumer does in whose name, with which share of the rate, and what it leaves behind."""

import bisect

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.delivery.broadcast import Broadcast, PushCallbacks
from hermes_actors.consumer.delivery.delivery import Served
from hermes_actors.consumer.delivery.retry import RetryPolicy
from hermes_actors.consumer.offsets.resting import Resting
from hermes_actors.consumer.rates.limit import RateLimit
from hermes_actors.consumer.recipients.resolver_recipients import Recipient
from hermes_actors.consumer.senders.sender import (
    NOT_BEGUN,
    Failure,
    Origin,
    PushRoute,
    SendOutcome,
)
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.owned import Owned, RateShare
from hermes_actors.log.commits import CommitOwner, decode
from hermes_actors.model.subscription import SerialPolicy
from hermes_actors.runtime.wakeup import Wakeup

OK, BROKEN = SendOutcome(200), SendOutcome(500)


class JumpingLease:
    """A lease that ends at a time of a clock which may jump, as when the machine has slept."""

    def __init__(self):
        self.jumped_s = 0.0
        self.until_s = float("inf")
        self.looks = 0
        self._opened = trio.Event()

    def is_open(self):
        self.looks += 1
        return trio.current_time() + self.jumped_s < self.until_s

    async def wait_opened(self):
        while not self.is_open():
            await self._opened.wait()

    def close(self):
        self.until_s = 0.0

    def open(self):
        self.until_s = float("inf")
        self._opened.set()
        self._opened = trio.Event()


@pytest.fixture
def lease():
    return JumpingLease()


async def test_while_the_lease_is_closed_nothing_is_pushed_nor_committed_and_all_is_kept(
    world, lease, autojump_clock
):
    async with world.consuming(owned=Owned(lease=lease)) as consumer:
        await world.publish(b"0")
        await trio.sleep(2)
        committed = await world.committed()
        lease.close()
        await world.publish(b"1", b"2")
        await trio.sleep(20)
        assert world.sender.bodies == [b"0"]
        assert await world.committed() == committed
        assert consumer.status().held_back.startswith(
            "paused: this node has not seen its own heartbeat in the coordination log for 2 s"
        )
        # It has read on all the same.
        assert consumer.status().fresh == 2
        lease.open()
        await trio.sleep(0.001)
        assert world.sender.bodies == [b"0", b"1", b"2"]
        assert consumer.status().held_back == ""
        await trio.sleep(2)
        assert (await world.committed()).position == 3
    assert len(consumer.made) == 1


async def test_neither_an_answer_nor_a_retry_begins_a_push_under_a_closed_lease(
    world, lease, autojump_clock
):
    world.sender.script = lambda _push: (1.0, BROKEN)
    live = world.live(policy={"inflight_size": 1, "message_backoff": 100})
    await world.publish(b"0", b"1")
    async with world.consuming(live, owned=Owned(lease=lease)):
        await trio.sleep(0.5)
        lease.close()
        await trio.sleep(60)
        assert world.sender.bodies == [b"0"]
        world.sender.script = lambda _push: OK
        lease.open()
        await trio.sleep(0.5)
        assert sorted(world.sender.bodies[1:]) == [b"0", b"1"]


async def test_what_fails_under_a_closed_lease_is_not_given_up_and_says_nothing_of_the_endpoint(
    world, lease, autojump_clock
):
    """The node itself was away, so that all its requests timed out."""
    world.sender.script = lambda _push: (5.0, SendOutcome(0, "", Failure.TIMEOUT, "no answer"))
    await world.publish(*[b"%d" % n for n in range(60)])
    live = world.live(policy={"message_ttl": 3})
    async with world.consuming(live, owned=Owned(lease=lease)) as consumer:
        await trio.sleep(1)
        lease.close()
        await trio.sleep(60)
        assert world.count("discarded") == 0
        assert consumer.status().level == "FULL"
        world.sender.script = lambda _push: OK
        lease.open()
        await trio.sleep(1)
        assert world.count("delivered") == 60


async def test_a_push_that_waits_in_a_sender_may_begin_only_while_the_lease_is_open(
    world, lease, autojump_clock
):
    world.sender.script = lambda _push: None
    await world.publish(b"0")
    async with world.consuming(owned=Owned(lease=lease)) as consumer:
        await trio.sleep(1)
        (push,) = world.sender.pushes
        assert push.may_begin()
        lease.close()
        assert not push.may_begin()
        lease.open()
        assert push.may_begin()
        await consumer.stop()
        # What has been left to another owner is not begun either.
        assert not push.may_begin()


def test_a_broadcast_that_may_not_go_on_leaves_the_rest_for_its_next_attempt():
    route = PushRoute("lane", Origin("http", "host", 80), "/", b"")
    recipients = [Recipient(f"k{n}", f"n{n}", route) for n in range(5)]
    may_begin, under_way, outcomes, served = [True], [], [], Served()
    Broadcast(
        recipients,
        served,
        RetryPolicy(SerialPolicy()),
        PushCallbacks(lambda: may_begin[0], lambda: False, outcomes.append),
        push=lambda recipient, done: under_way.append((recipient.key, done)),
        done=outcomes.append,
        now_ms=lambda: 0,
        pushes_max=2,
    ).begin()
    under_way[0][1](OK)
    assert [key for key, _ in under_way] == ["k0", "k1", "k2"]
    may_begin[0] = False
    under_way[1][1](OK)
    under_way[2][1](OK)
    assert len(under_way) == 3
    assert [served.has(each.key) for each in recipients] == [True, True, True, False, False]
    (outcome,) = outcomes
    assert (outcome.is_local, outcome.failure) == (True, NOT_BEGUN.failure)


async def pushes_in(world, seconds):
    before = len(world.sender.pushes)
    await trio.sleep(seconds)
    return len(world.sender.pushes) - before


async def test_a_share_of_the_rate_is_in_force_at_once_and_may_be_nothing(world, autojump_clock):
    share = RateShare(0.5)
    await world.publish(*[b"%d" % n for n in range(900)])
    live = world.live(policy={"rate": 100})
    async with world.consuming(live, owned=Owned(share=share)) as consumer:
        await trio.sleep(1)
        assert 48 <= await pushes_in(world, 1) <= 50
        share.change(0.1)
        assert consumer.status().rate_now == 10
        assert await pushes_in(world, 0.95) <= 11
        assert "its share of the rate, 10.0 of 100 messages a second" in consumer.status().held_back
        share.change(0.0)
        assert await pushes_in(world, 30) == 0
        assert "another node uses its share" in consumer.status().held_back
        assert consumer.status().rate_now == 0
        share.change(1.0)
        # Paced from zero: no burst for what was not sent.
        assert await pushes_in(world, 0.01) <= 1
        assert 95 <= await pushes_in(world, 1) <= 100


async def test_owners_together_never_exceed_the_rate_while_their_shares_change(
    make_world, autojump_clock
):
    world = make_world(partitions=2)
    await world.create()
    for partition in (0, 1):
        await world.publish(*[b"%d" % n for n in range(900)], partition=partition)
    live = world.live(policy={"rate": 100})
    first, second = RateShare(1.0), RateShare(0.0)
    async with (
        world.consuming(live, owned=Owned((0,), share=first)),
        world.consuming(live, owned=Owned((1,), share=second)),
    ):
        for one in (0.5, 0.2, 0.9, 0.0):
            await trio.sleep(2)
            first.change(min(one, first.value))
            second.change(min(1 - one, second.value))
            # As the fold has it: what one gives up, others get 3 s later.
            await trio.sleep(3)
            first.change(one)
            second.change(1 - one)
    times_s = world.sender.times_s
    for at, start_s in enumerate(times_s):
        within = sum(1 for each in times_s[at : at + 200] if each < start_s + 1 - 1e-6)
        assert within <= 100
    assert len(times_s) > 1_000


async def test_a_batch_rate_is_shared_in_whole_messages(batches, autojump_clock):
    world, share = batches.world, RateShare(0.4)
    await world.publish(*batches.numbers(60))
    live = batches.live(policy={"batch_size": 10, "batch_time": 0, "message_rate": 10})
    async with world.consuming(live, owned=Owned(share=share)):
        await trio.sleep(5.5)
        assert {len(each) for each in batches.sent} == {4}
        assert len(batches.sent) == 5
        share.change(0.0)
        sent = len(batches.sent)
        await trio.sleep(10)
        assert len(batches.sent) == sent
        share.change(0.05)
        await trio.sleep(10.1)
        # One message in two seconds.
        assert 5 <= sum(map(len, batches.sent[sent:])) <= 9


async def test_a_new_owner_begins_with_what_the_one_before_knew_and_without_a_burst(
    world, autojump_clock
):
    await world.publish(*[b"%d" % n for n in range(900)])
    live = world.live(policy={"rate": 400})
    known = RateState("ADAPTING", 40.0)
    owned = Owned(epoch=2, share=RateShare(0.5), rate=known)
    async with world.consuming(live, owned=owned) as consumer:
        assert (consumer.status().level, consumer.status().rate_now) == ("ADAPTING", 20.0)
        assert consumer.made[-1].known() == known
        assert await pushes_in(world, 0.02) <= 1
        assert await pushes_in(world, 0.4) <= 9


async def test_a_consumer_that_fails_goes_on_where_it_was_and_not_where_its_grant_began(
    world, autojump_clock
):
    await world.publish(*[b"%d" % n for n in range(900)])
    live = world.live(policy={"rate": 100})
    owned = Owned(epoch=2, rate=RateState("SLOW", 1.0))
    async with world.consuming(live, owned=owned) as consumer:
        await trio.sleep(30)
        assert consumer.status().level == "FULL"
        consumer.supervisor.crash("consumer")
        await trio.sleep(1)
        assert len(consumer.made) == 2
        assert consumer.status().level == "FULL"


async def test_a_handover_gives_what_is_under_way_its_own_grace_and_commits_the_rest(
    world, autojump_clock
):
    world.sender.script = lambda push: None if push.body == b"stuck" else (0.2, OK)
    await world.publish(b"stuck", b"1", b"2")
    async with world.consuming() as consumer:
        await trio.sleep(0.1)
        before_s = trio.current_time()
        consumer.made[-1].hand_over()
        await consumer.stop()
        assert trio.current_time() - before_s == pytest.approx(0.5, abs=0.05)
    progress = decode(await world.committed())
    assert (progress.position, progress.intervals) == (0, ((1, 3),))


async def test_only_the_owner_of_the_first_partition_carries_out_re_drives(
    make_world, autojump_clock
):
    world = make_world(partitions=2)
    await world.create()
    board = Board()
    world.parts = msgspec.structs.replace(world.parts, redrives=board)
    async with world.consuming(owned=Owned((1,))):
        await trio.sleep(1)
        assert board.asked == 0
    async with world.consuming(owned=Owned((0,))):
        await trio.sleep(1)
        assert board.asked > 0


class Board:
    def __init__(self):
        self.asked = 0
        self._changed = Wakeup()

    def find(self, _live):
        self.asked += 1

    def version(self, _live):
        return None

    async def wait_changed(self):
        await self._changed.wait()


async def test_nobody_commits_for_what_rests_while_the_lease_is_closed(
    world, lease, autojump_clock
):
    await world.publish(b"0", b"1")
    live = msgspec.structs.replace(world.live(), active_in=("dc1",))
    resting = Resting(world.log, world.clock, skew_ms=0)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resting.run, stop)
        lease.close()
        resting.keep(live, world.topic, Owned((0,), 3, lease))
        await trio.sleep(30)
        assert await world.committed() is None
        lease.open()
        await trio.sleep(6)
        assert decode(await world.committed()).ownership == CommitOwner(0, 7, 3)
        stop.set()


@given(
    rate=st.integers(1, 2_000),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=20),
    gap_s=st.floats(0.001, 0.3),
)
def test_a_rate_that_changes_at_any_time_is_never_exceeded_in_a_second(rate, shares, gap_s):
    limit, now_s, times_s = RateLimit(rate), 1_000.0, []
    for share in shares:
        limit.change(rate * share)
        for _ in range(5):
            now_s += gap_s
            count = limit.available(now_s)
            assert (count == 0) or limit.rate_per_s > 0
            limit.take(now_s, count)
            times_s += [now_s] * count
    for at, start_s in enumerate(times_s):
        within = bisect.bisect_left(times_s, start_s + 1 - 1e-6) - at
        # A change keeps the time until the next one, so that its burst may come on top.
        assert within <= rate + max(1, rate // 50)


async def test_a_share_of_next_to_nothing_holds_back_no_greater_one_after_it(world, autojump_clock):
    share = RateShare(0.001)
    await world.publish(*[b"%d" % n for n in range(50)])
    async with world.consuming(world.live(policy={"rate": 10}), owned=Owned(share=share)):
        # One in 100 s.
        assert await pushes_in(world, 150) == 1
        share.change(1e-17)
        assert await pushes_in(world, 1_000) == 0
        share.change(1.0)
        assert 19 <= await pushes_in(world, 2) <= 20
