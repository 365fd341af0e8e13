"""Keeps one datacentre's log topics in line with the metadata: created at once, altered, deleted
late.

Each incarnation of a topic has a separate log topic (`keys.log_topic_of`), so deleting the data of
an ended incarnation can never affect a topic that was created again.
"""

import random
from collections.abc import Iterable, Mapping

import msgspec
import trio

from hermes_actors.actors.supervisor import run_until
from hermes_actors.config import Config
from hermes_actors.errors import Unavailable
from hermes_actors.log.base import TopicSettings, UnknownTopic
from hermes_actors.metadata.catalog import LiveTopic, TopicChanged
from hermes_actors.metadata.commands import StampIs, delete
from hermes_actors.metadata.keys import parse_log_topic, subscription_key, topic_key
from hermes_actors.metadata.lives import left_behind, stale_activations
from hermes_actors.metadata.registry import Metadata
from hermes_actors.model.names import TopicName
from hermes_actors.model.topic import COPIES_MIN, Durability, Topic
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock

_FAILED_IN_A_ROW_MAX = 3
_REFUSED_SHOWN_MAX = 3
_DELETED_MAX = 100
"""Maximum deletions of each kind in one sweep; the next sweeps do the rest."""

_HEADERS_BYTES_MAX = 32_768
"""Room in a record besides the message's body: id, trace context, propagated headers."""


def settings_for(topic: Topic, config: Config) -> TopicSettings:
    """Return the settings of a new log topic for this topic; an existing log topic keeps its
    partitions.
    """
    return TopicSettings(
        partitions=config.management.topic_partitions,
        retention_ms=topic.retention_time.milliseconds,
        record_bytes_max=max(
            config.management.topic_bytes_max, topic.max_message_size + _HEADERS_BYTES_MAX
        ),
        copies_min=COPIES_MIN if topic.durability is Durability.CONSISTENT else 1,
    )


class TopicReconciler:
    """Idempotent, so several nodes may run it. `others` is the metadata of all other datacentres.

    Data is deleted once the topic's deletion is `metadata.topic_data_deletion_delay_ms` old and
    every datacentre knows it: until then a publisher elsewhere may still fall back to this log. Log
    topics that the metadata has never known are left alone. A topic that the log refuses (Kafka
    refuses names that differ only in `.` and `_`) is named in `trouble` and does not delay others.
    Each `sweep_interval_s`, a sweep checks everything. It also deletes subscriptions of ended
    topics, and the retransmissions, re-drives and this datacentre's activations of ended
    subscriptions.
    """

    def __init__(
        self,
        metadata: Metadata,
        others: Mapping[str, Metadata],
        config: Config,
        *,
        clock: Clock,
        rng: random.Random,
        sweep_interval_s: float = 60.0,
    ) -> None:
        self.trouble = ""
        self._metadata = metadata
        self._others = others
        self._config = config
        self._clock = clock
        self._sweep_interval_s = sweep_interval_s
        self._sweep_at_s = 0.0
        self._backoff = Backoff(rng)
        # Log topic → why the log refuses it; limited by the number of topics.
        self._refused: dict[str, str] = {}

    async def run(self, stop: trio.Event) -> None:
        """Follow the metadata until asked to stop."""
        await run_until(stop, self._follow)

    async def _follow(self) -> None:
        with self._metadata.watch() as watch:
            self._sweep_at_s = trio.current_time()
            while True:
                await self._metadata.wait_current()
                with trio.move_on_at(self._sweep_at_s):
                    await watch.wait()
                changed = [
                    change.topic
                    for change in watch.take_nowait()
                    if isinstance(change, TopicChanged) and change.topic is not None
                ]
                try:
                    await self._follow_each(changed)
                    if trio.current_time() >= self._sweep_at_s:
                        await self.sweep()
                        self._sweep_at_s = trio.current_time() + self._sweep_interval_s
                except (Unavailable, UnknownTopic) as error:
                    # The next sweep makes the changes that are still missing.
                    self.trouble = str(error)
                    self._sweep_at_s = trio.current_time()
                    await trio.sleep(self._backoff.next_s())
                else:
                    self.trouble = self._refusals()
                    self._backoff.reset()

    async def _follow_each(self, topics: Iterable[LiveTopic]) -> None:
        """Follow all of these topics, apart from those that fail. Raises Unavailable or
        UnknownTopic if any failed; stops early if so many fail in a row that the log itself must be
        failing.
        """
        failure: Unavailable | UnknownTopic | None = None
        failed_in_a_row = 0
        for topic in topics:
            try:
                await self.follow_topic(topic)
            except ValueError as error:
                self._refused[topic.log_topic] = str(error)
            except (Unavailable, UnknownTopic) as error:
                failure = error
                failed_in_a_row += 1
                if failed_in_a_row == _FAILED_IN_A_ROW_MAX:
                    break
            else:
                failed_in_a_row = 0
                self._refused.pop(topic.log_topic, None)
        if failure is not None:
            raise failure

    def _refusals(self) -> str:
        reasons = [self._refused[log_topic] for log_topic in sorted(self._refused)]
        more = len(reasons) - _REFUSED_SHOWN_MAX
        return "; ".join(
            [*reasons[:_REFUSED_SHOWN_MAX], *([f"and {more} more topics"] if more > 0 else [])]
        )

    async def follow_topic(self, topic: LiveTopic) -> None:
        """Create the topic's log topic, or update its settings.

        Raises LogUnavailable; ValueError if the log refuses the topic.
        """
        if topic.topic.is_in_memory:
            return
        log = self._metadata.log
        wanted = settings_for(topic.topic, self._config)
        held = await log.topics.describe(topic.log_topic)
        if held is None:
            await log.topics.create(topic.log_topic, wanted)
            return
        # More partitions would move a key's later messages elsewhere: the operator decides that.
        wanted = msgspec.structs.replace(
            wanted,
            partitions=held.partitions,
            log_append_time=held.log_append_time,
            copies_min=max(wanted.copies_min, held.copies_min),
        )
        if wanted != held:
            await log.topics.alter(topic.log_topic, wanted)

    async def sweep(self) -> None:
        """Follow every topic, and delete what is over. Raises LogUnavailable, Unavailable."""
        catalog = self._metadata.catalog
        self._refused = {
            log_topic: reason
            for log_topic, reason in self._refused.items()
            if self._is_live(log_topic)
        }
        # Look up each topic when its turn comes: it may have been deleted.
        await self._follow_each(
            catalog.topics[name] for name in sorted(catalog.topics) if name in catalog.topics
        )
        for log_topic in await self._metadata.log.topics.names():
            if self._may_delete(log_topic):
                await self._metadata.log.topics.delete(log_topic)
        catalog, register_of = self._metadata.catalog, self._metadata.register
        for change in (
            *left_behind(catalog, register_of, _DELETED_MAX),
            *stale_activations(catalog, register_of, self._metadata.dc, _DELETED_MAX),
        ):
            if self._metadata.is_current:
                await self._metadata.change(change)
        for orphan in list(self._metadata.catalog.orphans.values()):
            if orphan.is_final and self._metadata.is_current:
                key = subscription_key(orphan.name)
                await self._metadata.change(delete(key, StampIs(key, orphan.stamp)))

    def _may_delete(self, log_topic: str) -> bool:
        parsed = parse_log_topic(log_topic, self._metadata.namespace)
        if parsed is None or not self._metadata.is_current:
            return False
        name, incarnation = parsed
        deleted_at_ms = self._over_since_ms(name, incarnation)
        if deleted_at_ms is None or self._is_live(log_topic):
            return False
        if not all(
            self._has_deletion(other, name, deleted_at_ms) for other in self._others.values()
        ):
            return False
        delay_ms = self._config.metadata.topic_data_deletion_delay_ms
        return self._clock.now_ms() >= deleted_at_ms + delay_ms

    def _over_since_ms(self, name: TopicName, incarnation: int) -> int | None:
        """When this incarnation was deleted; None if it is not deleted. A tombstone's incarnation
        is its stamp, which is log time in ms.
        """
        register = self._metadata.register(topic_key(name))
        if register is None or register.incarnation <= incarnation:
            return None
        return register.incarnation

    def _is_live(self, log_topic: str) -> bool:
        # An operator's own group pattern may allow names that look like a later incarnation's.
        topics = self._metadata.catalog.topics.values()
        return any(topic.log_topic == log_topic for topic in topics)

    @staticmethod
    def _has_deletion(other: Metadata, name: TopicName, deleted_at_ms: int) -> bool:
        register = other.register(topic_key(name))
        return other.is_current and register is not None and register.incarnation >= deleted_at_ms
