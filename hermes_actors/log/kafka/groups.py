"""Commits of any number of groups over a few shared connections, without consumers.

For the host loop. A commit is made without joining the group, as the kafka-consumer-groups tool
does it. So Kafka's tools show a group's progress, and nothing is rebalanced.
"""

import zlib
from collections.abc import Mapping
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from hermes_actors.log.base import (
    Commit,
    LogUnavailable,
    UnknownTopic,
    check_commits,
)
from hermes_actors.log.kafka.brokers import FAILURES, Brokers

_GROUP = 0
_NO_GENERATION = -1
_NO_MEMBER = ""
_KEPT_MS = 366 * 86_400_000
"""How long Kafka keeps a commit. Without it Kafka would delete the commits of a suspended
subscription after offsets.retention.minutes (a week by default), and it would deliver again."""
_LANES = 16
"""Connections for commits to one broker. It answers one request of a connection at a time, and
collects commits for 5 ms (group.coordinator.append.linger.ms) before it writes them together."""
_COORDINATORS_MAX = 20_000
_NOT_COORDINATOR = (
    kafka_errors.GroupCoordinatorNotAvailableError.errno,
    kafka_errors.NotCoordinatorForGroupError.errno,
)
_HAS_MEMBERS = (
    kafka_errors.UnknownMemberIdError.errno,
    kafka_errors.IllegalGenerationError.errno,
    kafka_errors.RebalanceInProgressError.errno,
)


class GroupOffsets:
    """Stores and reads commits."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._coordinators: dict[str, int] = {}

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        """Store a group's progress.

        Raises ValueError for metadata above 4,000 bytes, UnknownTopic, LogUnavailable. Kafka
        answers for each partition; if only some are stored, LogUnavailable says which.
        """
        check_commits(commits)
        await self._brokers.persist(
            f"the commit of {group} in {topic} was not stored",
            lambda: self._commit(group, topic, commits),
        )

    async def committed(self, group: str, topic: str) -> dict[int, Commit]:
        """Return a group's progress; partitions without a commit are absent. Raises
        LogUnavailable.
        """
        return await self._brokers.persist(
            f"the commits of {group} in {topic} cannot be read",
            lambda: self._committed(group, topic),
        )

    async def _commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        await self._brokers.leaders_of(topic, commits)
        if not commits:
            return
        partitions = [
            (number, commit.position, commit.metadata) for number, commit in sorted(commits.items())
        ]
        request = OffsetCommitRequest(
            group, _NO_GENERATION, _NO_MEMBER, _KEPT_MS, [(topic, partitions)]
        )
        answer = await self._ask_coordinator(group, request)
        codes = {number: code for _, answers in answer.topics for number, code in answers}
        failed = {number: code for number, code in codes.items() if code}
        if not failed:
            return
        number, code = next(iter(failed.items()))
        if code in _NOT_COORDINATOR:
            self._coordinators.pop(group, None)
        if code == kafka_errors.UnknownTopicOrPartitionError.errno:
            self._brokers.forget(topic)
            if len(failed) == len(commits):
                raise UnknownTopic(topic)
        if code in _HAS_MEMBERS:
            raise LogUnavailable(
                f"the commit of {group} in {topic} was not stored: another consumer is a "
                "member of that group; stop it, or let it use another group"
            )
        error = kafka_errors.for_code(code)(f"partition {number}")
        if len(failed) == len(commits) or getattr(error, "retriable", False):
            raise error
        raise LogUnavailable(
            f"the commit of {group} in {topic} was stored in part: partitions "
            f"{sorted(set(commits) - set(failed))} have it, {sorted(failed)} have not "
            f"({error})"
        )

    async def _committed(self, group: str, topic: str) -> dict[int, Commit]:
        leaders = await self._brokers.leaders(topic)
        if not leaders:
            return {}
        request = OffsetFetchRequest(group, [(topic, sorted(leaders))])
        answer = await self._ask_coordinator(group, request)
        if answer.error_code in _NOT_COORDINATOR:
            self._coordinators.pop(group, None)
        if answer.error_code:
            raise kafka_errors.for_code(answer.error_code)(group)
        found = {}
        for _, partitions in answer.topics:
            for number, position, metadata, code in partitions:
                if code == kafka_errors.UnknownTopicOrPartitionError.errno:
                    continue
                if code:
                    raise kafka_errors.for_code(code)(f"partition {number}")
                if position >= 0:
                    found[number] = Commit(position, metadata or "")
        return dict(sorted(found.items()))

    async def _ask_coordinator(
        self, group: str, request: OffsetCommitRequest | OffsetFetchRequest
    ) -> Any:
        node = self._coordinators.get(group)
        if node is None:
            node = await self._look_up(group)
        # A checksum, because `hash` differs from process to process.
        purpose = f"commits-{zlib.crc32(group.encode()) % _LANES}"
        try:
            return await self._brokers.ask(request, node=node, purpose=purpose)
        except FAILURES:
            self._coordinators.pop(group, None)
            raise

    async def _look_up(self, group: str) -> int:
        answer = await self._brokers.ask_any(
            FindCoordinatorRequest(group, _GROUP), purpose="metadata"
        )
        if answer.error_code:
            raise kafka_errors.for_code(answer.error_code)(group)
        node: int = answer.coordinator_id
        if len(self._coordinators) >= _COORDINATORS_MAX:
            del self._coordinators[next(iter(self._coordinators))]
        self._coordinators[group] = node
        return node
