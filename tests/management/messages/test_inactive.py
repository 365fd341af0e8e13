"""Topics without a message for a long time, from the logs of two datacentres."""

from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.topic import Ack
from tests.management.callers import SALES

DAY_MS = 86_400_000
PATH = "/inactive-topics"


async def test_a_topic_is_inactive_if_no_datacentre_has_a_message_of_it_since(api):
    remote = MemoryLog("dc2", api.clock)
    api.administered_with(remote_logs=(remote,))
    start_ms = api.clock.ms
    for name in ("old", "empty", "busy", "remote"):
        await api.with_topic(f"shop.{name}")
        await remote.topics.create(f"shop.{name}", await api.log.topics.describe(f"shop.{name}"))

    async def publish(log, name, day):
        record = to_record(Message("m", b"1", start_ms + day * DAY_MS, dc=log.dc))
        await log.append(f"shop.{name}", 3, [record], Ack.LEADER)

    for log, name, day in (
        (api.log, "old", 1),
        (remote, "old", 2),
        (api.log, "busy", 50),
        (remote, "remote", 90),
    ):
        await publish(log, name, day)
    api.clock.ms = start_ms + 100 * DAY_MS
    await api.with_topic("shop.young")

    def entry(name, day):
        at = {"topic": name, "lastPublishedTsMs": start_ms + day * DAY_MS}
        return {**at, "notificationTsMs": [], "whitelisted": False}

    assert (await api.get(PATH)).json() == [entry("shop.empty", 0), entry("shop.old", 2)]
    found = (await api.get(f"{PATH}?days=20")).json()
    assert found == [entry("shop.busy", 50), entry("shop.empty", 0), entry("shop.old", 2)]
    assert api.refusal(await api.get(PATH, headers=SALES)) == (403, "OTHER")
    wrong = await api.get(f"{PATH}?days=0")
    assert api.message(wrong) == "days must be greater than or equal to 1"
    remote.faults.cut()
    answer = await api.get(PATH)
    assert api.refusal(answer) == (503, "OTHER")
    assert api.message(answer).startswith("dc2: its log")
