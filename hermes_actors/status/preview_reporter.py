"""The actor that hands a node's previews to its datacentre's log, once in each interval.

A log that is away is no failure: what could not be stored is dropped, the next interval's previews
are as good.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log, LogUnavailable, RefusedRecord, Stored
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.runtime.clock import Clock
from hermes_actors.status.previews import (
    PREVIEW_TOPIC,
    SETTINGS,
    Preview,
    PreviewRecord,
    encode,
)

_logger = logging.getLogger(__name__)

_BATCH_RECORDS_MAX = 10
_APPEND_TIMEOUT_S = 5.0
_FAREWELL_TIMEOUT_S = 1.0


class PreviewReporter:
    """Reports what `take_all` gives to `log`, which is that of the node's own datacentre.

    Nothing is written before `may_write()`. `trouble` says why the last ones were dropped, "" when
    they were not.
    """

    def __init__(
        self,
        log: Log,
        take_all: Callable[[], Mapping[str, Sequence[Preview]]],
        *,
        node: str,
        clock: Clock,
        interval_s: float,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self.trouble = ""
        self._log = log
        self._take_all = take_all
        self._node = node
        self._clock = clock
        self._interval_s = interval_s
        self._may_write = may_write
        self._has_topic = False

    async def run(self, stop: trio.Event) -> None:
        """Report until asked to stop, and once more then."""
        await run_until(stop, self._report_regularly)
        with trio.move_on_after(_FAREWELL_TIMEOUT_S):
            await self._report()

    async def _report_regularly(self) -> None:
        while True:
            await trio.sleep(self._interval_s)
            await self._report()

    async def _report(self) -> None:
        gathered = self._take_all()
        if not gathered or not self._may_write():
            return
        trouble = ""
        try:
            records = [self._record(topic, previews) for topic, previews in gathered.items()]
            for start in range(0, len(records), _BATCH_RECORDS_MAX):
                trouble = "the log does not answer"
                with trio.move_on_after(_APPEND_TIMEOUT_S):
                    trouble = await self._append(records[start : start + _BATCH_RECORDS_MAX])
                if trouble:
                    break
        except LogUnavailable as error:
            trouble = error.message
        except ValueError as error:
            # A policy of the cluster: no reason to end a node that can do its work.
            trouble = f"the log does not take the topic: {error}"
        if trouble and not self.trouble:
            _logger.warning("previews are dropped: %s", trouble)
        self.trouble = trouble

    def _record(self, topic: str, previews: Sequence[Preview]) -> Record:
        value = encode(PreviewRecord(self._node, self._log.dc, topic, tuple(previews)))
        return Record(topic.encode(), value, (), self._clock.now_ms())

    async def _append(self, records: Sequence[Record]) -> str:
        """Why they were not all stored, "" when they were. Raises LogUnavailable."""
        if not self._has_topic:
            if await self._log.describe_topic(PREVIEW_TOPIC) is None:
                await self._log.create_topic(PREVIEW_TOPIC, SETTINGS)
            self._has_topic = True
        for outcome in await self._log.append(PREVIEW_TOPIC, 0, records, Ack.LEADER):
            if isinstance(outcome, RefusedRecord):
                # The topic is gone, or takes less than it did.
                self._has_topic = False
            if not isinstance(outcome, Stored):
                return outcome.reason
        return ""
