"""Topics without new messages for a long time, from the logs of all datacentres."""

from contextlib import suppress
from typing import Any

from hermes_actors.errors import Refused
from hermes_actors.log.base import LATEST, Log, UnknownTopic
from hermes_actors.management.messages.newest import TIMEOUT_S, newest
from hermes_actors.management.offsets.asking import Logs
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.runtime.clock import Clock

_DAY_MS = 86_400_000


class InactiveTopics:
    """Asks the logs at each call."""

    def __init__(self, catalog: Catalog, logs: Logs, clock: Clock) -> None:
        self._catalog = catalog
        self._logs = logs
        self._clock = clock

    async def all(self, days: int = 60) -> list[dict[str, Any]]:
        """The topics older than `days` without a message since then, in Hermes' format.

        The time of the last message is that of the topic's creation if no log holds one any more. A
        trio coroutine. Raises Refused, and Unavailable if a log does not answer.
        """
        if days < 1:
            raise Refused("days must be greater than or equal to 1")
        since_ms = self._clock.now_ms() - days * _DAY_MS
        topics = {
            name: live
            for name, live in sorted(self._catalog.topics.items())
            if 1_000 * live.topic.created_at < since_ms
        }

        async def last_of_each(log: Log) -> dict[str, int]:
            found = {}
            for name, live in topics.items():
                last_ms = round(1_000 * live.topic.created_at)
                with suppress(UnknownTopic):
                    ends = await log.positions(live.log_topic, LATEST)
                    if ends != await log.positions(live.log_topic, since_ms):
                        continue
                    for record in await newest(log, live.log_topic, ends, 1):
                        last_ms = record.timestamp_ms
                found[name] = last_ms
            return found

        answers = (await self._logs.ask(last_of_each, timeout_s=TIMEOUT_S)).whole().values()
        return [
            {
                "topic": name,
                "lastPublishedTsMs": max(each[name] for each in answers),
                "notificationTsMs": [],
                "whitelisted": False,
            }
            for name in topics
            if all(name in each for each in answers)
        ]
