"""Previews of a topic: its newest messages, and any message by its place in a log."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.log.base import EARLIEST, LATEST, Log, UnknownTopic
from hermes_actors.log.ranges import read_one
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.views import body_fields
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.messages.newest import TIMEOUT_S, newest
from hermes_actors.management.messages.tail import message_view
from hermes_actors.management.offsets.asking import Answers, Logs
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.model.message import UndecodableRecord, enveloped, from_record, is_avro
from hermes_actors.model.record import StoredRecord
from hermes_actors.schema.reading import AvroReader, ShownBody

PREVIEWS_MAX = 10
PREVIEW_BYTES_MAX = 10_240

_SEE = "see messages of topic"

T = TypeVar("T")


class MessagePreviews:
    """Previews for owners and administrators; without a cluster of datacentre `dc`. Methods are
    trio coroutines. They raise Refused and Unavailable.
    """

    def __init__(self, topics: Topics, logs: Logs, dc: str, reader: AvroReader) -> None:
        self._topics = topics
        self._logs = logs
        self._dc = dc
        self._reader = reader

    def datacenters(self) -> list[str]:
        """The datacentres whose logs can be read, sorted."""
        return self._logs.datacenters

    async def of_topic(self, caller: Caller, topic: str) -> list[dict[str, Any]]:
        """The newest messages as text. Bytes that are not UTF-8 become U+FFFD."""
        return [
            {"content": _text(each), "truncated": len(each) > PREVIEW_BYTES_MAX}
            for each in await self._contents(caller, topic)
        ]

    async def one(self, caller: Caller, topic: str, index: int) -> bytes:
        """The bytes of one preview, counted from 0. Raises Refused, 404 if it does not exist."""
        contents = await self._contents(caller, topic)
        if not 0 <= index < len(contents):
            raise Refused(
                f"Topic {topic} has {len(contents)} previews, none with index {index}",
                ErrorCode.OTHER,
                404,
            )
        return contents[index][:PREVIEW_BYTES_MAX]

    async def at(
        self, caller: Caller, topic: str, cluster: str, partition: int, offset: int
    ) -> dict[str, Any]:
        """One message: a line of a tail, and `content`, the whole message in Hermes' envelope.

        Raises Refused with 404 if the log of this cluster or datacentre does not hold it.
        """
        live = self._topics.owned(caller, topic, _SEE)
        record = await self._ask(
            self._logs.datacenter(cluster),
            lambda log: read_one(log, live.log_topic, partition, offset),
        )
        if record is None:
            raise Refused(
                f"Message not found for brokers cluster {cluster}, topic {topic}, partition "
                f"{partition} and offset {offset}",
                ErrorCode.OTHER,
                404,
            )
        return await self._view(topic, record)

    async def newest(
        self,
        caller: Caller,
        topic: str,
        count: int,
        cluster: str = "",
        partition: int | None = None,
    ) -> list[dict[str, Any]]:
        """The newest messages of one partition or of all, oldest first, each as from `at`."""
        live = self._topics.owned(caller, topic, _SEE)
        dc = self._logs.datacenter(cluster or self._dc)
        records = await self._newest(live, dc, count, partition)
        return [await self._view(topic, each) for each in records]

    async def partitions(self, topic: str) -> Answers[dict[int, tuple[int, int]]]:
        """The first and the next offset of each partition, by datacentre. Raises Refused."""
        log_topic = self._topics.live(topic).log_topic

        async def question(log: Log) -> dict[int, tuple[int, int]]:
            firsts = await log.positions(log_topic, EARLIEST)
            ends = await log.positions(log_topic, LATEST)
            return {each: (firsts.get(each, 0), ends[each]) for each in sorted(ends)}

        return await self._logs.ask(question)

    async def _contents(self, caller: Caller, topic: str) -> list[bytes]:
        live = self._topics.owned(caller, topic, _SEE)
        records = await self._newest(live, self._dc, PREVIEWS_MAX)
        return [_content(each, await self._shown(topic, each)) for each in records]

    async def _newest(
        self, live: LiveTopic, dc: str, most: int, partition: int | None = None
    ) -> list[StoredRecord]:
        async def question(log: Log) -> list[StoredRecord]:
            try:
                ends = await log.positions(live.log_topic, LATEST)
                wanted = {each: ends[each] for each in ends if partition in (None, each)}
                return await newest(log, live.log_topic, wanted, most)
            except UnknownTopic:
                return []

        return await self._ask(dc, question)

    async def _ask(self, dc: str, question: Callable[[Log], Awaitable[T]]) -> T:
        return (await self._logs.ask(question, [dc], TIMEOUT_S)).whole()[dc]

    async def _view(self, topic: str, record: StoredRecord) -> dict[str, Any]:
        shown = await self._shown(topic, record)
        content = _content(record, shown).decode("utf-8", "replace")
        return {**message_view(record, shown), "content": content}

    async def _shown(self, topic: str, record: StoredRecord) -> ShownBody | None:
        """The decoded Avro; None for other messages."""
        await trio.lowlevel.checkpoint()
        with suppress(UndecodableRecord):
            return await self._reader.shown(topic, from_record(record)) if is_avro(record) else None
        return None


def _content(record: StoredRecord, shown: ShownBody | None) -> bytes:
    """The message in Hermes' envelope; the record's value if it is no message."""
    try:
        message = from_record(record)
    except UndecodableRecord:
        return record.value
    if shown is not None:
        body = shown.json
        if shown.problem:
            body = msgspec.json.encode(body_fields("body", message.body, shown))
        message = replace(message, body=body, written_with=None)
    return enveloped(message)


def _text(content: bytes) -> str:
    text = content[:PREVIEW_BYTES_MAX].decode("utf-8", "replace")
    # A character that was cut in two is left out.
    return text.rstrip("\ufffd") if len(content) > PREVIEW_BYTES_MAX else text
