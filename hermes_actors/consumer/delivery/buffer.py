"""The messages of one consumer that are read and not settled, as all who hand them on see them."""

from abc import ABC, abstractmethod

from hermes_actors.consumer.delivery.delivery import Delivery


class Buffer(ABC):
    """All messages of one consumer that are read and not settled. `buffered_bytes` are those of all
    together, `buried` counts what is given up while its dead letter is on its way, and at most
    `waiting_max` may wait, or come to wait, for their next attempt.
    """

    __slots__ = ("buffered_bytes", "buried", "waiting_max")

    def __init__(self, waiting_max: int) -> None:
        self.waiting_max = waiting_max
        self.buffered_bytes = self.buried = 0

    @property
    @abstractmethod
    def inflight(self) -> int:
        """How many messages are in flight."""

    @property
    @abstractmethod
    def fresh(self) -> int:
        """How many messages have been read and not been taken up."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many messages wait for their next attempt."""

    @property
    def parked(self) -> int:
        """How many messages wait for an earlier one of their key."""
        return 0

    @property
    def is_waiting_full(self) -> bool:
        """True when no fresh message may be taken up: it could have nowhere to wait."""
        return False

    @abstractmethod
    def add(self, delivery: Delivery) -> None:
        """Take in a message that has been read."""

    @abstractmethod
    def drop_superseded(self) -> None:
        """Forget what waits of partitions that a retransmission has taken elsewhere."""

    def bury_read(self, delivery: Delivery) -> None:
        """Give up a message that has been read and not been added; `forget` follows."""
        self.buffered_bytes += delivery.size_bytes
        delivery.given_up()
        self.buried += 1

    def forget(self, delivery: Delivery) -> None:
        """Drop a message that was given up and needs nothing more."""
        self.buried -= 1
        self._drop(delivery)

    def _drop(self, delivery: Delivery) -> None:
        """Free what a message holds that needs nothing more."""
        self.buffered_bytes -= delivery.size_bytes

    @abstractmethod
    def clear(self) -> None:
        """Forget all messages: the consumer has ended, and who still shows it shows nothing."""
