"""The actor of one subscription, serial or batch. Delivers at least once, within its bounds.

Data flows from left to right: log → screen → buffer → sender → outcome → settled offset → commit. A
`Dispatching` decides, without waiting, what is pushed when. This actor does the waiting: for
records, due retries and the rate. It also commits what is settled.
"""

import logging
from collections.abc import Callable
from typing import Any

import trio

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.consumer.batch.dispatch import BatchDispatch
from hermes_actors.consumer.delivery.bodies import Bodies
from hermes_actors.consumer.delivery.dead_letters import KeptDeadLetters
from hermes_actors.consumer.delivery.delivery import ToEach
from hermes_actors.consumer.delivery.dispatching import FILL_MAX, Dispatching, Surroundings
from hermes_actors.consumer.delivery.measures import Gauge, SubscriptionMeasures
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.pushing import recipients_of
from hermes_actors.consumer.letters.redrive import Redriver
from hermes_actors.consumer.offsets.progress import REFRESH_S, TopicProgress
from hermes_actors.consumer.pulling.dispatch import PullDispatch
from hermes_actors.consumer.reading.filters import Screening
from hermes_actors.consumer.reading.intake import Intake
from hermes_actors.consumer.recipients.signing import signer_of
from hermes_actors.consumer.serial.dispatch import SerialDispatch
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.owned import Owned, Spent
from hermes_actors.errors import Refused
from hermes_actors.filters.compiled import refusal
from hermes_actors.log.base import LogUnavailable, UnknownTopic
from hermes_actors.metadata.catalog import LiveSubscription, LiveTopic
from hermes_actors.model.subscription import BatchPolicy, DeliveryType
from hermes_actors.model.topic import ContentType
from hermes_actors.runtime.wakeup import Wakeup
from hermes_actors.status.lag import Reached
from hermes_actors.status.reasons import Code, Reason, because
from hermes_actors.status.record import SubscriptionFigures

_logger = logging.getLogger(__name__)

_COMMIT_TIMEOUT_S = 3.0


class PushConsumer:
    """The actor for one subscription. Its inbox carries new versions of the subscription.

    It pushes and commits the partitions in `owned` while the lease is open; while it is closed,
    nothing changes. `topic_content` is the topic's content type; a change of it needs a new
    consumer. `on_started` is called once, when the start offsets are known. The consumer stops when
    its inbox ends: no new attempt begins, pushes in flight get `stop_grace_ms` (`handover_grace_ms`
    after `hand_over`), and everything settled is committed.
    """

    def __init__(
        self,
        live: LiveSubscription,
        log_topic: str,
        parts: ConsumerParts,
        *,
        topic_content: ContentType = ContentType.JSON,
        owned: Owned | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises Refused for an endpoint that cannot be pushed to. Without `owned` it owns all
        partitions.
        """
        owned = owned or Owned()
        self._clock = parts.clock
        self._rng = parts.rng
        self._config = parts.config
        self._log_topic = log_topic
        self._on_started = on_started
        self._owned = owned
        self._lease = owned.lease
        self._stop_grace_s = parts.config.stop_grace_ms / 1_000
        self._uncommitted = parts.uncommitted
        is_batch = isinstance(live.subscription.subscription_policy, BatchPolicy)
        self._measures = SubscriptionMeasures(parts.metrics, live.name, is_batch=is_batch)
        listeners = parts.listeners(live)
        # Without listeners, skip the indirection.
        transitions = ToEach([self._measures, *listeners]) if listeners else self._measures
        self._commits = parts.metrics.timer("offset_commits_duration")
        self._failed_commits = parts.metrics.counter("offset_commits_failures")
        self._progress = TopicProgress(
            live, parts.log, log_topic, parts.namespace, owned, parts.config.clock_skew_max_ms
        )
        self._progress.cover = parts.cover(live)
        self._wakeup = Wakeup()
        self._touched = Wakeup()
        self._landed = Wakeup()
        self._sought = Wakeup()
        self._is_stopping = False
        self._letters = KeptDeadLetters(live, log_topic, parts, owned.lease)
        is_pulled = live.subscription.delivery_type is DeliveryType.PULL
        serial = PullDispatch if is_pulled else SerialDispatch
        dispatch = BatchDispatch if is_batch else serial
        self._dispatch: Dispatching[Any] = dispatch(
            live,
            Surroundings(
                parts,
                owned,
                transitions,
                self._letters,
                wake=self._wakeup.set,
                note_settled=self._note_settled,
                note_landed=self._landed.set,
            ),
        )
        buffer = self._buffer = self._dispatch.buffer
        bodies = Bodies(live, topic_content, parts.avro, parts.clock)
        self._screening = Screening(live, parts, self._measures, owned.lease, bodies)
        self._intake = Intake(
            parts.log,
            log_topic,
            live.name.name,
            self._progress,
            buffer,
            parts.config,
            self._measures,
            transitions,
            self._on_read,
            self._dispatch.give_up,
            self._screening,
        )
        self._dispatch.note_room = self._intake.note_room
        owned.share.on_change = self._divide
        self._redriver = Redriver(
            live, parts, buffer, self._on_read, self._dispatch.give_up, bodies, owned.lease
        )
        self._read_ahead()
        for name, attribute in (("inflight", "inflight"), ("waiting_retries", "waiting")):
            self._measures.gauge(name, Gauge(buffer, attribute))
        span_max = parts.config.unsettled_span_max
        self._measures.gauge("pending_offsets", lambda: self._progress.span / span_max)

    async def run(self, inbox: Inbox[LiveSubscription]) -> None:
        """Deliver until the inbox ends, then drain and commit."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._work)
                nursery.start_soon(self._letters.run)
                async for live in inbox:
                    if self._intake.seek(live.seek):
                        self._sought.set()
                    # After a restart it starts with the latest version; queued ones may be older.
                    if live.stamp >= self._dispatch.live.stamp:
                        self._dispatch.adopt(live)
                        self._letters.adopt(live)
                        self._screening.adopt(live)
                        self._read_ahead()
                        self._wakeup.set()
                self._is_stopping = True
                self._dispatch.stop()
                self._intake.stop()
                await self._drain()
                nursery.cancel_scope.cancel()
        finally:
            self._is_stopping = True
            self._dispatch.abandon()
            # A stopped consumer has nothing pending, and the gauge must not keep it in memory.
            self._measures.gauge("pending_offsets", float)

    def hand_over(self) -> None:
        """Shorten the stop that follows, because another node waits for the partitions."""
        self._stop_grace_s = self._config.handover_grace_ms / 1_000

    def known(self) -> RateState | None:
        """The endpoint's rate for the next owner to start with; None if unknown."""
        return self._dispatch.pace.known()

    def spent(self) -> Spent:
        """What was pushed since the consumer was made, and the rate allowed now."""
        dispatch = self._dispatch
        return Spent(dispatch.taken, dispatch.taken_bytes, dispatch.pace.allowed)

    @property
    def hand_out(self) -> PullDispatch | None:
        """Where clients fetch and acknowledge its messages; None if they are pushed."""
        dispatch = self._dispatch
        return dispatch if isinstance(dispatch, PullDispatch) else None

    @property
    def _reasons(self) -> tuple[Reason, ...]:
        if self._is_stopping:
            return (because(Code.STOPPING),)
        gone = self._dispatch.gone
        return (
            *((because(Code.SUSPENDED_BY_BROKER, detail=gone),) if gone else self._intake.reasons),
            *self._letters.reasons,
            *self._dispatch.reasons,
            *self._screening.reasons,
            *self._redriver.reasons,
        )

    def figures(self) -> SubscriptionFigures:
        """The figures for the node's status record, without the age of its oldest message."""
        dispatch = self._dispatch
        failure = dispatch.last_failure
        return SubscriptionFigures(
            reasons=self._reasons,
            counts=self._measures.flow(),
            inflight=self._buffer.inflight,
            waiting_retries=self._buffer.waiting,
            last_failure="" if failure is None else failure.reason(),
            last_failure_kind="" if failure is None else failure.kind,
            last_failure_at_ms=dispatch.last_failure_ms,
            last_success_at_ms=dispatch.last_success_ms,
            level=dispatch.pace.level.value,
            rate_now=dispatch.pace.rate_now,
            last_undelivered=dispatch.last_undelivered,
            last_attempts=dispatch.last_attempts,
            latency_ms=self._measures.recent_latency.ms(self._clock.monotonic_s()),
        )

    def reached(self) -> Reached:
        """Return how far it is. Of messages that are not read yet, none is the oldest."""
        found = self._progress.partitions.values()
        stored = [each.oldest_ms for each in found if each.oldest_ms is not None]
        return Reached(self._log_topic, self._progress.reached(), min(stored, default=None))

    def _note_settled(self) -> None:
        if self._intake.lacks_bytes:
            self._intake.note_settled()
        if not self._touched.is_set:
            self._touched.set()

    def _divide(self) -> None:
        self._dispatch.pace.divide()
        self._wakeup.set()

    def _read_ahead(self) -> None:
        self._intake.read_ahead = min(
            self._config.read_batch_records_max, self._dispatch.read_ahead
        )
        # Reading goes on while the fresh queue is at most half of `read_ahead`; re-drives stay
        # below that.
        self._redriver.fresh_max = self._intake.read_ahead // 4

    # Starting and stopping.

    async def _work(self) -> None:
        await self._screening.prepare()
        await self._intake.find_start()
        self._touched.set()
        self._on_started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._screening.run)
            nursery.start_soon(self._intake.run)
            nursery.start_soon(self._intake.watch_partitions)
            nursery.start_soon(self._intake.settle_doubts)
            nursery.start_soon(self._send)
            nursery.start_soon(self._commit_regularly)
            if self._owned.is_first:
                nursery.start_soon(self._redriver.run)
            nursery.start_soon(self._progress.keep_committed, self._touched.set, self._rng)
            nursery.start_soon(self._follow_seeks, nursery)

    async def _follow_seeks(self, nursery: trio.Nursery) -> None:
        """Move to the target of each new retransmission and commit it at once."""
        while True:
            await self._sought.wait()
            await self._intake.arrive()
            await self._commit()
            nursery.start_soon(self._progress.keep_committed, self._touched.set, self._rng)

    def _on_read(self) -> None:
        self._touched.set()
        self._dispatch.on_read()

    async def _drain(self) -> None:
        with trio.move_on_after(self._stop_grace_s):
            while self._buffer.inflight or self._buffer.buried:
                await self._landed.wait()
        with trio.move_on_after(_COMMIT_TIMEOUT_S):
            await self._commit()
            await self._flush_redrive()
        if behind := self._progress.uncommitted():
            _logger.warning(
                "%s: stopped, but its last commit was not %s; messages of partitions %s "
                "delivered since the previous commit may be delivered again",
                self._dispatch.live.name,
                f"taken within {_COMMIT_TIMEOUT_S:g} s" if self._lease.is_open() else "allowed",
                ", ".join(map(str, behind)),
            )

    async def _flush_redrive(self) -> None:
        try:
            await self._redriver.flush()
        except (LogUnavailable, UnknownTopic) as error:
            _logger.warning(
                "%s: stopped before it could record which dead letters it has re-driven; some "
                "may be delivered again: %s",
                self._dispatch.live.name,
                error,
            )

    async def _send(self) -> None:
        """Send what becomes due by time or by reading. Answers trigger further sends themselves."""
        dispatch = self._dispatch
        while True:
            if dispatch.error is not None:
                raise dispatch.error
            if not self._lease.is_open():
                # Everything stays as it is and goes on when the lease opens again.
                await self._lease.wait_opened()
                self._touched.set()
            now_s = self._clock.monotonic_s()
            if dispatch.fill(now_s) == FILL_MAX:
                await trio.lowlevel.checkpoint()
                continue
            wait_s = dispatch.idle_s(now_s)
            dispatch.alarm_s = now_s + wait_s
            await self._wakeup.wait(wait_s)

    # Committing.

    async def _commit_regularly(self) -> None:
        interval_s = self._config.commit_interval_ms / 1_000
        while True:
            # An idle subscription costs only its hourly refresh.
            await self._touched.wait(REFRESH_S)
            await trio.sleep(interval_s)
            self._intake.review()
            await self._commit()

    async def _commit(self) -> None:
        started_s = self._clock.monotonic_s()
        try:
            await self._progress.commit(started_s)
            self._commits.observe(self._clock.monotonic_s() - started_s)
            if not self._lease.is_open():
                # Some or all of it was not committed.
                self._touched.set()
        except (LogUnavailable, UnknownTopic) as error:
            # Nothing is lost: the next commit covers everything in this one.
            self._measures.commit_failures.add()
            self._failed_commits.add()
            self._touched.set()
            name, now_s = str(self._dispatch.live.name), self._clock.monotonic_s()
            self._uncommitted.failed(name, error, now_s)


class ConsumerFactory:
    """Makes serial and batch consumers from a node's shared parts."""

    def __init__(self, parts: ConsumerParts) -> None:
        self._parts = parts

    def refusal(self, live: LiveSubscription, topic: LiveTopic) -> str:
        """Why the subscription cannot be consumed as it stands. Empty string if it can."""
        subscription = live.subscription
        is_batch = subscription.delivery_type is DeliveryType.BATCH
        if isinstance(subscription.subscription_policy, BatchPolicy) is not is_batch:
            return "subscriptionPolicy is not of the kind that deliveryType says"
        is_avro = subscription.content_type is ContentType.AVRO
        if not_known := refusal(subscription.filters):
            return not_known
        try:
            signer_of(subscription)
            if subscription.delivery_type is DeliveryType.PULL:
                return ""
            if recipients_of(live, self._parts).is_by_message and is_avro:
                return "endpoint: a {field} is filled from JSON; use contentType JSON"
        except Refused as error:
            return error.message
        return ""

    def make(
        self,
        live: LiveSubscription,
        topic: LiveTopic,
        owned: Owned | None = None,
        on_started: Callable[[], None] = lambda: None,
    ) -> PushConsumer:
        """Make a consumer of the owned partitions (None: all). Only for subscriptions that
        `refusal` accepts.
        """
        return PushConsumer(
            live,
            topic.log_topic,
            self._parts,
            topic_content=topic.topic.content_type,
            owned=owned,
            on_started=on_started,
        )
