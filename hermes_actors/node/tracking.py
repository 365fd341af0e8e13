"""Sets up the tracking of a node: the events of its publishes and deliveries, and their writers."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from hermes_actors.consumer.delivery.parts import Cover
from hermes_actors.consumer.delivery.tracked import TrackedDeliveries
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import TrackingMode
from hermes_actors.node.environment import NodeEnvironment
from hermes_actors.node.running import Node
from hermes_actors.publisher.tracked import TrackedPublishes
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.index import TrackingIndex
from hermes_actors.tracking.measures import tracking_metrics
from hermes_actors.tracking.reader import TrackingFollowing, TrackingReader
from hermes_actors.tracking.writer import TrackingWriter


@asynccontextmanager
async def open_tracking(node: Node, environment: NodeEnvironment) -> AsyncIterator[None]:
    """Track messages during the block; at its end the waiting events are written."""
    config, control = node.config, node.control
    logs = {environment.log.dc: environment.log, **environment.remote_logs}
    buffers = {
        dc: TrackingBuffer(
            config.dc, config.node, node.boot_id, events_max=config.tracking.events_max
        )
        for dc in logs
    }
    # A separate generator, so that tracking does not change the draws of other parts.
    rng = random.Random(node.boot_id)  # noqa: S311 -- jitter, not secrets
    writers = {
        dc: TrackingWriter(
            log,
            buffers[dc],
            clock=environment.clock,
            rng=rng,
            # Until the metadata log has been read, the log may turn out to be another datacentre's.
            may_write=lambda: node.metadata.is_own,
        )
        for dc, log in logs.items()
    }
    publishes = TrackedPublishes(buffers, config.dc, node.metadata, environment.clock)
    node.publish_listeners.append(lambda topic: publishes if topic.tracking_enabled else None)
    node.replayed.append(publishes.replayed)

    def listen(live: LiveSubscription) -> TrackedDeliveries | None:
        if live.subscription.tracking_mode is TrackingMode.OFF:
            return None
        return TrackedDeliveries(buffers[config.dc], live, config.dc, environment.clock)

    def cover(live: LiveSubscription) -> Cover | None:
        is_tracked = live.subscription.tracking_mode is not TrackingMode.OFF
        return writers[config.dc].cover if is_tracked else None

    node.delivery_listeners.append(listen)
    node.cover = cover
    node.metrics.append(tracking_metrics(buffers))
    for dc, writer in writers.items():
        node.duties[f"tracking {dc}"] = _trouble(writer, buffers[dc])
        control.start_task(f"tracking writer {dc}", writer.run)
    following = node.tracking
    if following is not None:
        following.readers += [TrackingReader(log, following, rng=rng) for log in logs.values()]
        for reader in following.readers:
            control.start_task(f"tracking reader {reader.dc}", reader.run)
    yield
    if following is not None:
        for reader in following.readers:
            await control.stop(f"tracking reader {reader.dc}")
        await following.ask(following.index.close)
    # Not in a `finally`: a cancelled node stops as if it had been killed.
    async with trio.open_nursery() as nursery:
        for dc in writers:
            nursery.start_soon(control.stop, f"tracking writer {dc}")


def tracking_index(node: Node, environment: NodeEnvironment) -> TrackingFollowing:
    """The index of a management node; `open_tracking` starts the readers that fill it."""
    config = node.config.tracking
    directory = None
    if config.index_directory:
        directory = Path(config.index_directory) / f"{node.config.dc}.{node.config.node}"
    index = TrackingIndex(directory, bytes_max=config.index_bytes_max)
    return TrackingFollowing(index, environment.threads)


def _trouble(writer: TrackingWriter, buffer: TrackingBuffer) -> Callable[[], str]:
    def tell() -> str:
        dropped = buffer.dropped
        if writer.trouble:
            return f"{len(buffer)} events wait, {dropped} were dropped: {writer.trouble}"
        return "" if buffer.has_room else f"more events than the log takes; {dropped} were dropped"

    return tell
