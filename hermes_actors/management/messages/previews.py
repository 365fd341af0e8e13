"""Previews of a topic: its newest messages in this datacentre's log, in Hermes' envelope."""

from typing import Any

import msgspec
from msgspec.structs import replace

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.log.base import LATEST, Log, UnknownTopic
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.bodies.views import body_fields
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.management.messages.newest import newest
from hermes_actors.model.message import UndecodableRecord, enveloped, from_record
from hermes_actors.model.record import StoredRecord
from hermes_actors.schema.reading import AvroReader

PREVIEWS_MAX = 10
PREVIEW_BYTES_MAX = 10_240


class MessagePreviews:
    """Previews for owners and administrators. Methods are trio coroutines."""

    def __init__(self, topics: Topics, log: Log, reader: AvroReader) -> None:
        self._topics = topics
        self._log = log
        self._reader = reader

    async def of_topic(self, caller: Caller, topic: str) -> list[dict[str, Any]]:
        """The newest messages as text. Bytes that are not UTF-8 become U+FFFD.

        Raises Refused and Unavailable.
        """
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

    async def _contents(self, caller: Caller, topic: str) -> list[bytes]:
        live = self._topics.owned(caller, topic, "see messages of topic")
        try:
            ends = await self._log.positions(live.log_topic, LATEST)
            records = await newest(self._log, live.log_topic, ends, PREVIEWS_MAX)
        except UnknownTopic:
            return []
        return [await self._content(topic, each) for each in records]

    async def _content(self, topic: str, record: StoredRecord) -> bytes:
        try:
            message = from_record(record)
        except UndecodableRecord:
            return record.value
        if message.written_with is not None:
            shown = await self._reader.shown(topic, message)
            body = shown.json
            if shown.problem:
                body = msgspec.json.encode(body_fields("body", message.body, shown))
            message = replace(message, body=body, written_with=None)
        return enveloped(message)


def _text(content: bytes) -> str:
    text = content[:PREVIEW_BYTES_MAX].decode("utf-8", "replace")
    # A character that was cut in two is left out.
    return text.rstrip("\ufffd") if len(content) > PREVIEW_BYTES_MAX else text
