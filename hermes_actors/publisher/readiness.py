"""Decides whether a frontend should receive traffic: unless an administrator has marked the
datacentre as not ready, and once the log has answered for every topic.
"""

import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.config import ReadinessConfig
from hermes_actors.errors import Unavailable
from hermes_actors.log.base import LATEST, Log, UnknownTopic
from hermes_actors.metadata.registry import Metadata
from hermes_actors.status.dependencies import Dependency

_ASKED_AT_ONCE = 16


class ReadinessCheck:
    """A task; `dependencies` reports its findings.

    The log check is latched: once every topic's partitions have answered, later trouble of the log
    does not undo it. Each publish then reports the log's state itself.
    """

    def __init__(self, metadata: Metadata, log: Log, config: ReadinessConfig) -> None:
        self._metadata = metadata
        self._log = log
        self._interval_s = config.interval_ms / 1_000
        self._answered: set[str] = set()
        self._log_trouble = "the log has not been asked yet" if config.log_check_enabled else ""

    def dependencies(self) -> list[Dependency]:
        """The administrator's mark, which takes effect at once, and the log's answers."""
        is_marked = not self._metadata.catalog.is_ready(self._metadata.dc)
        mark = "an administrator has marked it as not ready" if is_marked else ""
        return [
            Dependency(f"datacentre {self._metadata.dc}", mark, is_needed=True),
            Dependency("topics", self._log_trouble, is_needed=True),
        ]

    async def run(self, stop: trio.Event) -> None:
        """Ask the log until every topic has answered, or until asked to stop."""
        await run_until(stop, self._ask_until_answered)

    async def _ask_until_answered(self) -> None:
        # If the log check is enabled, there is trouble from the start.
        while self._log_trouble:
            await self._ask_log()
            if self._log_trouble:
                await trio.sleep(self._interval_s)

    async def _ask_log(self) -> None:
        if not self._metadata.is_readable:
            self._log_trouble = f"topics are not known yet: {self._metadata.health.reason}"
            return
        topics = self._metadata.catalog.topics
        missing = [name for name in sorted(topics) if topics[name].log_topic not in self._answered]
        limiter = trio.CapacityLimiter(_ASKED_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for name in missing:
                nursery.start_soon(self._ask_topic, topics[name].log_topic, limiter)
        silent = [
            name
            for name in missing
            if name in topics and topics[name].log_topic not in self._answered
        ]
        self._log_trouble = ""
        if silent:
            more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            self._log_trouble = f"the log does not answer for topic {silent[0]}{more}"

    async def _ask_topic(self, log_topic: str, limiter: trio.CapacityLimiter) -> None:
        async with limiter:
            try:
                with trio.move_on_after(self._interval_s):
                    await self._log.positions(log_topic, LATEST)
                    self._answered.add(log_topic)
            except (UnknownTopic, Unavailable):
                # The topic is not there yet or has no leader: ask again.
                return
