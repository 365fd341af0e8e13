"""The lease of a node: it is open only while no other node can own what this node owns."""

from collections import deque

import trio

from hermes_actors.coordination.values import FENCE_S
from hermes_actors.runtime.clock import Clock

_SENT_MAX = 32
"""Heartbeats remembered until they are read back; with one in flight there are rarely two."""


class Lease:
    """The lease of one life of a node. Check `is_open` immediately before each act.

    It opens when one of the node's own heartbeats is read from the log while the node is a member,
    and closes FENCE_S after that heartbeat was *sent*, by a clock that also runs while the machine
    sleeps. It may open again, but never after it is lost.
    """

    __slots__ = (
        "_fence_s",
        "_is_lost",
        "_now_s",
        "_opened",
        "_sent",
        "_until_s",
        "_was_lost",
        "boot",
    )

    def __init__(self, boot: str, clock: Clock, fence_s: float = FENCE_S) -> None:
        self.boot = boot
        self._now_s = clock.boottime_s
        self._fence_s = fence_s
        self._until_s = float("-inf")
        # Recent heartbeats: number and time of sending.
        self._sent: deque[tuple[int, float]] = deque(maxlen=_SENT_MAX)
        self._opened = trio.Event()
        self._is_lost = False
        self._was_lost = trio.Event()

    def is_open(self) -> bool:
        """True while the node may act."""
        return self._now_s() < self._until_s

    @property
    def is_lost(self) -> bool:
        """True if it can never open again: it expired, the node left, or the log was replaced."""
        return self._is_lost

    @property
    def left_s(self) -> float:
        """How long it stays open without another heartbeat, in seconds; 0 if it is closed."""
        return max(0.0, self._until_s - self._now_s())

    async def wait_opened(self) -> None:
        """Wait until the lease is open. Never returns once it is lost."""
        await trio.lowlevel.checkpoint()
        while not self.is_open():
            if not self._is_lost and self._opened.is_set():
                # It has closed since, by the clock alone, which wakes no task.
                self._opened = trio.Event()
            await self._opened.wait()

    async def wait_lost(self) -> None:
        """Wait until the lease is lost."""
        await self._was_lost.wait()

    def lose(self) -> None:
        """Close the lease permanently. Tasks in `wait_opened` keep waiting."""
        self._is_lost = True
        self._until_s = float("-inf")
        self._sent.clear()
        if self._opened.is_set():
            self._opened = trio.Event()
        self._was_lost.set()

    # For the sender and the reader of heartbeats.

    def sending(self, number: int) -> None:
        """Record the time at which a heartbeat is sent; call it before sending."""
        self._sent.append((number, self._now_s()))

    def folded(self, number: int) -> None:
        """Record that a heartbeat was read from the log while its sender was a member."""
        if self._is_lost:
            return
        while self._sent and self._sent[0][0] <= number:
            sent, sent_s = self._sent.popleft()
            if sent == number:
                self._until_s = max(self._until_s, sent_s + self._fence_s)
        if self.is_open():
            self._opened.set()
