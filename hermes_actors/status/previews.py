"""Previews of messages: as a node gathers them and tells them, and the register of all."""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes_actors.config import PreviewConfig
from hermes_actors.log.base import TopicSettings
from hermes_actors.model.message import Envelope, Message, to_record

PREVIEW_TOPIC = "_hermes.previews"

RECORD_BYTES_MAX = 1_048_576
"""The most that one topic's previews of one interval take in the log."""

RETENTION_MS = 86_400_000

SETTINGS = TopicSettings(
    partitions=1,
    retention_ms=RETENTION_MS,
    record_bytes_max=RECORD_BYTES_MAX + 16_384,
    log_append_time=True,
)

REGISTER_BYTES_MAX = 33_554_432
"""The most that the register holds; the topics that were published to longest ago make room."""


class Preview(Struct, frozen=True, array_like=True, gc=False):
    """The beginning of one message's JSON envelope; of another form it may be any bytes."""

    content: bytes
    is_truncated: bool = False


class Previews:
    """The first messages of each topic in an interval, as a node gathers them until it is asked;
    what comes above its bounds is left out and counted.

    Topics are called as their log topics, so that a topic that is deleted and created again does
    not show its predecessor's messages.
    """

    def __init__(self, config: PreviewConfig) -> None:
        self._messages_max = config.messages_max
        self._message_bytes_max = config.message_bytes_max
        self._total_bytes_max = config.total_bytes_max
        self._by_topic: dict[str, list[Preview]] = {}
        self._total_bytes = 0
        self.left_out = 0

    def wants(self, topic: str) -> bool:
        """Whether another message of the topic is wanted in this interval."""
        found = self._by_topic.get(topic)
        return found is None or len(found) < self._messages_max

    def add(self, topic: str, message: Message) -> None:
        """Keep what people are shown of a wanted message: its JSON envelope, cut if it is long."""
        limit = self._message_bytes_max
        # No more of a large body is copied than may be shown.
        whole = len(message.body)
        body = message.body[: limit + 1]
        if len(body) < whole:
            message = Message(
                id=message.id,
                body=body,
                published_at_ms=message.published_at_ms,
                propagated=message.propagated,
            )
        content = to_record(message, Envelope.HERMES).value
        is_truncated = len(content) > limit
        content = content[:limit]
        if self._total_bytes + len(content) > self._total_bytes_max:
            self.left_out += 1
            return
        self._total_bytes += len(content)
        self._by_topic.setdefault(topic, []).append(Preview(content, is_truncated))

    def take_all(self) -> dict[str, tuple[Preview, ...]]:
        """All that was gathered, by log topic; the next interval begins."""
        gathered, self._by_topic, self._total_bytes = self._by_topic, {}, 0
        return {topic: tuple(previews) for topic, previews in gathered.items()}


class PreviewRecord(Struct, frozen=True):
    """The previews that one node gathered of one life of a topic in one interval; `topic` is its
    log topic.
    """

    node: str
    dc: str
    topic: str
    previews: tuple[Preview, ...]


class UndecodablePreview(Exception):
    """The bytes are no previews that this version can read."""


_decoder = msgspec.msgpack.Decoder(PreviewRecord)


def encode(record: PreviewRecord) -> bytes:
    """The bytes of a record."""
    return msgspec.msgpack.encode(record)


def decode(value: bytes) -> PreviewRecord:
    """Read a record. Raises UndecodablePreview."""
    try:
        return _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UndecodablePreview(str(error)) from error


class PreviewRegister:
    """The newest previews of each topic from each node. At most `bytes_max` in all."""

    def __init__(self, bytes_max: int = REGISTER_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held_bytes = 0
        self._newest: OrderedDict[tuple[str, str, str], Sequence[Preview]] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """The bytes that all previews take now."""
        return self._held_bytes

    def take(self, record: PreviewRecord) -> None:
        """Keep a node's previews of a topic in the place of its earlier ones."""
        name = (record.topic, record.dc, record.node)
        earlier = self._newest.pop(name, None)
        if earlier is not None:
            self._held_bytes -= _size_bytes(earlier)
        self._newest[name] = record.previews
        self._held_bytes += _size_bytes(record.previews)
        while self._held_bytes > self._bytes_max:
            _, previews = self._newest.popitem(last=False)
            self._held_bytes -= _size_bytes(previews)

    def of_topic(self, topic: str) -> list[Preview]:
        """All previews of a topic, named by its log topic: the nodes sorted by datacentre and name,
        each in its order.
        """
        names = sorted(name for name in self._newest if name[0] == topic)
        return [preview for name in names for preview in self._newest[name]]


def _size_bytes(previews: Sequence[Preview]) -> int:
    # Some for the entry itself, so that many empty ones are bounded too.
    return sum(len(preview.content) + 200 for preview in previews) + 200
