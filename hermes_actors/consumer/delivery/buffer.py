"""The seam to the messages of one consumer that are read and not settled."""

from typing import Protocol

from hermes_actors.consumer.delivery.delivery import Delivery


class Buffer(Protocol):
    """All messages of one consumer that are read and not settled."""

    @property
    def buffered_bytes(self) -> int:
        """The bytes of all of them together."""

    @property
    def inflight(self) -> int:
        """How many messages are in flight."""

    @property
    def buried(self) -> int:
        """How many messages are given up, while their dead letters are on their way."""

    @property
    def waiting_max(self) -> int:
        """How many messages may wait, or come to wait, for their next attempt."""

    @property
    def fresh(self) -> int:
        """How many messages have been read and not been taken up."""

    @property
    def waiting(self) -> int:
        """How many messages wait for their next attempt."""

    @property
    def parked(self) -> int:
        """How many messages wait for an earlier one of their key."""

    @property
    def is_waiting_full(self) -> bool:
        """True when no fresh message may be taken up: it could have nowhere to wait."""

    def add(self, delivery: Delivery) -> None:
        """Take in a message that has been read."""

    def drop_superseded(self) -> None:
        """Forget what waits of partitions that a retransmission has taken elsewhere."""

    def bury_read(self, delivery: Delivery) -> None:
        """Give up a message that has been read and not been added; `forget` follows."""

    def forget(self, delivery: Delivery) -> None:
        """Drop a message that was given up and needs nothing more."""

    def clear(self) -> None:
        """Forget all messages: the consumer has ended, and who still shows it shows nothing."""
