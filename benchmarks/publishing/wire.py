"""The seam between a load and the protocol of its connections."""

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Protocol


class Sink(Protocol):
    """The load, as its connections see it."""

    def answered(self, due_s: float, good: int, bad: Counter[str]) -> None:
        """Messages that were due then are acknowledged, or refused with these statuses."""

    def ready(self, connection: "Connection") -> None:
        """The connection can take one more request now."""

    def lost(self, connection: "Connection") -> None:
        """The connection has gone; its requests under way were told as refused."""


class Connection(asyncio.Protocol):
    """Sends requests and tells the sink how they went.

    A request is one message, or for a batch one chunk of messages: `messages_each` of them.
    """

    messages_each = 1

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.transport: Any = None

    @staticmethod
    def requests(bodies: Sequence[bytes], chunk: int, /) -> list[bytes]:
        """Return the requests that `send` takes, made once for a run."""
        raise NotImplementedError

    def send(self, request: bytes, due_s: float) -> None:
        """Send a request that was due then; only after `sink.ready`, once for each."""
        raise NotImplementedError

    def under_way(self) -> list[tuple[float, int]]:
        """Return and forget the unanswered requests: when each was due, and its messages."""
        raise NotImplementedError

    def connection_made(self, transport: Any) -> None:
        """The connection is open."""
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is closed, by whichever side."""
        self.failed("connection lost")
        self.sink.lost(self)

    def failed(self, cause: str) -> None:
        """Nothing that is under way will be answered."""
        for due_s, count in self.under_way():
            self.sink.answered(due_s, 0, Counter({cause: count}))


def bad_status(status: int) -> Counter[str]:
    """Count one message as refused with this status."""
    return Counter({str(status): 1})


class Outstanding:
    """Counts of messages with the time they were due, first in first out."""

    def __init__(self) -> None:
        self._groups: deque[tuple[float, int]] = deque()

    def add(self, due_s: float, count: int) -> None:
        """As many more, due then."""
        self._groups.append((due_s, count))

    def take(self, count: int) -> tuple[float, int, bool]:
        """Up to `count` of the oldest group: when due, how many, and whether it is used up."""
        due_s, held = self._groups.popleft()
        taken = min(held, count)
        if taken < held:
            self._groups.appendleft((due_s, held - taken))
        return due_s, taken, taken == held

    def take_all(self) -> list[tuple[float, int]]:
        """All groups; none is left."""
        groups = list(self._groups)
        self._groups.clear()
        return groups
