"""The actor that appends a node's tracking events to one datacentre's log, a batch at a time."""

import logging
import random
from collections.abc import Callable

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log
from hermes_actors.log.own_topic import OwnTopic
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import SETTINGS, TRACKING_TOPIC, TrackingBatch, encode

_logger = logging.getLogger(__name__)

COVER_TIMEOUT_S = 1.0
"""Maximum time that a commit of offsets waits for its tracking events."""

_LINGER_S = 0.1
_APPEND_TIMEOUT_S = 5.0
_FAREWELL_TIMEOUT_S = 2.0


class TrackingWriter:
    """Appends the events in `buffer` to `log`. A batch that the log does not take is retried, while
    new events wait within the buffer's bounds.

    `trouble` says why the log takes nothing; empty string if it does. Nothing is written before
    `may_write()`.
    """

    def __init__(
        self,
        log: Log,
        buffer: TrackingBuffer,
        *,
        clock: Clock,
        rng: random.Random,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.trouble = ""
        self._log = log
        self._buffer = buffer
        self._clock = clock
        self._backoff = Backoff(rng, wait_max_s=5.0)
        self._may_write = may_write
        self._topic = OwnTopic(log, TRACKING_TOPIC, SETTINGS, _APPEND_TIMEOUT_S)
        self._stored = trio.Event()

    async def run(self, stop: trio.Event) -> None:
        """Write until asked to stop; then the waiting events, if the log takes them soon."""
        await run_until(stop, self._write_regularly)
        with trio.move_on_after(_FAREWELL_TIMEOUT_S):
            await self._write()

    async def cover(self) -> None:
        """Wait until the log has all events added so far, at most COVER_TIMEOUT_S."""
        end = self._buffer.added
        with trio.move_on_after(COVER_TIMEOUT_S):
            while self._buffer.stored < end:
                await self._stored.wait()

    async def _write_regularly(self) -> None:
        while True:
            await self._buffer.wakeup.wait()
            # More events arrive meanwhile and join the batch.
            await trio.sleep(_LINGER_S)
            await self._write()

    async def _write(self) -> None:
        while (batch := self._buffer.next_batch()) is not None:
            await self._store(batch)

    async def _store(self, batch: TrackingBatch) -> None:
        record = Record(batch.node.encode(), encode(batch), (), self._clock.now_ms())
        while True:
            trouble = "the log is not known to be this datacentre's yet"
            if self._may_write():
                trouble = await self._topic.append([record], Ack.ALL)
            if trouble and not self.trouble:
                _logger.warning("%s: tracking events wait: %s", self._log.dc, trouble)
            self.trouble = trouble
            if not trouble:
                self._backoff.reset()
                self._buffer.appended()
                stored, self._stored = self._stored, trio.Event()
                stored.set()
                return
            await trio.sleep(self._backoff.next_s())
