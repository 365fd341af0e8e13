"""The messages of a subscription that were given up last, as Hermes shows them."""

from typing import Any

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.log.letters import OpenLetter
from hermes_actors.management.access.roles import Caller
from hermes_actors.management.catalog.subscriptions import Subscriptions
from hermes_actors.management.dead_letters.letters import EVERY, TIMEOUT_S, Letters
from hermes_actors.management.status.statuses import Statuses
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.metadata.registry import Metadata
from hermes_actors.status.record import LastUndelivered

TRACES_MAX = 100
MESSAGE_BYTES_MAX = 16_384
"""The most that a trace in the list shows of its message; the last one alone is shown whole."""

_SEE = "see the undelivered messages of subscription"


class UndeliveredMessages:
    """Traces of open dead letters, and of what consumers report where dead letters are off.

    Methods are trio coroutines; the caller comes first.
    """

    def __init__(
        self,
        metadata: Metadata,
        letters: Letters,
        subscriptions: Subscriptions,
        statuses: Statuses,
    ) -> None:
        self._metadata = metadata
        self._letters = letters
        self._subscriptions = subscriptions
        self._statuses = statuses

    async def last(self, caller: Caller, topic: str, name: str) -> dict[str, Any]:
        """The message that was given up last. Raises Refused, 404 when none was."""
        live = self._subscriptions.owned(caller, topic, name, _SEE)
        found = (await self._letters.newest([live], EVERY, 1)).letters
        reported = self._statuses.last_undelivered(str(live.name))
        if reported is not None:
            dc, last = reported
            if not found or last.at_ms > found[0].letter.at_ms:
                return await self._reported(live, dc, last)
        if not found:
            raise Refused(
                f"Subscription {live.name} has no undelivered message", ErrorCode.OTHER, 404
            )
        return await self._of_letter(live, found[0], bytes_max=None)

    async def latest(self, caller: Caller, topic: str, name: str) -> list[dict[str, Any]]:
        """The newest messages that were given up, at most 100."""
        live = self._subscriptions.owned(caller, topic, name, _SEE)
        found = await self._letters.newest([live], EVERY, TRACES_MAX)
        return [
            {"messageId": held.letter.message_id or None}
            | await self._of_letter(live, held, bytes_max=MESSAGE_BYTES_MAX)
            for held in found.letters
        ]

    async def _reported(
        self, live: LiveSubscription, dc: str, last: LastUndelivered
    ) -> dict[str, Any]:
        """The trace of a message that is no open letter; its topic may hold it yet."""
        log_topic = self._metadata.catalog.topics[str(live.name.topic)].log_topic
        logs, place = self._letters.logs, (last.partition, last.offset)
        answers = await logs.ask(
            lambda log: self._letters.box(log, live).record(log_topic, *place),
            {dc} & {*logs.datacenters},
            TIMEOUT_S,
        )
        record = answers.known.get(dc)
        message = b"" if record is None else record.value
        return _trace(live, last.at_ms, last.reason, message, (*place, dc))

    async def _of_letter(
        self, live: LiveSubscription, held: OpenLetter, *, bytes_max: int | None
    ) -> dict[str, Any]:
        letter = held.letter
        whole = await self._letters.whole(live, held)
        message = b"" if whole is None else whole.value[:bytes_max]
        reason = f"{letter.reason}: {letter.detail}" if letter.detail else letter.reason
        place = letter.partition, letter.offset, letter.dc
        return _trace(live, letter.at_ms, reason, message, place)


def _trace(
    live: LiveSubscription, at_ms: int, reason: str, message: bytes, place: tuple[int, int, str]
) -> dict[str, Any]:
    partition, offset, dc = place
    return {
        "timestamp": at_ms,
        "subscription": live.name.name,
        "topicName": str(live.name.topic),
        "status": "DISCARDED",
        "reason": reason,
        "message": message.decode("utf-8", "replace"),
        "partition": partition,
        "offset": offset,
        "cluster": dc,
    }
