"""Looks up the start and end offsets of a topic's partitions, and the offsets of a time.

For the host loop. One request to each leader, all at the same time.
"""

import asyncio

import aiokafka.errors as kafka_errors
from aiokafka.protocol.offset import OffsetRequest

from hermes_actors.log.base import EARLIEST, LATEST, Edge
from hermes_actors.log.kafka.brokers import FAILURES, Brokers
from hermes_actors.log.kafka.fetch import ISOLATION_LEVELS

START = -2
END = -1
_EDGES = {EARLIEST: START, LATEST: END}
_PARTITIONS_AGE_MAX_S = 5.0
_REPLICA_ID = -1


class Positions:
    """Positions in topics. All methods raise UnknownTopic and LogUnavailable."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def find(self, topic: str, at: Edge | int) -> dict[int, int]:
        """As `Log.positions`. The end is that of the records that readers see: with read_committed,
        the first record of an open transaction.
        """
        if isinstance(at, Edge):
            return await self._ask(topic, _EDGES[at])
        # The end is looked up first: if a record is appended between the two requests, the end is
        # before it.
        ends = await self._ask(topic, END)
        found = await self._ask(topic, max(0, at))
        return {
            number: offset if offset >= 0 else ends.get(number, 0)
            for number, offset in found.items()
        }

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Return one partition's start and end."""
        starts, ends = await asyncio.gather(
            self._ask(topic, START, partition), self._ask(topic, END, partition)
        )
        return starts[partition], ends[partition]

    async def _ask(
        self, topic: str, timestamp_ms: int, partition: int | None = None
    ) -> dict[int, int]:
        return await self._brokers.persist(
            f"positions of {topic} are not known",
            lambda: self.ask_once(topic, timestamp_ms, partition),
        )

    async def ask_once(
        self, topic: str, timestamp_ms: int | None = None, partition: int | None = None
    ) -> dict[int, int]:
        """As `find`, without retries; None for the end. Raises FAILURES, UnknownTopic."""
        if partition is None:
            # So that added partitions are noticed soon.
            await self._brokers.leaders(topic, age_max_s=_PARTITIONS_AGE_MAX_S)
        leaders = await self._brokers.leaders_of(topic, () if partition is None else (partition,))
        if partition is not None:
            leaders = {partition: leaders[partition]}
        by_leader: dict[int, list[int]] = {}
        for number, leader in leaders.items():
            by_leader.setdefault(leader, []).append(number)
        try:
            answers = await asyncio.gather(
                *(
                    self._ask_leader(topic, leader, numbers, timestamp_ms)
                    for leader, numbers in sorted(by_leader.items())
                )
            )
        except FAILURES:
            self._brokers.forget(topic)
            raise
        found = {number: offset for answer in answers for number, offset in answer.items()}
        return dict(sorted(found.items()))

    async def _ask_leader(
        self, topic: str, leader: int, numbers: list[int], timestamp_ms: int | None
    ) -> dict[int, int]:
        if leader < 0:
            raise kafka_errors.LeaderNotAvailableError(f"{topic}/{numbers[0]} has no leader")
        time_ms = END if timestamp_ms is None else timestamp_ms
        isolation = ISOLATION_LEVELS[self._brokers.settings.isolation]
        request = OffsetRequest(
            _REPLICA_ID, isolation, [(topic, [(number, time_ms) for number in numbers])]
        )
        answer = await self._brokers.ask(request, node=leader, purpose="positions")
        found = {}
        for _, partitions in answer.topics:
            for number, code, _, offset in partitions:
                if code:
                    raise kafka_errors.for_code(code)(f"{topic}/{number}")
                found[number] = offset
        return found
