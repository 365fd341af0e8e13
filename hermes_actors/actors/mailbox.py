"""A bounded mailbox: many Refs send, one Inbox reads, and a full one says so.

Data flows from left to right: Ref → mailbox → Inbox. Every operation that does not wait is safe to
call from the asyncio side in guest mode too, because both loops share one thread.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

M = TypeVar("M")


class MailboxFull(Exception):
    """The mailbox holds as many messages as it may: back-pressure, not loss. Nothing was added."""


class MailboxClosed(Exception):
    """The actor behind this mailbox has been stopped for good. Nothing was added."""


class _Mailbox(Generic[M]):
    """The queue that a Ref and an Inbox share."""

    __slots__ = ("capacity", "closed", "items", "readers")

    def __init__(self, capacity: int) -> None:
        assert capacity > 0, "a mailbox holds at least one message"
        self.items: deque[M] = deque()
        self.capacity = capacity
        self.closed = False
        self.readers = trio.lowlevel.ParkingLot()

    def put_nowait(self, message: M) -> None:
        if self.closed:
            raise MailboxClosed
        if len(self.items) >= self.capacity:
            raise MailboxFull
        self.items.append(message)
        if self.readers:
            self.readers.unpark()

    def close(self) -> None:
        self.closed = True
        self.readers.unpark_all()


class Ref(Generic[M]):
    """The sending end of a mailbox. Cheap to copy and to keep; never leaves the process."""

    __slots__ = ("_mailbox",)

    def __init__(self, mailbox: _Mailbox[M]) -> None:
        self._mailbox = mailbox

    def tell(self, message: M) -> None:
        """Add the message without waiting. Raises MailboxFull or MailboxClosed."""
        self._mailbox.put_nowait(message)

    @property
    def is_open(self) -> bool:
        """False once the actor has been stopped for good."""
        return not self._mailbox.closed

    def statistics(self) -> tuple[int, int]:
        """(messages waiting, capacity)."""
        return len(self._mailbox.items), self._mailbox.capacity


class Inbox(Generic[M]):
    """The reading end of an actor's mailbox. `async for message in inbox` ends when the actor is
    asked to stop.

    Messages that wait survive a restart of the actor; the actor's state does not.
    """

    __slots__ = ("_mailbox",)

    def __init__(self, mailbox: _Mailbox[M]) -> None:
        self._mailbox = mailbox

    def __aiter__(self) -> "Inbox[M]":
        return self

    async def __anext__(self) -> M:
        if not await self.wait():
            raise StopAsyncIteration
        return self.receive_nowait(1)[0]

    async def wait(self) -> bool:
        """Wait until a message is there (True) or the actor is asked to stop (False).

        What waits when the stop comes is still handed out first. One task waits at a time: a
        message wakes one, and a second one would take the first one's wake-up.
        """
        # Parking is a checkpoint too; a second one would cost a turn of the loop for each message.
        if self._mailbox.items or self._mailbox.closed:
            await trio.lowlevel.checkpoint()
        while not self._mailbox.items:
            if self._mailbox.closed:
                return False
            # Who was woken in vain and cancelled meanwhile does not count as a second one.
            await trio.lowlevel.checkpoint_if_cancelled()
            assert not self._mailbox.readers, "an inbox has one reader"
            await self._mailbox.readers.park()
        return True

    def receive_nowait(self, count_max: int) -> list[M]:
        """Take up to `count_max` of the messages that wait, oldest first; perhaps none."""
        items = self._mailbox.items
        count = min(count_max, len(items))
        return [items.popleft() for _ in range(count)]

    def drop_while(self, is_dropped: Callable[[M], bool]) -> None:
        """Drop the oldest messages, up to the first for which this does not hold."""
        items = self._mailbox.items
        while items and is_dropped(items[0]):
            items.popleft()

    @property
    def is_closed(self) -> bool:
        """True once the actor is asked to stop; messages may still wait."""
        return self._mailbox.closed

    def close(self) -> None:
        """Accept no more messages; the reader ends once it has read the waiting ones."""
        self._mailbox.close()


def open_mailbox(capacity: int) -> tuple[Ref[M], Inbox[M]]:
    """A mailbox for up to `capacity` waiting messages, as its two ends."""
    mailbox: _Mailbox[M] = _Mailbox(capacity)
    return Ref(mailbox), Inbox(mailbox)
