"""The previews of a topic's messages, of all datacentres, for those who may read them."""

from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.status.previews import Preview, PreviewRegister


class MessagePreviews:
    """The previews in the register, by topic.

    Methods are trio coroutines; the caller comes first.
    """

    def __init__(self, topics: Topics, register: PreviewRegister | None) -> None:
        """Without a register nobody gathers previews, and there are none."""
        self._topics = topics
        self._register = register

    async def of_topic(self, caller: Caller, topic: str) -> list[dict[str, Any]]:
        """All of them as JSON; bytes that are no UTF-8 are shown as U+FFFD. Raises Refused."""
        return [
            {"content": _text(preview), "truncated": preview.is_truncated}
            for preview in self._find(caller, topic)
        ]

    async def one(self, caller: Caller, topic: str, index: int) -> bytes:
        """The bytes of one of them, counted from 0. Raises Refused, 404 when there is none."""
        previews = self._find(caller, topic)
        if not 0 <= index < len(previews):
            raise Refused(
                f"Topic {topic} has {len(previews)} previews, none with index {index}",
                ErrorCode.OTHER,
                404,
            )
        return previews[index].content

    def _find(self, caller: Caller, topic: str) -> list[Preview]:
        live = self._topics.owned(caller, topic, "see messages of topic")
        return [] if self._register is None else self._register.of_topic(live.log_topic)


def _text(preview: Preview) -> str:
    text = preview.content.decode("utf-8", "replace")
    # A character that was cut in two is not shown.
    return text.rstrip("\ufffd") if preview.is_truncated else text
