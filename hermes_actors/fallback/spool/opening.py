"""A node's spool, running: its folder, its store, its two actors."""

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config import Config
from hermes_actors.fallback.spool.replay import Destinations, Replayer
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import SegmentStore, open_segment_store
from hermes_actors.fallback.spool.writer import QUEUED_OFFERS_MAX, SpoolWriter
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.telemetry.metrics import Metrics

_STOP_GRACE_S = 5.0


def spool_folder(config: Config) -> Path:
    """The folder of this node's spool."""
    return Path(config.spool.directory) / f"{config.dc}.{config.node}"


def reserve_ms(config: Config) -> int:
    """How long before a publish's time limit keeping it begins: the log has half of it at least."""
    return min(config.spool.reserve_ms, config.frontend.idle_timeout_ms // 2)


def open_spool_store(
    config: Config, ids: IdSource, *, accepts_damage: bool = False
) -> AbstractAsyncContextManager[SegmentStore]:
    """The store in that folder. Raises StartupError when it cannot be used."""
    return open_segment_store(
        spool_folder(config),
        ids,
        segment_bytes_max=config.spool.segment_bytes_max,
        accepts_damage=accepts_damage,
    )


@asynccontextmanager
async def open_spool(
    store: AbstractAsyncContextManager[SegmentStore],
    config: Config,
    destinations: Destinations,
    *,
    control: Supervisor,
    metrics: Metrics,
    clock: Clock,
    rng: random.Random,
) -> AsyncIterator[Spool]:
    """The spool, loaded and running under `control` for the length of the block.

    At its end what was offered is written first; what waits then stays on the disk. A block that is
    cancelled ends as if the process had been killed. Raises StartupError.
    """
    async with store as opened:
        spool = Spool(opened, config.spool, clock, metrics)
        await spool.load()
        spool.ref = control.start(
            "spool writer", lambda: SpoolWriter(spool), mailbox_capacity=QUEUED_OFFERS_MAX
        )
        control.start_task(
            "replayer",
            lambda stop: Replayer(
                spool,
                destinations,
                config.spool,
                rng,
                envelope=config.log.envelope,
                records_max=config.frontend.batch_records_max,
                bytes_max=config.frontend.batch_bytes_max,
            ).run(stop),
        )
        yield spool
        await control.stop("replayer", grace_s=_STOP_GRACE_S)
        await control.stop("spool writer", grace_s=_STOP_GRACE_S)
