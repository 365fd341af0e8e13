"""Messages that owners and administrators publish from the console or by GraphQL."""

import re
from collections.abc import Awaitable, Callable, Sequence

from hermes_actors.errors import Refused, Unavailable
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.topics import Topics
from hermes_actors.security.account import Credentials

Publish = Callable[[str, Sequence[tuple[str, str]], bytes, Credentials], Awaitable[tuple[str, int]]]

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x1f\x7f]*")


class PublishTrials:
    """Publishes test messages by `publish`; None on a node that does not publish."""

    def __init__(self, topics: Topics, publish: Publish | None) -> None:
        self._topics = topics
        self._publish = publish

    def is_possible(self) -> bool:
        """True if this node publishes."""
        return self._publish is not None

    async def make(
        self,
        caller: Caller,
        topic: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        credentials: Credentials,
    ) -> tuple[str, int]:
        """Publish a message, with all checks of publishers' messages. Returns its id, and 201 if a
        log has it or 202 if only this node's disk does.

        A trio coroutine. Raises HermesError.
        """
        self._topics.owned(caller, topic, "publish a test message to topic")
        for name, value in headers:
            # A line break would let a value add headers to pushes.
            if not _HEADER.fullmatch(f"{name}:{value}"):
                raise Refused(f"Message.headers: '{name[:100]}' or its value is not a header")
        if self._publish is None:
            raise Unavailable("This node does not publish; ask one with the role frontend")
        return await self._publish(topic, headers, body, credentials)
