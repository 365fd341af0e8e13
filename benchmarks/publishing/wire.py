"""The seam between a load and its connections' protocol."""

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
        """The connection was lost; its requests under way were already reported as refused."""


class Connection(asyncio.Protocol):
    """Sends requests and reports the results to the sink.

    A request is one message or, for batches, a chunk of `messages_each` messages.
    """

    messages_each = 1

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.transport: Any = None

    @staticmethod
    def requests(bodies: Sequence[bytes], chunk: int, /) -> list[bytes]:
        """The requests that `send` takes, built once for a run."""
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
        """Report the requests under way as lost."""
        self.failed("connection lost")
        self.sink.lost(self)

    def failed(self, cause: str) -> None:
        """Report everything under way as refused for this cause."""
        for due_s, count in self.under_way():
            self.sink.answered(due_s, 0, Counter({cause: count}))


def bad_status(status: int) -> Counter[str]:
    """Count one message as refused with this status."""
    return Counter({str(status): 1})


class Outstanding:
    """Counts of messages with the time they were due, first in, first out."""

    def __init__(self) -> None:
        self._groups: deque[tuple[float, int]] = deque()

    def add(self, due_s: float, count: int) -> None:
        """Add messages that were due then."""
        self._groups.append((due_s, count))

    def take(self, count: int) -> tuple[float, int, bool]:
        """Take up to `count` of the oldest group: when due, how many, and whether it is used up."""
        due_s, held = self._groups.popleft()
        taken = min(held, count)
        if taken < held:
            self._groups.appendleft((due_s, held - taken))
        return due_s, taken, taken == held

    def take_all(self) -> list[tuple[float, int]]:
        """Take all groups."""
        groups = list(self._groups)
        self._groups.clear()
        return groups
