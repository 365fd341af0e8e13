"""A bounded mailbox: many Refs send to it, one Inbox reads it, and a full one refuses messages.

Data flows from left to right: Ref → mailbox → Inbox. Operations that do not wait may be called from
the asyncio loop too, because both loops share one thread.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

M = TypeVar("M")


class MailboxFull(Exception):
    """The mailbox is full (back-pressure). The message was not added."""


class MailboxClosed(Exception):
    """The actor of this mailbox is stopping or has ended. The message was not added."""


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
    """The sending end of a mailbox. Cheap to copy and keep, valid in this process only."""

    __slots__ = ("_mailbox",)

    def __init__(self, mailbox: _Mailbox[M]) -> None:
        self._mailbox = mailbox

    def tell(self, message: M) -> None:
        """Add the message without waiting. Raises MailboxFull or MailboxClosed."""
        self._mailbox.put_nowait(message)

    @property
    def is_open(self) -> bool:
        """False once the actor is asked to stop or has ended."""
        return not self._mailbox.closed

    def statistics(self) -> tuple[int, int]:
        """(number of queued messages, capacity)."""
        return len(self._mailbox.items), self._mailbox.capacity


class Inbox(Generic[M]):
    """The reading end of an actor's mailbox. After a request to stop, `async for message in inbox`
    ends once the queued messages have been read.

    Queued messages survive a restart of the actor, its state does not.
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
        """Wait until there is a message (True), or until the actor is asked to stop and the mailbox
        is empty (False).

        Only one task may wait at a time, because a message wakes only one.
        """
        # Parking is a checkpoint too. A second one would cost a turn of the loop per message.
        if self._mailbox.items or self._mailbox.closed:
            await trio.lowlevel.checkpoint()
        while not self._mailbox.items:
            if self._mailbox.closed:
                return False
            # A task that was woken without a message may be cancelled: not a second reader then.
            await trio.lowlevel.checkpoint_if_cancelled()
            assert not self._mailbox.readers, "an inbox has one reader"
            await self._mailbox.readers.park()
        return True

    def receive_nowait(self, count_max: int) -> list[M]:
        """Take up to `count_max` of the queued messages, oldest first. Empty if there are none."""
        items = self._mailbox.items
        count = min(count_max, len(items))
        return [items.popleft() for _ in range(count)]

    def drop_while(self, is_dropped: Callable[[M], bool]) -> None:
        """Drop the oldest messages, up to the first for which `is_dropped` is false."""
        items = self._mailbox.items
        while items and is_dropped(items[0]):
            items.popleft()

    @property
    def is_closed(self) -> bool:
        """True once the actor is asked to stop. Messages may still be queued."""
        return self._mailbox.closed

    def close(self) -> None:
        """Accept no more messages. The reader ends once it has read the queued ones."""
        self._mailbox.close()


def open_mailbox(capacity: int) -> tuple[Ref[M], Inbox[M]]:
    """Create a mailbox for up to `capacity` messages, and return both its ends."""
    mailbox: _Mailbox[M] = _Mailbox(capacity)
    return Ref(mailbox), Inbox(mailbox)
