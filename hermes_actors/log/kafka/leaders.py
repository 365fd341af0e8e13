"""A cache of the partitions' leaders, and the state of the connection to the cluster.

One task asks the cluster: at once on request, else every two seconds. This is also the probe that
notices if the cluster goes away or comes back. For the host loop.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

from aiokafka import errors

from hermes_actors.log.kafka.brokers import FAILURES, Address, Brokers
from hermes_actors.log.kafka.perpetual import Perpetual
from hermes_actors.log.kafka.translate import UNKNOWN_TOPIC_OR_PARTITION, error_name
from hermes_actors.runtime.clock import Clock

_logger = logging.getLogger(__name__)
_PROBE_S = 2.0
_LEAST_PAUSE_S = 0.02
_TOPICS_A_TIME = 100
"""An answer about more topics would block the loop for more than a few milliseconds."""
_NO_REASON = "not connected yet"
_TROUBLES_MAX = 1_000
_NO_SUCH_TOPIC = (UNKNOWN_TOPIC_OR_PARTITION, errors.InvalidTopicError.errno)


class Leaders:
    """The leaders of all topics that were ever asked for, kept up to date. `on_change` is called
    after each answer or failure.
    """

    def __init__(
        self, brokers: Brokers, clock: Clock, rng: random.Random, on_change: Callable[[], None]
    ) -> None:
        self.is_connected = False
        self.has_tried = False
        self.reason = _NO_REASON
        self._brokers = brokers
        self._clock = clock
        self._rng = rng
        self._on_change = on_change
        self._addresses: dict[int, Address] = {}
        self._topics: dict[str, dict[int, int]] = {}
        self._stale: dict[str, None] = {}
        self._fresh_until_s = 0.0
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._wake = asyncio.Event()
        self._troubles: dict[str, str] = {}
        self._task = Perpetual(self._run, f"asking Kafka of {brokers.connection.dc} who leads")
        self._failures = 0

    def start(self) -> None:
        """Start asking."""
        self._task.start()

    async def close(self) -> None:
        """Stop asking; callers that wait for an answer continue without it."""
        await self._task.close()
        for waiting in self._asked.values():
            _complete(waiting)
        self.is_connected, self.has_tried, self.reason = False, True, "the log is closed"

    @property
    def addresses(self) -> dict[int, Address]:
        """The brokers that are up, as of the last answer."""
        return self._addresses

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the leader's id; -1 if there is none, None if the partition is not known."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def partitions(self, topic: str) -> int | None:
        """Return the topic's number of partitions; None if the topic is not known."""
        partitions = self._topics.get(topic)
        return None if partitions is None else len(partitions)

    def forget(self, topic: str) -> None:
        """Forget a deleted topic; it is unknown until the next `refresh`."""
        self._topics.pop(topic, None)
        self._stale.pop(topic, None)
        self._troubles.pop(topic, None)

    def trouble(self, topic: str) -> str | None:
        """Return why the cluster does not describe this topic, which may exist; None if it does."""
        return self._troubles.get(topic)

    def doubt(self) -> None:
        """Ask another broker next: the last answer named a leader that denies being the leader."""
        self._brokers.doubt()

    async def refresh(self, topic: str) -> None:
        """Wait for the next answer about this topic, or its failure. Cheap to call often."""
        waiting = self._asked.get(topic)
        if waiting is None:
            waiting = asyncio.get_running_loop().create_future()
            self._asked[topic] = waiting
            self._wake.set()
        await asyncio.shield(waiting)

    def look_soon(self) -> None:
        """Ask the cluster now instead of at the next probe, because a broker failed."""
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            await self._ask()
            if self.is_connected:
                await asyncio.sleep(_LEAST_PAUSE_S)
                if not self._asked and not self._stale:
                    await self._wait_for_wish()
            else:
                await asyncio.sleep(self._brokers.delay_s(self._failures))

    async def _wait_for_wish(self) -> None:
        try:
            async with asyncio.timeout(_PROBE_S * self._rng.uniform(0.8, 1.0)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _ask(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s >= self._fresh_until_s:
            self._fresh_until_s = now_s + self._brokers.settings.metadata_max_age_ms / 1_000
            self._stale = dict.fromkeys(self._topics)
        topics = [*self._asked][:_TOPICS_A_TIME]
        topics += [*self._stale][: _TOPICS_A_TIME - len(topics)]
        waiting = {topic: self._asked.pop(topic) for topic in topics if topic in self._asked}
        try:
            found = await self._brokers.describe(topics)
        except FAILURES as error:
            self._failed(self._brokers.connection.explain(error))
        else:
            self._learn(found)
            for topic in topics:
                self._stale.pop(topic, None)
        finally:
            for future in waiting.values():
                _complete(future)

    def _learn(self, found: list[tuple[int, str, bool, list[tuple[Any, ...]]]]) -> None:
        self._addresses = self._brokers.addresses
        for code, topic, _, partitions in found:
            self._troubles.pop(topic, None)
            if code in _NO_SUCH_TOPIC:
                self._topics.pop(topic, None)
            elif not code or code == errors.LeaderNotAvailableError.errno:
                self._topics[topic] = {number: leader for _, number, leader, *_ in partitions}
            elif len(self._troubles) < _TROUBLES_MAX:
                self._troubles[topic] = f"Kafka does not describe topic {topic}: {error_name(code)}"
        if self.has_tried and not self.is_connected and self._failures:
            _logger.warning("Kafka of %s answers again", self._brokers.connection.dc)
        self.is_connected, self.has_tried, self.reason, self._failures = True, True, "", 0
        self._on_change()

    def _failed(self, reason: str) -> None:
        # Logged once for each outage; `reason` has the latest.
        if self._failures == 0:
            _logger.warning("%s; trying again until it answers", reason)
        self._failures += 1
        self.is_connected, self.has_tried, self.reason = False, True, reason
        self._on_change()


def _complete(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
