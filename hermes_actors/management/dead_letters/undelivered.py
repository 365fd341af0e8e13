"""The last undelivered messages of a subscription, in Hermes' format."""

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
"""The maximum size of a message in the list. The last message alone is shown whole."""

_SEE = "see the undelivered messages of subscription"


class UndeliveredMessages:
    """Traces of open dead letters, and of the messages that consumers report as undelivered if
    dead letters are off. Methods are trio coroutines.
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
        """The last undelivered message. Raises Refused, 404 if there is none."""
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
        """The newest undelivered messages, at most 100."""
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
        """The trace of a message that a consumer reported. Its body is empty if the topic no longer
        has it.
        """
        log_topic = self._metadata.catalog.topics[str(live.name.topic)].log_topic
        logs, place = self._letters.logs, (last.partition, last.offset)
        answers = await logs.ask(
            lambda log: self._letters.box(log, live).record(log_topic, *place),
            {dc} & {*logs.datacenters},
            TIMEOUT_S,
        )
        record = answers.known.get(dc)
        message = b"" if record is None else record.value
        return _trace(live, last.at_ms, last.reason, message, (*place, logs.cluster(dc)))

    async def _of_letter(
        self, live: LiveSubscription, held: OpenLetter, *, bytes_max: int | None
    ) -> dict[str, Any]:
        letter = held.letter
        whole = await self._letters.whole(live, held)
        message = b"" if whole is None else whole.value[:bytes_max]
        reason = f"{letter.reason}: {letter.detail}" if letter.detail else letter.reason
        place = letter.partition, letter.offset, self._letters.logs.cluster(letter.dc)
        return _trace(live, letter.at_ms, reason, message, place)


def _trace(
    live: LiveSubscription, at_ms: int, reason: str, message: bytes, place: tuple[int, int, str]
) -> dict[str, Any]:
    partition, offset, cluster = place
    return {
        "timestamp": at_ms,
        "subscription": live.name.name,
        "topicName": str(live.name.topic),
        "status": "DISCARDED",
        "reason": reason,
        "message": message.decode("utf-8", "replace"),
        "partition": partition,
        "offset": offset,
        "cluster": cluster,
    }
