"""Events of pull subscriptions and their clients."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HandedOut:
    """That life of a node handed a message of a pull subscription to a client, until `until_s`.
    `place` is partition and offset; `key` is an empty string if the subscription is not ordered.
    """

    life: str
    subscription: str
    place: tuple[int, int]
    epoch: int
    ack_id: str
    key: str
    until_s: float
    at_s: float


@dataclass(frozen=True)
class LetGo:
    """A client is about to acknowledge a message, to give it back, or to replace its deadline."""

    ack_id: str


@dataclass(frozen=True)
class Acknowledged:
    """An owner has answered a client's acknowledgement. `epoch` is that of the ack id."""

    dc: str
    subscription: str
    partition: int
    epoch: int
    ack_id: str
    is_taken: bool
