"""What all consumers of a node share."""

import random
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct, field

from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.delivery.delivery import Transitions
from hermes_actors.consumer.offsets.progress import Uncommitted
from hermes_actors.consumer.rates.control import RateControls
from hermes_actors.consumer.recipients.resolver import EndpointResolver
from hermes_actors.consumer.senders.connecting import Resolver
from hermes_actors.consumer.senders.sender import Sender
from hermes_actors.log.base import Log
from hermes_actors.metadata.catalog import Catalog, LiveSubscription
from hermes_actors.metadata.redrives import FollowedRedrives
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.runtime.workers import InlinePool, WorkerPool
from hermes_actors.schema.reading import AvroReader
from hermes_actors.schema.source import CatalogSchemas
from hermes_actors.telemetry.metrics import Metrics


def _suspend_nobody(_live: LiveSubscription, _reason: str) -> None:
    """Do nothing. The consumer itself stops its attempts anyway."""


def _nobody(_live: LiveSubscription) -> Sequence[Transitions]:
    """No listeners except the counters."""
    return ()


Cover = Callable[[], Awaitable[None]]
"""Waits, within bounds, for what must be durable before offsets are committed."""


def uncovered(_live: LiveSubscription) -> Cover | None:
    """Nothing to wait for."""
    return None


class ConsumerParts(Struct, frozen=True):
    """What all consumers of a node share.

    `suspend` is called by a consumer whose endpoint is gone, with the version that was pushed to
    and the reason; it must not wait. `listeners` returns the listeners to a subscription's
    messages, besides its counters. `cover` returns what its commits must wait for, or None.
    """

    log: Log
    sender_of: Callable[[LiveSubscription], Sender]
    clock: Clock
    rng: random.Random
    ids: IdSource
    metrics: Metrics
    config: ConsumersConfig
    namespace: str = ""
    rate_controls: RateControls = field(default_factory=RateControls)
    uncommitted: Uncommitted = field(default_factory=Uncommitted)
    redrives: FollowedRedrives | None = None
    suspend: Callable[[LiveSubscription, str], None] = _suspend_nobody
    resolver: EndpointResolver | None = None
    names: Resolver | None = None
    listeners: Callable[[LiveSubscription], Sequence[Transitions]] = _nobody
    cover: Callable[[LiveSubscription], Cover | None] = uncovered
    pool: WorkerPool = field(default_factory=InlinePool)
    avro: AvroReader = field(
        default_factory=lambda: AvroReader(CatalogSchemas(Catalog()), InlinePool())
    )
