"""Manages a cluster's topics: when `create`, `alter` or `delete` return, every live broker shows
the change.

For the host loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)
from msgspec.structs import replace

from hermes_actors.log.base import (
    LogUnavailable,
    TopicSettings,
    UnknownTopic,
    check_alteration,
    check_settings,
)
from hermes_actors.log.kafka.brokers import FAILURES, Brokers
from hermes_actors.log.kafka.positions import Positions
from hermes_actors.log.kafka.settings import (
    LOSING_NAMES,
    SETTING_NAMES,
    changed_configs,
    configs_of,
    incremental_alteration,
    losses_of,
    settings_of,
)
from hermes_actors.runtime.backoff import backoff_s

_logger = logging.getLogger(__name__)

_TOPIC = 2
_TOLD_MAX = 20_000
_CHANGES_MAX = 8
"""Maximum number of concurrent changes: each takes a controller about 20 ms, and a thousand topics
may be created at once."""
_SETTLE_FIRST_S = 0.01
_SETTLE_MAX_S = 0.2


class TopicAdmin:
    """Creates, alters, deletes, describes and lists topics, over connections shared by all."""

    def __init__(self, brokers: Brokers, positions: Positions) -> None:
        self._brokers = brokers
        self._positions = positions
        self._losing: set[str] = set()
        self._changes = asyncio.Semaphore(_CHANGES_MAX)

    async def create(self, topic: str, settings: TopicSettings) -> bool:
        """Create the topic. False if it already exists; else it is usable when this returns.

        Also False if this call created the topic but Kafka's answer was lost: the retry finds a
        topic, and cannot know who created it. It may then not be usable at every broker yet; call
        `describe` to check its settings.

        Raises ValueError for settings or a name that Kafka does not accept, LogUnavailable.
        """
        check_settings(settings)
        async with self._changes:
            if not await self._brokers.persist(
                f"topic {topic} was not created", lambda: self._create(topic, settings)
            ):
                return False
            await self._settle(topic, lambda: self._is_usable(topic, settings.partitions))
            return True

    async def alter(self, topic: str, settings: TopicSettings) -> None:
        """Replace the settings. Raises UnknownTopic, ValueError for fewer partitions,
        LogUnavailable.
        """
        async with self._changes:
            old = await self.describe(topic)
            if old is None:
                raise UnknownTopic(topic)
            check_alteration(topic, old, settings)
            settings = replace(settings, copies_min=max(settings.copies_min, old.copies_min))
            if settings.copies_min > old.copies_min:
                await self._brokers.persist(
                    f"topic {topic} was not altered",
                    lambda: self._check_copies(topic, settings.copies_min),
                )
            if settings.partitions > old.partitions:
                await self._brokers.persist(
                    f"topic {topic} got no more partitions",
                    lambda: self._add_partitions(topic, settings.partitions),
                )
            if changes := changed_configs(old, settings):
                await self._brokers.persist(
                    f"topic {topic} was not altered", lambda: self._alter_configs(topic, changes)
                )
            await self._settle(topic, lambda: self._shows(topic, settings))

    async def delete(self, topic: str) -> bool:
        """Delete the topic with its records and commits. False if there is none. Raises
        LogUnavailable.
        """
        async with self._changes:
            deleted = await self._brokers.persist(
                f"topic {topic} was not deleted", lambda: self._delete(topic)
            )
            self._brokers.forget(topic)
            if deleted:
                await self._settle(topic, lambda: self._is_gone(topic))
            return deleted

    async def describe(self, topic: str) -> TopicSettings | None:
        """Return the topic's settings; None if there is no such topic. Raises LogUnavailable."""
        return await self._brokers.persist(
            f"topic {topic} cannot be described", lambda: self._describe(topic)
        )

    async def names(self) -> list[str]:
        """Return all topics except Kafka's internal ones, sorted. Raises LogUnavailable."""
        described = await self._brokers.persist(
            "topics cannot be listed", lambda: self._brokers.describe(None)
        )
        return sorted(name for code, name, is_internal, _ in described if not (code or is_internal))

    async def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """As `LogTopics.partitions`, in one request."""
        described = await self._brokers.persist(
            "partitions cannot be counted", lambda: self._brokers.describe(list(topics))
        )
        return {name: len(listed) for _, name, _, listed in described if listed}

    # One attempt each.

    async def _create(self, topic: str, settings: TopicSettings) -> bool:
        kafka = self._brokers.settings
        configs = configs_of(settings)
        _require_copies(settings.copies_min, kafka.replication_factor)
        copies_min = max(settings.copies_min, kafka.min_insync_replicas)
        configs["min.insync.replicas"] = str(copies_min)
        configs["unclean.leader.election.enable"] = "false"
        wanted: tuple[Any, ...] = (
            topic,
            settings.partitions,
            kafka.replication_factor,
            [],
            list(configs.items()),
        )
        request = CreateTopicsRequest([wanted], kafka.request_timeout_ms, False)
        answer = await self._brokers.ask_any(request, purpose="topics")
        ((_, code, message),) = answer.topic_errors
        if code == kafka_errors.TopicAlreadyExistsError.errno:
            return False
        if code == kafka_errors.InvalidReplicationFactorError.errno:
            raise LogUnavailable(
                f"topic {topic} was not created: kafka.replication_factor is "
                f"{kafka.replication_factor} and Kafka of {self._brokers.connection.dc} says: "
                f"{message} Start more brokers, or set kafka.replication_factor to at most "
                "their number"
            )
        _raise_for(code, message, topic)
        return True

    async def _add_partitions(self, topic: str, count: int) -> None:
        request = CreatePartitionsRequest(
            [(topic, (count, None))],  # No assignment: Kafka places them.
            self._brokers.settings.request_timeout_ms,
            False,
        )
        answer = await self._brokers.ask_any(request, purpose="topics")
        ((_, code, message),) = answer.topic_errors
        is_refused = code == kafka_errors.InvalidPartitionsError.errno
        if is_refused and len(await self._brokers.leaders(topic, age_max_s=0)) == count:
            return  # An earlier attempt has succeeded.
        _raise_for(code, message, topic)

    async def _check_copies(self, topic: str, copies_min: int) -> None:
        (described,) = await self._brokers.describe([topic])
        _require_copies(copies_min, min(len(replicas) for _, _, _, replicas, *_ in described[3]))

    async def _alter_configs(self, topic: str, changes: dict[str, str]) -> None:
        request = incremental_alteration(topic, changes)
        answer = await self._brokers.ask_any(request, purpose="topics")
        ((code, message, *_),) = answer.resources
        _raise_for(code, message, topic)

    async def _delete(self, topic: str) -> bool:
        request = DeleteTopicsRequest([topic], self._brokers.settings.request_timeout_ms)
        answer = await self._brokers.ask_any(request, purpose="topics")
        ((_, code),) = answer.topic_error_codes
        if code in _NO_SUCH_TOPIC:
            return False
        _raise_for(code, "", topic)
        return True

    async def _describe(self, topic: str, *, node: int | None = None) -> TopicSettings | None:
        request = DescribeConfigsRequest([(_TOPIC, topic, [*SETTING_NAMES, *LOSING_NAMES])])
        (described,) = await self._brokers.describe([topic], node=node)
        if described[0] in _NO_SUCH_TOPIC:
            return None
        if node is None:
            answer = await self._brokers.ask_any(request, purpose="metadata")
        else:
            answer = await self._brokers.ask(request, node=node, purpose="metadata")
        ((code, message, _, _, entries),) = answer.resources
        if code in _NO_SUCH_TOPIC:
            return None
        _raise_for(code, message, topic)
        configs = {name: value for name, value, *_ in entries}
        self._note_losses(topic, losses_of(configs))
        return settings_of(len(described[3]), configs)

    def _note_losses(self, topic: str, losses: dict[str, str]) -> None:
        """Warn once about a topic whose configs, set by others, make it lose messages."""
        if not losses:
            self._losing.discard(topic)
        elif topic not in self._losing and len(self._losing) < _TOLD_MAX:
            self._losing.add(topic)
            wanted = ",".join(f"{name}={value}" for name, value in losses.items())
            _logger.warning(
                "topic %s in Kafka of %s deletes messages too early; correct it with "
                "kafka-configs --alter --entity-type topics --entity-name %s --add-config %s",
                topic,
                self._brokers.connection.dc,
                topic,
                wanted,
            )

    # Waiting until all brokers show a change.

    async def _settle(self, topic: str, is_settled: Callable[[], Awaitable[bool]]) -> None:
        """Wait until every live broker shows the change. Raises LogUnavailable on timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._brokers.request_timeout_s
        tries = 0
        while loop.time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    if await is_settled():
                        return
            except FAILURES:
                pass
            await asyncio.sleep(backoff_s(tries, 0.5, _SETTLE_FIRST_S, _SETTLE_MAX_S))
            tries += 1
        raise LogUnavailable(
            f"topic {topic}: Kafka of {self._brokers.connection.dc} has taken the change but does "
            f"not show it after {self._brokers.settings.request_timeout_ms} ms"
        )

    async def _is_usable(self, topic: str, partitions: int) -> bool:
        for node in await self._brokers.nodes():
            (described,) = await self._brokers.describe([topic], node=node)
            if described[0] or len(described[3]) != partitions:
                return False
            if any(leader < 0 for _, _, leader, *_ in described[3]):
                return False
        # A broker may call itself leader before it has opened the partition, so ask it for offsets.
        self._brokers.forget(topic)
        return len(await self._positions.ask_once(topic, None)) == partitions

    async def _is_gone(self, topic: str) -> bool:
        for node in await self._brokers.nodes():
            (described,) = await self._brokers.describe([topic], node=node)
            if described[0] not in _NO_SUCH_TOPIC:
                return False
        return True

    async def _shows(self, topic: str, settings: TopicSettings) -> bool:
        for node in await self._brokers.nodes():
            found = await self._describe(topic, node=node)
            if found is None:
                raise UnknownTopic(topic)
            if found != settings:
                return False
        return await self._is_usable(topic, settings.partitions)


_NO_SUCH_TOPIC = (
    kafka_errors.UnknownTopicOrPartitionError.errno,
    kafka_errors.InvalidTopicError.errno,
)
_BAD_SETTINGS = (
    kafka_errors.InvalidTopicError.errno,
    kafka_errors.InvalidPartitionsError.errno,
    kafka_errors.InvalidConfigurationError.errno,
    kafka_errors.InvalidRequestError.errno,
    kafka_errors.PolicyViolationError.errno,
)


def _require_copies(copies_min: int, copies: int) -> None:
    if copies < copies_min:
        raise ValueError(
            f"durability CONSISTENT needs {copies_min} copies of a message, and the topic's "
            f"replication factor is {copies}; raise kafka.replication_factor for new topics, "
            "reassign the partitions of this one, or use EVENTUAL"
        )


def _raise_for(code: int, message: str | None, topic: str) -> None:
    if code == kafka_errors.UnknownTopicOrPartitionError.errno:
        raise UnknownTopic(topic)
    if code in _BAD_SETTINGS:
        raise ValueError(f"{topic}: Kafka does not accept it: {message}")
    if code:
        error: Any = kafka_errors.for_code(code)
        raise error(message or topic)
