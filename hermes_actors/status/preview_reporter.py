"""The actor that hands a node's previews to its datacentre's log, once in each interval.

What the log does not take is dropped: the next interval's previews are as good.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.log.base import Log
from hermes_actors.log.own_topic import OwnTopic
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
        self._dc = log.dc
        self._topic = OwnTopic(log, PREVIEW_TOPIC, SETTINGS, _APPEND_TIMEOUT_S)
        self._take_all = take_all
        self._node = node
        self._clock = clock
        self._interval_s = interval_s
        self._may_write = may_write

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
        records = [self._record(topic, previews) for topic, previews in gathered.items()]
        trouble = ""
        for start in range(0, len(records), _BATCH_RECORDS_MAX):
            batch = records[start : start + _BATCH_RECORDS_MAX]
            trouble = trouble or await self._topic.append(batch, Ack.LEADER)
        if trouble and not self.trouble:
            _logger.warning("previews are dropped: %s", trouble)
        self.trouble = trouble

    def _record(self, topic: str, previews: Sequence[Preview]) -> Record:
        value = encode(PreviewRecord(self._node, self._dc, topic, tuple(previews)))
        return Record(topic.encode(), value, (), self._clock.now_ms())
