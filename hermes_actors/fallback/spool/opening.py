"""Opens and runs a node's spool: its folder, its store, its two actors."""

import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from hermes_actors.actors.supervisor import Supervisor
from hermes_actors.config import Config
from hermes_actors.fallback.spool.disk import open_folder
from hermes_actors.fallback.spool.replay import Appended, Replayer
from hermes_actors.fallback.spool.spool import Spool
from hermes_actors.fallback.spool.store import Blocking, SegmentStore
from hermes_actors.log.base import Log
from hermes_actors.metadata.catalog import LiveTopic
from hermes_actors.metadata.registry import Metadata
from hermes_actors.runtime.clock import Clock
from hermes_actors.telemetry.metrics import Metrics

_logger = logging.getLogger(__name__)

_STOP_GRACE_S = 5.0

OpenStore = Callable[[], AbstractAsyncContextManager[SegmentStore]]


def spool_folder(config: Config) -> Path:
    """The folder of this node's spool."""
    return Path(config.spool.directory) / f"{config.dc}.{config.node}"


@asynccontextmanager
async def open_segment_store(folder: Path, disk_bytes_max: int) -> AsyncIterator[SegmentStore]:
    """Open the store in this folder; create the folder if it does not exist.

    Raises StartupError if the folder cannot be used or another process uses it.
    """
    disk = await trio.to_thread.run_sync(open_folder, folder)

    # A hung disk must not keep a process from ending. The next write still waits for an abandoned
    # one, whose thread holds the limiter's token.
    def in_threads(count: int) -> Blocking:
        limiter = trio.CapacityLimiter(count)
        return partial(trio.to_thread.run_sync, abandon_on_cancel=True, limiter=limiter)

    write = in_threads(1)
    try:
        yield SegmentStore(disk, disk_bytes_max, write, in_threads(2))
    finally:
        # A hung write keeps the folder locked until the process ends.
        with trio.move_on_after(_STOP_GRACE_S, shield=True):
            await write(disk.close)


@asynccontextmanager
async def open_spool(
    open_store: OpenStore | None,
    config: Config,
    metadata: Metadata,
    own: Log,
    remotes: Callable[[], Sequence[Log]],
    *,
    control: Supervisor,
    metrics: Metrics,
    clock: Clock,
    rng: random.Random,
    listeners: Sequence[Appended] = (),
) -> AsyncIterator[Spool | None]:
    """Load the spool and run it under `control` during the block. Yields None without a store, or
    if the spool is disabled.

    `remotes` returns the other logs that may be used now, for topics with the fallback flag;
    `listeners` are those of the Replayer. At the end of the block offered messages are written;
    waiting messages stay on the disk. A cancelled block ends as if the process had been killed.
    Raises StartupError.
    """
    if open_store is None or not config.spool.enabled:
        yield None
        return

    def logs(live: LiveTopic) -> Sequence[Log]:
        return (own, *(remotes() if live.topic.fallback_to_remote_datacenter_enabled else ()))

    async with open_store() as store:
        spool = Spool(store, config.spool, clock, metrics)
        await spool.load()
        spool.start(control)
        control.start_task(
            "replayer",
            lambda stop: Replayer(
                spool,
                metadata,
                logs,
                rng,
                envelope=config.log.envelope,
                records_max=config.frontend.batch_records_max,
                bytes_max=config.frontend.batch_bytes_max,
                listeners=listeners,
            ).run(stop),
        )
        yield spool
        await control.stop("replayer", grace_s=_STOP_GRACE_S)
        await control.stop("spool writer", grace_s=_STOP_GRACE_S)
        if left := spool.index.entries:
            _logger.warning(
                "spool: %d messages stay in %s until this node starts again or 'hermes spool "
                "drain' sends them: the log of %s did not accept them",
                left,
                spool_folder(config),
                own.dc,
            )
