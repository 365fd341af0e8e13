"""What tracking tells of deliveries: each end belongs to the delivery that it ended."""

import msgspec
import pytest
import trio

from hermes_actors.consumer.delivery.tracked import TrackedDeliveries
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.metadata.seek import Seek, SeekBody
from hermes_actors.model.subscription import TrackingMode
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import EventKind, terminal_of

OK, REFUSED = SendOutcome(200), SendOutcome(400)


@pytest.fixture
def buffer(world):
    buffer = TrackingBuffer("dc1", "one", "boot", events_max=10_000)
    world.parts = msgspec.structs.replace(
        world.parts, listeners=lambda live: [TrackedDeliveries(buffer, live, "dc1", world.clock)]
    )
    return buffer


async def test_an_answer_from_before_a_retransmission_belongs_to_the_delivery_before_it(
    world, buffer, autojump_clock
):
    live = world.live(tracking_mode=TrackingMode.ALL)
    answers = iter([(0.5, OK), REFUSED])
    world.sender.script = lambda _push: next(answers)
    await world.publish(b"m")
    async with world.consuming(live) as consumer:
        # The first push is under way.
        await trio.sleep(0.1)
        seek = Seek(100, SeekBody(7, 0, {"dc1": {0: 0}}, None))
        consumer.ref.tell(msgspec.structs.replace(live, seek=seek, stamp=2))
        await trio.sleep(5)
    ends = terminal_of(buffer.next_batch().events)
    assert {key[2]: event.kind for key, event in ends.items()} == {
        0: EventKind.DELIVERED,
        100: EventKind.DISCARDED,
    }
