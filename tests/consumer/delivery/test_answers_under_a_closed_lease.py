"""An answer that comes while the lease is closed counts; what others would see of it waits."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio

from hermes_actors.consumer.senders.sender import NOT_BEGUN, Failure, SendOutcome
from hermes_actors.coordination.owned import Owned
from tests.consumer.hand_lease import HandLease

OK, BROKEN, REFUSED = SendOutcome(200), SendOutcome(500), SendOutcome(400)
UNANSWERED = SendOutcome(0, "", Failure.TIMEOUT, "no answer")


@pytest.fixture(params=["serial", "batch"])
def paused(request, world, batches):
    """A consumer whose first push, at about 0, is answered a second later, in a pause from the
    middle of that second on.
    """

    @asynccontextmanager
    async def pausing(outcome, **policy):
        lease = HandLease()
        world.sender.script = lambda _push: (1.0, outcome)
        if request.param == "serial":
            live = world.live(policy=policy)
        else:
            policy = {"batch_size": 1, "batch_time": 10, **policy}
            live = batches.live(policy=policy)
        await world.publish(b"0")
        async with world.consuming(live, owned=Owned(lease=lease)) as consumer:
            await trio.sleep(0.5)
            lease.is_closed = True
            await trio.sleep(1)
            yield SimpleNamespace(lease=lease, consumer=consumer, live=live)

    return pausing


async def test_it_is_one_of_the_attempts_that_a_message_has_at_most(paused, world, autojump_clock):
    async with paused(BROKEN, attempts_max=2, message_backoff=100) as scene:
        await trio.sleep(60)
        assert len(world.sender.pushes) == 1
        scene.lease.open()
        await trio.sleep(5)
        assert len(world.sender.pushes) == 2
        assert world.count("discarded") == 1
        assert b"Hermes-Retry-Count: 1\r\n" in world.sender.pushes[1].lines


async def test_the_back_off_is_waited_for_also_when_the_pause_is_short(
    paused, world, autojump_clock
):
    async with paused(BROKEN, message_backoff=5_000) as scene:
        scene.lease.open()
        await trio.sleep(10)
        first_s, second_s, *_ = world.sender.times_s
        assert second_s - first_s >= 6.0


@pytest.mark.parametrize(
    ("outcome", "policy"),
    [(REFUSED, {}), (BROKEN, {"attempts_max": 1}), (BROKEN, {"message_ttl": 0})],
    ids=["refused", "attempted often enough", "tried for long enough"],
)
async def test_what_it_ends_is_given_up_after_the_pause_and_not_pushed_again(
    paused, world, outcome, policy, autojump_clock
):
    async with paused(outcome, **policy) as scene:
        await trio.sleep(60)
        assert world.count("discarded") == 0, "another owner may have it by now"
        world.sender.script = lambda _push: OK
        await world.publish(b"1")
        scene.lease.open()
        await trio.sleep(5)
        assert world.count("discarded") == 1
        assert world.count("delivered") == 1, "others go on behind it"
        assert len(world.sender.pushes) == 2
        assert (await world.committed()).position == 2


async def test_an_endpoint_that_is_gone_is_suspended_after_the_pause_and_pushed_nothing(
    paused, world, autojump_clock
):
    async with paused(SendOutcome(410)) as scene:
        await trio.sleep(60)
        assert world.suspensions == []
        scene.lease.open()
        await trio.sleep(5)
        assert len(world.suspensions) == 1
        assert len(world.sender.pushes) == 1
        assert world.count("discarded") == 0


@pytest.mark.parametrize("outcome", [UNANSWERED, NOT_BEGUN], ids=["unanswered", "not begun"])
async def test_what_ended_without_an_answer_in_a_pause_is_no_attempt(
    paused, world, outcome, autojump_clock
):
    """The node itself was away, so that its requests timed out."""
    async with paused(outcome, attempts_max=1) as scene:
        await trio.sleep(60)
        world.sender.script = lambda _push: OK
        scene.lease.open()
        await trio.sleep(1)
        assert world.count("delivered") == 1
        assert b"Hermes-Retry-Count: 0\r\n" in world.sender.pushes[1].lines
