"""The lease is looked at before each push, also after what was no push."""

import trio

from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.coordination.owned import Owned
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from tests.consumer.hand_lease import HandLease


async def test_a_process_that_was_stopped_while_it_gave_a_message_up_begins_no_push(
    world, monkeypatch, autojump_clock
):
    lease, add = HandLease(), KeptDeadLetters.add

    def add_and_stop(self, letter, kept):
        lease.is_closed = True
        add(self, letter, kept)

    monkeypatch.setattr(KeptDeadLetters, "add", add_and_stop)
    unreadable = Record(None, b'{"_w":true,"metadata":', (), world.clock.now_ms())
    await world.log.append(world.topic, 0, [unreadable], Ack.LEADER)
    await world.publish(b"0")
    async with world.consuming(owned=Owned(lease=lease)):
        await trio.sleep(5)
        assert world.sender.bodies == []
        lease.open()
        await trio.sleep(1)
        assert world.sender.bodies == [b"0"]
