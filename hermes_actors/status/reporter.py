"""The actor that appends the node's status record once a second to its datacentre's log.

A log that is away is no failure: the record is skipped, counted, and the next one is as fresh as
any. Nothing is queued, and every wait is bounded.
"""

import contextlib
import logging
from collections.abc import Callable

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log, LogUnavailable, RefusedRecord, Stored, UnknownTopic
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.collector import Collector
from hermes_actors.status.record import RECORD_BYTES_MAX, SETTINGS, STATUS_TOPIC

_logger = logging.getLogger(__name__)

_ENTRIES_A_TURN = 25
_APPEND_TIMEOUT_S = 3.0
_FAREWELL_TIMEOUT_S = 1.0
_ENDS_PAUSE_S = 0.1


class StatusReporter:
    """Reports what `collector` collects to `log`, which is that of the node's own datacentre.

    Nothing is written before `may_write()`: the log may be found to be another datacentre's.
    `loop_lag_ms()` is how late the node's loop was at worst lately.
    Asked to stop, it appends a last record that says so, if the log takes it within a second.
    `trouble` says why the last record was skipped, "" when it was not.
    """

    def __init__(
        self,
        log: Log,
        collector: Collector,
        *,
        clock: Clock,
        topic: str = STATUS_TOPIC,
        interval_s: float = 1.0,
        may_write: Callable[[], bool] = lambda: True,
        loop_lag_ms: Callable[[], float] = float,
    ) -> None:
        assert log.dc == collector.identity.dc, "a node reports to its own datacentre's log"
        self.trouble = ""
        self._log = log
        self._collector = collector
        self._clock = clock
        self._topic = topic
        self._interval_s = interval_s
        self._may_write = may_write
        self._loop_lag_ms = loop_lag_ms
        self._key = collector.identity.node.encode()
        # What the topic takes; None until that is known.
        self._bytes_max: int | None = None

    async def run(self, stop: trio.Event) -> None:
        """Report until asked to stop."""
        await run_until(stop, self._report_regularly, self._ask_for_ends)
        if self._may_write():
            with trio.move_on_after(_FAREWELL_TIMEOUT_S):
                await self._report(is_leaving=True)

    async def _report_regularly(self) -> None:
        due_s = trio.current_time()
        while True:
            await trio.sleep_until(due_s)
            if self._may_write():
                await self._report()
            # What was missed meanwhile is not made up for.
            due_s = max(due_s + self._interval_s, trio.current_time())

    async def _report(self, *, is_leaving: bool = False) -> None:
        is_stored = False
        trouble = "the log does not answer"
        try:
            with trio.move_on_after(_APPEND_TIMEOUT_S):
                trouble = await self._try_to_report(is_leaving)
                is_stored = not trouble
        except LogUnavailable as error:
            trouble = error.message
        except ValueError as error:
            # A policy of the cluster: no reason to end a node that can do its work.
            trouble = f"the log does not take the topic: {error}"
        finally:
            # A cancelled append may store yet; the next record has a sequence of its own.
            self._collector.took(is_stored=is_stored)
        if trouble and not self.trouble:
            _logger.warning("status records are skipped: %s", trouble)
        self.trouble = trouble

    async def _try_to_report(self, is_leaving: bool) -> str:
        """Append one record; why it was not stored, "" when it was. Raises LogUnavailable."""
        clock, collector = self._clock, self._collector
        bytes_max = min(await self._limit(), RECORD_BYTES_MAX)
        collector.begin(clock.now_ms(), clock.monotonic_s(), bytes_max)
        while collector.add_some(clock.monotonic_s(), _ENTRIES_A_TURN):
            await trio.lowlevel.checkpoint()
        value = collector.encode(loop_lag_ms=self._loop_lag_ms(), is_leaving=is_leaving)
        record = Record(self._key, value, (), clock.now_ms())
        (outcome,) = await self._log.append(self._topic, 0, [record], Ack.LEADER)
        if isinstance(outcome, Stored):
            return ""
        if isinstance(outcome, RefusedRecord):
            # The topic is gone, or takes less than it did.
            self._bytes_max = None
        return outcome.reason

    async def _limit(self) -> int:
        """How many bytes a record's value may have, once the topic is there."""
        if self._bytes_max is None:
            settings = await self._log.describe_topic(self._topic)
            if settings is None:
                await self._log.create_topic(self._topic, SETTINGS)
                settings = SETTINGS
            self._bytes_max = settings.record_bytes_max - len(self._key)
        return self._bytes_max

    async def _ask_for_ends(self) -> None:
        """Ask how far the topics go that are consumed here, ten a second at most."""
        clock, ends = self._clock, self._collector.ends
        while True:
            topic = ends.due(clock.monotonic_s())
            if topic is None:
                await trio.sleep(self._interval_s)
                continue
            # Where it cannot be had, the lag of the topic's subscriptions is not known.
            with (
                trio.move_on_after(_APPEND_TIMEOUT_S),
                contextlib.suppress(LogUnavailable, UnknownTopic),
            ):
                ends.note(topic, await self._log.end_positions(topic), clock.monotonic_s())
            await trio.sleep(_ENDS_PAUSE_S)
