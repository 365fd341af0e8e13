"""One datacentre's log topics follow the metadata: created at once, altered, deleted late.

Every life of a topic has a log topic of its own (`keys.log_topic_of`), so deleting the data of a
life that is over can never hit a topic that was created again meanwhile.
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
from hermes_actors.model.topic import Topic
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.clock import Clock

_FAILED_IN_A_ROW_MAX = 3
_REFUSED_SHOWN_MAX = 3
_DELETED_MAX = 100
"""Of each kind in one sweep; more follow in the next ones."""

_HEADERS_BYTES_MAX = 32_768
"""Room in a record for what is not the message's body: id, trace context, propagated headers."""


def settings_for(topic: Topic, config: Config) -> TopicSettings:
    """Give the settings of a new log topic for this topic; an existing one keeps its partitions."""
    return TopicSettings(
        partitions=config.management.topic_partitions,
        retention_ms=topic.retention_time.milliseconds,
        record_bytes_max=max(
            config.management.topic_bytes_max, topic.max_message_size + _HEADERS_BYTES_MAX
        ),
    )


class TopicReconciler:
    """Idempotent, so several nodes may run it. `others` are all other datacentres' metadata.

    Data is deleted once the topic's deletion is `metadata.topic_data_deletion_delay_ms` old and
    every datacentre has it: until then a publisher elsewhere may still fall back to this log. Log
    topics that the metadata has never known are left alone. A topic that the log does not take
    (Kafka refuses names that differ in `.` and `_` only) is named in `trouble` and holds up no
    other. A sweep over everything, each `sweep_interval_s`, also deletes the subscriptions of
    topics' lives that are over, and the retransmissions, re-drives and this datacentre's
    activations of subscriptions' lives that are.
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
        # Log topic → why the log does not take it; bounded by the topics that exist.
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
                    # What was taken from the watch and not done yet, the next sweep does.
                    self.trouble = str(error)
                    self._sweep_at_s = trio.current_time()
                    await trio.sleep(self._backoff.next_s())
                else:
                    self.trouble = self._refusals()
                    self._backoff.reset()

    async def _follow_each(self, topics: Iterable[LiveTopic]) -> None:
        """Follow them all but those that fail. Raises Unavailable, UnknownTopic then; before the
        end when so many fail in a row that it must be the log.
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
        """Create the topic's log topic, or give it the topic's settings.

        Raises LogUnavailable, ValueError if the log takes no such topic.
        """
        log = self._metadata.log
        wanted = settings_for(topic.topic, self._config)
        held = await log.topics.describe(topic.log_topic)
        if held is None:
            await log.topics.create(topic.log_topic, wanted)
            return
        # More partitions would put a key's later messages elsewhere: an operator's decision.
        wanted = msgspec.structs.replace(
            wanted, partitions=held.partitions, log_append_time=held.log_append_time
        )
        if wanted != held:
            await log.topics.alter(topic.log_topic, wanted)

    async def sweep(self) -> None:
        """Follow every topic, delete what is over. Raises LogUnavailable, Unavailable."""
        catalog = self._metadata.catalog
        self._refused = {
            log_topic: reason
            for log_topic, reason in self._refused.items()
            if self._is_live(log_topic)
        }
        # One after the other: a topic may have gone when its turn comes.
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
        """The time of this life's deletion, None while it is not deleted: a deletion's incarnation
        is its stamp, a log time in ms.
        """
        register = self._metadata.register(topic_key(name))
        if register is None or register.incarnation <= incarnation:
            return None
        return register.incarnation

    def _is_live(self, log_topic: str) -> bool:
        # A group pattern of the operator's own may allow names that look like a later life's.
        topics = self._metadata.catalog.topics.values()
        return any(topic.log_topic == log_topic for topic in topics)

    @staticmethod
    def _has_deletion(other: Metadata, name: TopicName, deleted_at_ms: int) -> bool:
        register = other.register(topic_key(name))
        return other.is_current and register is not None and register.incarnation >= deleted_at_ms
