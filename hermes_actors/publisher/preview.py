"""The first messages of each topic in each interval, for people who look at it. Pure, bounded."""

from hermes_actors.config import PreviewConfig
from hermes_actors.model.message import Envelope, Message, to_record
from hermes_actors.status.previews import Preview


class Previews:
    """Gathers until it is asked; what comes above its bounds is left out and counted.

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
