"""Keeps dead letters in a topic of their group in the datacentre's own log, however long that is
away: a letter is kept when the log has acknowledged it, and never dropped in silence.
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
"""The largest record of a new topic: a message, and 64 KiB of headers, also the letter's."""

_BACKOFF_MAX_S = 5.0


_Pending = tuple[Letter, Callable[[Settlement], None]]
"""A letter on its way, and what to call when it is kept."""


class KeptDeadLetters:
    """The dead letters of one subscription's consumer; `log_topic` is what that reads. While its
    lease is closed they wait.

    A node that wants no dead letters, as in Hermes, keeps none, nor does a subscription with
    `deadLettersEnabled` off. Whatever is on its way when the consumer ends is not settled, so its
    message is sent, and perhaps given up, again.
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
        # As the topic is; None until that is known.
        self._settings: TopicSettings | None = None
        self.trouble = ""
        self._measures.gauge("waiting_dead_letters", Gauge(self, "waiting"))

    @property
    def waiting(self) -> int:
        """How many letters are on their way."""
        return len(self._waiting)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """What keeps letters from being kept."""
        count = len(self._waiting)
        if not self.trouble or not count:
            return ()
        return (because(Code.LETTERS_WAIT, count=count, topic=self.topic, detail=self.trouble),)

    def adopt(self, live: LiveSubscription) -> None:
        """Go on with this version of the subscription."""
        self._live = live

    def letter_of(
        self, delivery: Delivery, reason: DiscardReason, detail: str, status: int
    ) -> Letter:
        """Return the letter of a message that is given up now; the last attempt at it had this
        status, 0 when there was no answer.
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
            # Its record is the one that was made for the re-drive; the original's place counts.
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
        """Keep the letter; `kept` is called with what became of the message: once the log has
        acknowledged the letter, or at once if it is not wanted.

        Never raises and never refuses: whoever adds bounds how many are on their way.
        """
        if not (self._config.enabled and self._live.subscription.dead_letters_enabled):
            kept(Settlement.DROPPED)
            return
        self._waiting.append((letter, kept))
        self._wakeup.set()

    async def run(self) -> None:
        """Keep what is added, for ever; a log that is away is tried again and again."""
        try:
            await self._keep()
        finally:
            # The gauge outlives it while it is suspended; what waits is read again.
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
        """Append the next letters; "", or why some were not stored and are to be tried again."""
        records = self._next_records()
        try:
            settings = await self._require_topic()
            partition = partition_of(self._key, settings.partitions)
            if not self._lease.is_open():
                # Others would see them, and another owner may have the messages by now.
                await self._lease.wait_opened()
            outcomes = await self._log.append(self.topic, partition, records, Ack.ALL)
        except (LogUnavailable, UnknownTopic) as error:
            return str(error)
        except ValueError as error:
            # A policy of the cluster, for an operator to lift; no letter is lost till then.
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
        """Settle what is stored and keep the others waiting; "", or why some are to wait."""
        trouble = ""
        rest: list[_Pending] = []
        for outcome in outcomes:
            letter, kept = self._waiting.popleft()
            if isinstance(outcome, Stored):
                kept(Settlement.DEAD_LETTER)
                continue
            if isinstance(outcome, RefusedRecord):
                # The topic may have gone, or be another one.
                self._settings = None
                if outcome.is_too_large and not letter.missing_bytes:
                    rest.append((self._cut(letter, outcome.reason), kept))
                    continue
            rest.append((letter, kept))
            trouble = trouble or outcome.reason
        self._waiting.extendleft(reversed(rest))
        return trouble

    async def _require_topic(self) -> TopicSettings:
        """Return the topic's settings; it is made if it is not there, and its retention follows
        ours.

        Raises LogUnavailable, and ValueError where the log takes no such topic.
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
                # Retention counts from the giving up, not from the publication.
                log_append_time=True,
            )
            await self._log.topics.create(self.topic, wanted)
            # Another node may have been first, and have other settings.
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
