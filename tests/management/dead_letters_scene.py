"""Writes dead letters into the logs of two datacentres."""

from hermes_actors.log.base import TopicSettings
from hermes_actors.metadata.redrives import redrive_of
from hermes_actors.model.dead_letter import Letter, dlq_topic, letter_record, mark_record
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack

START_MS = 1_700_000_000_000
NAME = "shop.orders$billing"
PATH = "/topics/shop.orders/subscriptions/billing"
LETTERS = f"{PATH}/dead-letters"
TOPIC = dlq_topic("shop")
PARTITION = partition_of(NAME.encode(), 4)
GROUP = "shop_orders_billing.redrive"


class Desk:
    """The API with one subscription, and ways to write letters in both datacentres."""

    def __init__(self, api, remote):
        self.api = api
        self.logs = {"dc1": api.log, "dc2": remote}
        self.remote = remote

    @property
    def live(self):
        return self.api.metadata.catalog.subscriptions[NAME]

    @property
    def requested_at_ms(self):
        live = self.live
        return redrive_of(self.api.metadata.catalog, live.name, live.incarnation).requested_at_ms

    def letter(self, offset, dc="dc1", **fields):
        given = {
            "dc": dc,
            "subscription": NAME,
            "incarnation": self.live.incarnation,
            "log_topic": "shop.orders",
            "partition": 0,
            "offset": offset,
            "timestamp_ms": START_MS - 5_000,
            "key": b"key",
            "value": b'{"n":%d}' % offset,
            "headers": (("id", b"m-%d" % offset), ("h-Trace", b"\xff")),
            "message_id": f"m-{offset}",
            "reason": "client-error",
            "detail": "HTTP 400",
            "attempts": 3,
            "status": 400,
            "at_ms": START_MS + offset,
            **fields,
        }
        return Letter(**given)

    async def write(self, *entries, dc="dc1"):
        log = self.logs[dc]
        settings = TopicSettings(partitions=4, log_append_time=True)
        await log.topics.create(TOPIC, settings)
        for entry in entries:
            record = (
                entry
                if isinstance(entry, Record)
                else letter_record(entry)
                if isinstance(entry, Letter)
                else mark_record(NAME, entry)
            )
            self.api.clock.ms += 1
            await log.append(TOPIC, PARTITION, [record], Ack.ALL)

    async def ids(self, **parameters):
        answer = await self.api.get(LETTERS, params=parameters)
        assert answer.status_code == 200, answer.text
        return [each["messageId"] for each in answer.json()["deadLetters"]]

    def id(self, offset, dc="dc1"):
        return f"{dc}:{self.live.incarnation}:0:{offset}"
