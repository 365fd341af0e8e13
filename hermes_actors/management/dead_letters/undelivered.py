"""The messages of a subscription that were given up last, as Hermes shows them."""

from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.log.letters import OpenLetter
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.dead_letters.letters import Letters
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.dead_letter import LetterFilter
from hermes_actors.status.record import LastUndelivered

TRACES_MAX = 100
MESSAGE_BYTES_MAX = 16_384
"""The most that a trace in the list shows of its message; the last one alone is shown whole."""


class UndeliveredMessages:
    """Traces made of open dead letters, and of what consumers report: those without dead letters
    too. Methods are trio coroutines; the caller comes first.
    """

    def __init__(self, metadata: Metadata, letters: Letters, statuses: Statuses) -> None:
        self._metadata = metadata
        self._letters = letters
        self._statuses = statuses

    async def last(self, caller: Caller, topic: str, name: str) -> dict[str, Any]:
        """The trace of the last message that was given up. Raises Refused, 404 when none was."""
        live = self._letters.owned(caller, topic, name, "see the undelivered messages")
        found = (await self._letters.newest(live, LetterFilter(), 1)).letters
        reported = self._statuses.last_undelivered(str(live.name))
        if reported is not None:
            dc, last = reported
            if not found or last.at_ms > found[0].letter.at_ms:
                return await self._reported(live, dc, last)
        if not found:
            raise Refused(
                f"Subscription {live.name} has no undelivered message", ErrorCode.OTHER, 404
            )
        return await self._trace(live, found[0], bytes_max=None)

    async def _reported(
        self, live: LiveSubscription, dc: str, last: LastUndelivered
    ) -> dict[str, Any]:
        """The trace of a message that is no open letter; its topic may hold it yet."""
        log_topic = self._metadata.catalog.topics[str(live.name.topic)].log_topic
        record = None
        if dc in self._letters.logs.datacenters:
            known, _ = await self._letters.ask(
                live, lambda box: box.record(log_topic, last.partition, last.offset), [dc]
            )
            record = known.get(dc)
        return {
            "timestamp": last.at_ms,
            "subscription": live.name.name,
            "topicName": str(live.name.topic),
            "status": "DISCARDED",
            "reason": last.reason,
            "message": "" if record is None else record.value.decode("utf-8", "replace"),
            "partition": last.partition,
            "offset": last.offset,
            "cluster": dc,
        }

    async def latest(self, caller: Caller, topic: str, name: str) -> list[dict[str, Any]]:
        """Traces of the newest messages that were given up, at most `TRACES_MAX`."""
        live = self._letters.owned(caller, topic, name, "see the undelivered messages")
        found = await self._letters.newest(live, LetterFilter(), TRACES_MAX)
        return [
            {"messageId": held.letter.message_id or None}
            | await self._trace(live, held, bytes_max=MESSAGE_BYTES_MAX)
            for held in found.letters
        ]

    async def _trace(
        self, live: LiveSubscription, held: OpenLetter, *, bytes_max: int | None
    ) -> dict[str, Any]:
        letter = held.letter
        whole = await self._letters.whole(live, held)
        message = b"" if whole is None else whole.value
        return {
            "timestamp": letter.at_ms,
            "subscription": live.name.name,
            "topicName": str(live.name.topic),
            "status": "DISCARDED",
            "reason": f"{letter.reason}: {letter.detail}" if letter.detail else letter.reason,
            "message": message[:bytes_max].decode("utf-8", "replace"),
            "partition": letter.partition,
            "offset": letter.offset,
            "cluster": letter.dc,
        }
