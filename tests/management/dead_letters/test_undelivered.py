"""Undelivered messages, as in Hermes."""

from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.dead_letters.letters import Letters
from hermes_actors.management.dead_letters.undelivered import UndeliveredMessages
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.record import LastUndelivered
from tests.management.dead_letters_scene import LETTERS, PATH, START_MS


class Told:
    """What consumers have told of the last message that was given up."""

    def __init__(self, last):
        self._last = last

    def last_undelivered(self, _name):
        return self._last


async def test_the_last_undelivered_message_has_hermes_shape(desk):
    answer = await desk.api.get(f"{PATH}/undelivered/last")
    assert desk.api.refusal(answer) == (404, "OTHER")
    await desk.write(desk.letter(1), desk.letter(2))
    await desk.write(desk.letter(3, "dc2", reason="expired", detail="HTTP 503"), dc="dc2")
    assert (await desk.api.get(f"{PATH}/undelivered/last")).json() == {
        "timestamp": START_MS + 3,
        "subscription": "billing",
        "topicName": "shop.orders",
        "status": "DISCARDED",
        "reason": "expired: HTTP 503",
        "message": '{"n":3}',
        "partition": 0,
        "offset": 3,
        "cluster": "dc2",
    }


async def test_without_dead_letters_the_last_undelivered_message_is_what_consumers_tell(desk):
    original = Record(None, b"lost", (("id", b"m-0"), ("dc", b"dc1")), START_MS)
    await desk.api.log.append("shop.orders", 3, [original], Ack.ALL)
    letters = Letters(Logs(desk.logs.values()), desk.api.metadata.namespace)
    subscriptions = desk.api.administration.subscriptions
    last = LastUndelivered(START_MS + 9, 3, 0, "expired: HTTP 503")
    undelivered = UndeliveredMessages(
        desk.api.metadata, letters, subscriptions, Told(("dc1", last))
    )
    trace = await undelivered.last(Anonymous(), "shop.orders", "billing")
    assert (trace["message"], trace["reason"]) == ("lost", "expired: HTTP 503")
    assert (trace["partition"], trace["offset"], trace["cluster"]) == (3, 0, "dc1")
    await desk.write(desk.letter(1))
    assert (await undelivered.last(Anonymous(), "shop.orders", "billing"))["message"] == "lost"
    await desk.write(desk.letter(10))
    trace = await undelivered.last(Anonymous(), "shop.orders", "billing")
    assert trace["message"] == '{"n":10}'
    gone = Told(("dc3", last))
    undelivered = UndeliveredMessages(desk.api.metadata, letters, subscriptions, gone)
    await desk.api.post(f"{LETTERS}/expire", {"all": True})
    assert (await undelivered.last(Anonymous(), "shop.orders", "billing"))["message"] == ""


async def test_the_newest_hundred_undelivered_messages_are_listed(desk):
    await desk.write(*[desk.letter(n) for n in range(120)])
    traces = (await desk.api.get(f"{PATH}/undelivered")).json()
    assert [trace["offset"] for trace in traces] == list(range(119, 19, -1))
    assert traces[0]["messageId"] == "m-119"
