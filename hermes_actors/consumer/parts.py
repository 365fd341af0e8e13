"""What all consumers of a node share, and what may be asked of each."""

import random
from collections.abc import Callable

from msgspec import Struct

from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.measures import Undelivered
from hermes_actors.consumer.sender import Sender
from hermes_actors.log.base import Log
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.telemetry.metrics import Metrics


class ConsumerParts(Struct, frozen=True):
    """What all consumers of a node share."""

    log: Log
    sender_of: Callable[[LiveSubscription], Sender]
    clock: Clock
    rng: random.Random
    ids: IdSource
    metrics: Metrics
    config: ConsumersConfig
    namespace: str = ""


class ConsumerStatus(Struct, frozen=True):
    """A consumer at one moment. `why` says what keeps it from reading or sending, "" if nothing.

    `positions`: for each partition the lowest unsettled offset.
    """

    why: str
    inflight: int
    waiting_retries: int
    fresh: int
    buffered_bytes: int
    positions: dict[int, int]
    last_undelivered: Undelivered | None
    dropped_headers: tuple[str, ...]
