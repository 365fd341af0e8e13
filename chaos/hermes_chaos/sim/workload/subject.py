"""The subject of a run, as its checkers know it beforehand: topics, and the messages owed to each
subscription.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hermes_actors.model.topic import Ack
from hermes_chaos.sim.history.events import serial_of

GONE = 410
"""The answer of an endpoint that is gone: its subscription is suspended."""


@dataclass(frozen=True)
class Audience:
    """One subscription as the checkers know it. `group` is its consumer group in the log.

    `is_late`: it is created during the run, and owed only what is acknowledged after that.
    `keeps_letters`: messages that it does not get are kept as dead letters, and settle only then.
    `wants_even`: its filter passes even serials only. `batch`: the maximum messages and bytes of
    one push. `recipients`: how many recipients get each message.
    """

    name: str
    topic: str
    group: str
    retries_client_errors: bool = False
    rate: int = 400
    inflight_max: int = 100
    backoff_ms: int = 100
    is_late: bool = False
    keeps_letters: bool = False
    wants_even: bool = False
    is_ordered: bool = False
    batch: tuple[int, int] | None = None
    recipients: int = 1
    attempts_max: int | None = None
    retry_on: tuple[int, ...] = ()
    discard_on: tuple[int, ...] = ()
    ttl_s: float = 3_600.0
    is_ttl_from_publication: bool = False

    def settles(self, status: int) -> bool:
        """True if an answer settles a message: delivered, or given up without a dead letter."""
        if 200 <= status < 300:
            return True
        return not self.keeps_letters and self.ends(status)

    def ends(self, status: int) -> bool:
        """True if the subscriber has refused a message for good."""
        if status in self.discard_on:
            return True
        if status in self.retry_on or (status == GONE and self.recipients == 1):
            return False
        return 400 <= status < 500 and not self.retries_client_errors

    def wants(self, body: bytes) -> bool:
        """True if its filters pass the message."""
        serial = serial_of(body)
        return not self.wants_even or serial is None or serial % 2 == 0


@dataclass(frozen=True)
class Subject:
    """The subject of a run: topics with their ack levels, and subscriptions.

    `falls_back` are the topics that may be published to another datacentre. `spooled` are those
    whose messages a node's disk keeps if no log takes them, as long as the disk works.
    """

    acks: Mapping[str, Ack]
    audiences: Sequence[Audience]
    falls_back: frozenset[str] = frozenset()
    spooled: frozenset[str] = frozenset()
    dcs: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[str, Audience]:
        """The subscriptions by their full names."""
        return {audience.name: audience for audience in self.audiences}
