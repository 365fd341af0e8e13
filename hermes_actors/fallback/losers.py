"""Appends whose messages another datacentre has acknowledged run on, and are never too many."""

from typing import Protocol

from hermes_actors.telemetry.metrics import Counter


class Losing(Protocol):
    """An append under way."""

    size_bytes: int

    def cancel(self) -> None:
        """Give it up: it may be stored, and nobody will know."""


class Losers:
    """At most `appends_max` appends of together `bytes_max` bytes; the oldest is given up first.

    They run on because a cancelled append costs a Kafka producer its identity, and because what
    becomes of them is worth knowing: a duplicate is counted, a log that comes back is noticed.
    """

    def __init__(self, appends_max: int, bytes_max: int, cancelled: Counter) -> None:
        self._appends_max = appends_max
        self._bytes_max = bytes_max
        self._cancelled = cancelled
        self._running: dict[Losing, None] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._running)

    @property
    def size_bytes(self) -> int:
        """What they hold together."""
        return self._size_bytes

    def adopt(self, append: Losing) -> None:
        """Nobody waits for this one any more."""
        self._running[append] = None
        self._size_bytes += append.size_bytes
        while self._running and (
            len(self._running) > self._appends_max or self._size_bytes > self._bytes_max
        ):
            oldest = next(iter(self._running))
            self.ended(oldest)
            self._cancelled.add()
            oldest.cancel()

    def ended(self, append: Losing) -> None:
        """It has ended, whether it was one of these or not."""
        if append in self._running:
            del self._running[append]
            self._size_bytes -= append.size_bytes
