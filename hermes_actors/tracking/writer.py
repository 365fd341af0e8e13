"""The actor that appends a node's tracking events to one datacentre's log, a batch at a time."""

import logging
import random
from collections.abc import Callable

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.backoff import Backoff
from hermes_actors.log.base import Log, LogUnavailable, RefusedRecord, Stored
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.tracking.buffer import TrackingBuffer
from hermes_actors.tracking.events import SETTINGS, TRACKING_TOPIC, TrackingBatch, encode

_logger = logging.getLogger(__name__)

COVER_TIMEOUT_S = 1.0
"""The longest that a commit of offsets waits for the events that it covers."""

_LINGER_S = 0.1
_APPEND_TIMEOUT_S = 5.0
_FAREWELL_TIMEOUT_S = 2.0


class TrackingWriter:
    """Appends what `buffer` holds to `log`, for ever: a batch that the log does not take is tried
    again, and what comes meanwhile waits within the buffer's bounds.

    `trouble` says why the log takes nothing, "" when it does. Nothing is written before
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
        self._has_topic = False
        self._stored = trio.Event()

    async def run(self, stop: trio.Event) -> None:
        """Write until asked to stop; then what waits, and a last word, if the log takes it soon."""
        await run_until(stop, self._write_regularly)
        if self._buffer.is_silent:
            return
        with trio.move_on_after(_FAREWELL_TIMEOUT_S):
            is_last = False
            while not is_last:
                batch = self._buffer.farewell()
                is_last = batch.is_last
                await self._store(batch)

    async def cover(self) -> None:
        """Wait until the log has all events that were added by now, at most COVER_TIMEOUT_S; those
        that it has not are counted.
        """
        buffer = self._buffer
        end = buffer.added
        if buffer.stored >= end:
            return
        with trio.move_on_after(COVER_TIMEOUT_S):
            while buffer.stored < end:
                await self._stored.wait()
        buffer.give_up(end)

    async def _write_regularly(self) -> None:
        while True:
            await self._buffer.wakeup.wait()
            # More come, and go together.
            await trio.sleep(_LINGER_S)
            while (batch := self._buffer.next_batch()) is not None:
                await self._store(batch)

    async def _store(self, batch: TrackingBatch) -> None:
        record = Record(batch.node.encode(), encode(batch), (), self._clock.now_ms())
        while True:
            trouble = "the log does not answer"
            with trio.move_on_after(_APPEND_TIMEOUT_S):
                trouble = await self._append(record)
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

    async def _append(self, record: Record) -> str:
        """Why it is not known to be stored, "" when it is."""
        if not self._may_write():
            return "the log is not known to be this datacentre's yet"
        try:
            if not self._has_topic:
                if await self._log.describe_topic(TRACKING_TOPIC) is None:
                    await self._log.create_topic(TRACKING_TOPIC, SETTINGS)
                self._has_topic = True
            (outcome,) = await self._log.append(TRACKING_TOPIC, 0, [record], Ack.ALL)
        except LogUnavailable as error:
            return error.message
        except ValueError as error:
            # A policy of the cluster: no reason to end a node that can do its work.
            return f"the log does not take the topic: {error}"
        if isinstance(outcome, RefusedRecord):
            # The topic is gone, or takes less than it did.
            self._has_topic = False
        return "" if isinstance(outcome, Stored) else outcome.reason
