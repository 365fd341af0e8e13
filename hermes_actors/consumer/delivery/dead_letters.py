"""Keeps dead letters in their group's topic of the datacentre's own log. A letter waits until the
log has acknowledged it, however long that takes, and is never dropped silently.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import trio
from msgspec.structs import replace

from hermes_actors.consumer.delivery.delivery import Delivery, Settlement
from hermes_actors.consumer.delivery.measures import Gauge, SubscriptionMeasures
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.coordination.lease import Lease
from hermes_actors.log.base import (
    LogUnavailable,
    Outcome,
    RefusedRecord,
    Stored,
    TopicSettings,
    UnknownTopic,
)
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import (
    DiscardReason,
    Letter,
    dlq_topic,
    letter_record,
    without_value,
)
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import Record
from hermes_actors.model.topic import MESSAGE_BYTES_MAX, Ack
from hermes_actors.runtime.backoff import Backoff
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.status.reasons import Code, Reason, because

_logger = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 200
BATCH_BYTES_MAX = 1_048_576

RECORD_BYTES_MAX = MESSAGE_BYTES_MAX + 65_536
"""The record limit of a new topic: a message plus 64 KiB of headers, those of the letter included.
"""

_BACKOFF_MAX_S = 5.0


_Pending = tuple[Letter, Callable[[Settlement], None]]
"""A letter on its way, and the callback when it is kept."""


class KeptDeadLetters:
    """The dead letters of one subscription's consumer, which reads `log_topic`. They wait while the
    lease is closed.

    Nothing is kept if the node or the subscription (`deadLettersEnabled`) has dead letters off, as
    in Hermes. If the consumer ends before a letter is kept, its message is not settled, so it is
    pushed again and perhaps given up again.
    """

    def __init__(
        self,
        live: LiveSubscription,
        log_topic: str,
        parts: ConsumerParts,
        lease: Lease,
    ) -> None:
        self._lease = lease
        self._live = live
        self._log = parts.log
        self._log_topic = log_topic
        self._clock = parts.clock
        self._config = parts.config.dead_letters
        self._measures = SubscriptionMeasures(parts.metrics, live.name)
        self._name = str(live.name)
        self._key = self._name.encode()
        self.topic = dlq_topic(live.name.topic.group, parts.namespace)
        self._waiting: deque[_Pending] = deque()
        self._wakeup = Wakeup()
        self._backoff = Backoff(parts.rng, wait_max_s=_BACKOFF_MAX_S)
        # The topic's settings; None until they are known.
        self._settings: TopicSettings | None = None
        self.trouble = ""
        self._measures.gauge("waiting_dead_letters", Gauge(self, "waiting"))

    @property
    def waiting(self) -> int:
        """The number of letters on their way."""
        return len(self._waiting)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What stops letters from being kept."""
        count = len(self._waiting)
        if not self.trouble or not count:
            return ()
        return (because(Code.LETTERS_WAIT, count=count, topic=self.topic, detail=self.trouble),)

    def adopt(self, live: LiveSubscription) -> None:
        """Apply a new version of the subscription."""
        self._live = live

    def letter_of(
        self, delivery: Delivery, reason: DiscardReason, detail: str, status: int
    ) -> Letter:
        """The letter of a message that is given up now. `status` is that of its last attempt, 0 if
        there was no answer.
        """
        record, again = delivery.record, delivery.redriven
        missed = () if delivery.served is None else delivery.served.missed
        end: dict[str, Any] = {
            "reason": reason.value,
            "detail": detail,
            "attempts": delivery.attempts,
            "status": status,
            "at_ms": self._clock.now_ms(),
        }
        if again is not None:
            # `delivery.record` was made for the re-drive; the letter keeps the place of the
            # original.
            return replace(
                again,
                value=record.value,
                missing_bytes=0,
                redrives=again.redrives + 1,
                missed=missed or again.missed,
                **end,
            )
        return Letter(
            dc=self._log.dc,
            subscription=self._name,
            incarnation=self._live.incarnation,
            log_topic=self._log_topic,
            partition=record.partition,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
            message_id=record.place if delivery.message is None else delivery.message.id,
            is_tombstone=record.is_tombstone,
            missed=missed,
            **end,
        )

    def add(self, letter: Letter, kept: Callable[[Settlement], None]) -> None:
        """Keep the letter. `kept` is called with the message's settlement: once the log has
        acknowledged the letter, or at once if dead letters are off.

        Never raises and never refuses; the caller must bound how many are on their way.
        """
        if not (self._config.enabled and self._live.subscription.dead_letters_enabled):
            kept(Settlement.DROPPED)
            return
        self._waiting.append((letter, kept))
        self._wakeup.set()

    async def run(self) -> None:
        """Keep the added letters. Never ends; retries while the log is unavailable."""
        try:
            await self._keep()
        finally:
            # The gauge outlives the consumer while the subscription is suspended. Waiting messages
            # are read again.
            self._waiting.clear()

    async def _keep(self) -> None:
        while True:
            if not self._waiting:
                await self._wakeup.wait()
                continue
            trouble = await self._try_to_keep()
            if trouble:
                if not self.trouble:
                    _logger.warning("%s: dead letters wait: %s", self._name, trouble)
                self._measures.dead_letter_failures.add()
                self.trouble = trouble
                await trio.sleep(self._backoff.next_s())
            else:
                self.trouble = ""
                self._backoff.reset()

    async def _try_to_keep(self) -> str:
        """Append the next letters. Return why some were not stored and must be retried, else an
        empty string.
        """
        records = self._next_records()
        try:
            settings = await self._require_topic()
            partition = partition_of(self._key, settings.partitions)
            if not self._lease.is_open():
                # A dead letter is visible to others, and another owner may have the messages by
                # now.
                await self._lease.wait_opened()
            outcomes = await self._log.append(self.topic, partition, records, Ack.ALL)
        except (LogUnavailable, UnknownTopic) as error:
            return str(error)
        except ValueError as error:
            # A policy of the cluster, for an operator to change; letters wait until then.
            return f"the log does not take the topic: {error}"
        return self._take_in(outcomes)

    def _next_records(self) -> list[Record]:
        records: list[Record] = []
        room_bytes = BATCH_BYTES_MAX
        for letter, _ in self._waiting:
            record = letter_record(letter)
            room_bytes -= record.size_bytes
            if records and (room_bytes < 0 or len(records) == BATCH_RECORDS_MAX):
                break
            records.append(record)
        return records

    def _take_in(self, outcomes: Sequence[Outcome]) -> str:
        """Settle the stored letters and keep the others waiting. Return why some must wait, else an
        empty string.
        """
        trouble = ""
        rest: list[_Pending] = []
        for outcome in outcomes:
            letter, kept = self._waiting.popleft()
            if isinstance(outcome, Stored):
                kept(Settlement.DEAD_LETTER)
                continue
            if isinstance(outcome, RefusedRecord):
                # The topic may have been deleted or replaced.
                self._settings = None
                if outcome.is_too_large and not letter.missing_bytes:
                    rest.append((self._cut(letter, outcome.reason), kept))
                    continue
            rest.append((letter, kept))
            trouble = trouble or outcome.reason
        self._waiting.extendleft(reversed(rest))
        return trouble

    async def _require_topic(self) -> TopicSettings:
        """The topic's settings. Creates the topic if necessary, and adjusts its retention to the
        configured one.

        Raises LogUnavailable, and ValueError if the log does not allow such a topic.
        """
        if self._settings is not None:
            return self._settings
        retention_ms = self._config.retention_ms
        held = await self._log.topics.describe(self.topic)
        if held is None:
            wanted = TopicSettings(
                partitions=self._config.partitions,
                retention_ms=retention_ms,
                record_bytes_max=RECORD_BYTES_MAX,
                # Retention counts from the time of giving up, not of publishing.
                log_append_time=True,
            )
            await self._log.topics.create(self.topic, wanted)
            # Another node may have created it first, with other settings.
            held = await self._log.topics.describe(self.topic) or wanted
        if held.retention_ms != retention_ms:
            held = replace(held, retention_ms=retention_ms)
            await self._log.topics.alter(self.topic, held)
        self._settings = held
        return held

    def _cut(self, letter: Letter, reason: str) -> Letter:
        _logger.warning(
            "%s: dead letter %s is kept without its message of %d bytes, which stays in %s as long "
            "as that keeps it: %s",
            self._name,
            letter.id,
            len(letter.value),
            self._log_topic,
            reason,
        )
        self._measures.dead_letters_truncated.add()
        return without_value(letter)
