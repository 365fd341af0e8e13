"""One node's spool with all that it needs of the node: what keeps messages and sends them later."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config import Config
from hermes_actors.config.spool import SpoolConfig
from hermes_actors.fallback.spool.opening import open_spool, reserve_ms
from hermes_actors.fallback.spool.replay import Destinations
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SegmentStore
from hermes_actors.log.base import Log
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.topic import Topic
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics

OpenSpoolStore = Callable[[], AbstractAsyncContextManager[SegmentStore]]


class Spooling:
    """What a frontend is given of the spool; as made, there is none."""

    def __init__(self) -> None:
        self.spool_of: Callable[[Topic], Spool | None] = lambda _topic: None
        self.reserve_ms = 0
        self.trouble: Callable[[], str] = str
        self.lost: Callable[[], str] = str
        self.is_open = False

    @property
    def takes_more(self) -> bool:
        """What no log takes now is kept, as far as is known."""
        return self.is_open and not self.trouble()


def spool_of(spool: Spool, config: SpoolConfig) -> Callable[[Topic], Spool | None]:
    """Tells a topic's spool: none when another datacentre takes what this one's log does not,
    unless the operator wants both, or messages of the topic wait: newer ones with their keys must
    not overtake them.
    """

    def of(topic: Topic) -> Spool | None:
        is_wanted = config.for_fallback_topics or not topic.fallback_to_remote_datacenter_enabled
        return spool if is_wanted or spool.has(topic.name) else None

    return of


@asynccontextmanager
async def open_spooling(
    open_store: OpenSpoolStore | None,
    config: Config,
    metadata: Metadata,
    own: Log,
    remotes_of: Callable[[LiveTopic], Sequence[Log]],
    *,
    control: Supervisor,
    metrics: Metrics,
    clock: Clock,
    rng: random.Random,
) -> AsyncIterator[Spooling]:
    """The node's spool, running for the length of the block; none without a store, or if it is off.

    `remotes_of` are the other logs that may take a topic's messages now, for topics with the
    fallback flag. Close it after all that publishes. Raises StartupError.
    """
    spooling = Spooling()
    if open_store is None or not config.spool.enabled:
        yield spooling
        return

    def logs(live: LiveTopic) -> Sequence[Log]:
        if not live.topic.fallback_to_remote_datacenter_enabled:
            return (own,)
        return (own, *remotes_of(live))

    def live(name: str) -> LiveTopic | None:
        return metadata.catalog.topics.get(name)

    destinations = Destinations(live, metadata.has_ended, logs)
    async with open_spool(
        open_store(),
        config,
        destinations,
        control=control,
        metrics=metrics,
        clock=clock,
        rng=rng,
    ) as spool:
        spooling.spool_of = spool_of(spool, config.spool)
        spooling.reserve_ms = reserve_ms(config)
        spooling.trouble = lambda: spool.trouble
        spooling.lost = lambda: spool.lost
        spooling.is_open = True
        yield spooling
