"""The actor that appends the node's status record to its datacentre's log once a second.

A record that the log does not take is skipped and counted, because the next one is as useful.
"""

import contextlib
import logging
from collections.abc import Callable

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import EARLIEST, LATEST, Log, LogUnavailable, UnknownTopic
from hermes_actors.log.own_topic import OwnTopic
from hermes_actors.model.names import is_volatile
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.runtime.turns import in_turns
from hermes_actors.status.collector import Collector
from hermes_actors.status.record import RECORD_BYTES_MAX, SETTINGS, STATUS_TOPIC

_logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
_APPEND_TIMEOUT_S = 3.0
_FAREWELL_TIMEOUT_S = 1.0
_ENDS_PAUSE_S = 0.1


class StatusReporter:
    """Appends the records of `collector` to `log`, the log of the node's own datacentre.

    Nothing is written before `may_write()`, because the log may turn out to be another
    datacentre's. `loop_lag_ms()` is the loop's recent maximum delay. When asked to stop, it appends
    a last record that says so. `trouble` says why the last record was skipped; empty string if it
    was not.
    """

    def __init__(
        self,
        log: Log,
        collector: Collector,
        *,
        clock: Clock,
        may_write: Callable[[], bool] = lambda: True,
        loop_lag_ms: Callable[[], float] = float,
    ) -> None:
        assert log.dc == collector.identity.dc, "a node reports to its own datacentre's log"
        self.trouble = ""
        self._log = log
        self._collector = collector
        self._clock = clock
        self._may_write = may_write
        self._loop_lag_ms = loop_lag_ms
        self._topic = OwnTopic(log, STATUS_TOPIC, SETTINGS, _APPEND_TIMEOUT_S)

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
            # Missed records are not made up for.
            due_s = max(due_s + _INTERVAL_S, trio.current_time())

    async def _report(self, *, is_leaving: bool = False) -> None:
        clock, collector = self._clock, self._collector
        value = await in_turns(
            collector.record(
                clock.now_ms(),
                clock.monotonic_s(),
                RECORD_BYTES_MAX,
                loop_lag_ms=self._loop_lag_ms(),
                is_leaving=is_leaving,
            )
        )
        record = Record(collector.identity.node.encode(), value, (), clock.now_ms())
        trouble = await self._topic.append([record], Ack.LEADER)
        collector.missed += bool(trouble)
        if trouble and not self.trouble:
            _logger.warning("status records are skipped: %s", trouble)
        self.trouble = trouble

    async def _ask_for_ends(self) -> None:
        """Look up the ends of the topics that are consumed here, at most ten a second."""
        clock, ends = self._clock, self._collector.ends
        while True:
            topic = ends.due(clock.monotonic_s())
            if topic is None:
                await trio.sleep(_INTERVAL_S)
                continue
            # If this fails, the lag of the topic's subscriptions is unknown.
            with (
                trio.move_on_after(_APPEND_TIMEOUT_S),
                contextlib.suppress(LogUnavailable, UnknownTopic),
            ):
                found = await self._log.positions(topic, LATEST)
                starts = {}
                if is_volatile(topic):
                    # A position may be of an earlier life of the partition's holder.
                    starts = await self._log.positions(topic, EARLIEST)
                ends.note(topic, found, clock.monotonic_s(), starts)
            await trio.sleep(_ENDS_PAUSE_S)
