"""Appends to an internal topic of the nodes, and creates the topic if it does not exist."""

from collections.abc import Sequence

import trio

from hermes_actors.log.base import Log, LogUnavailable, RefusedRecord, Stored, TopicSettings
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack


class OwnTopic:
    """Partition 0 of such a topic. A failed append returns a reason and raises nothing."""

    def __init__(self, log: Log, topic: str, settings: TopicSettings, timeout_s: float) -> None:
        self._log = log
        self._topic = topic
        self._settings = settings
        self._timeout_s = timeout_s
        self._is_there = False

    async def append(self, records: Sequence[Record], ack: Ack) -> str:
        """Append the records. Returns why one of them may not be stored; empty string if all
        are.
        """
        with trio.move_on_after(self._timeout_s):
            try:
                return await self._append(records, ack)
            except LogUnavailable as error:
                return error.message
            except ValueError as error:
                # A policy of the cluster refuses it; the node can do its work without.
                return f"the log does not take the topic: {error}"
        return "the log does not answer"

    async def _append(self, records: Sequence[Record], ack: Ack) -> str:
        if not self._is_there:
            if await self._log.topics.describe(self._topic) is None:
                await self._log.topics.create(self._topic, self._settings)
            self._is_there = True
        for outcome in await self._log.append(self._topic, 0, records, ack):
            if isinstance(outcome, RefusedRecord):
                # The topic may be gone.
                self._is_there = False
            if not isinstance(outcome, Stored):
                return outcome.reason
        return ""
