"""Pushes one subscription's messages one by one: at least once, within its rate and its bounds.

Data flows from left to right: log → fresh lane → in-flight window → sender → outcome → settled
offset → commit. A failed message waits in a lane of its own and never blocks fresh ones. No task
and no timer for each message: the sender's callback settles one message and sends the next, on the
same thread; the actor itself is woken by what was read, by due retries and by the rate.
"""

import logging
import random
from collections.abc import Callable
from functools import partial

import trio
from msgspec import Struct

from hermes_actors.actors.mailbox import Inbox
from hermes_actors.config import ConsumersConfig
from hermes_actors.consumer.endpoint import Unresolved, parse_endpoint
from hermes_actors.consumer.headers import request_head
from hermes_actors.consumer.intake import Intake
from hermes_actors.consumer.lanes import Delivery, Lanes
from hermes_actors.consumer.measures import Gauge, SubscriptionMeasures, Undelivered
from hermes_actors.consumer.offsets import Ownership
from hermes_actors.consumer.progress import REFRESH_S, TopicProgress
from hermes_actors.consumer.rate import RateLimit
from hermes_actors.consumer.retry import (
    Again,
    Discard,
    DiscardReason,
    RetryPolicy,
    decide,
)
from hermes_actors.consumer.sender import Failure, Push, Sender, SendOutcome
from hermes_actors.consumer.wakeup import Wakeup
from hermes_actors.log.base import Log, LogUnavailable, UnknownTopic
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.message import UndecodableRecord, from_record
from hermes_actors.model.subscription import SerialPolicy
from hermes_actors.runtime.clock import Clock, IdSource
from hermes_actors.status.collector import SubscriptionFigures
from hermes_actors.telemetry.metrics import Metrics

_logger = logging.getLogger(__name__)

# Sends between two looks at the other actors: about 2 ms of work.
_FILL_MAX = 128
_COMMIT_TIMEOUT_S = 3.0
# An alarm that is that little too late is not worth a waking.
_ALARM_SLACK_S = 1e-4


class ConsumerParts(Struct, frozen=True):
    """What all consumers of a node share."""

    log: Log
    sender_of: Callable[[LiveSubscription], Sender]
    clock: Clock
    rng: random.Random
    ids: IdSource
    metrics: Metrics
    config: ConsumersConfig
    namespace: str = ""


class ConsumerStatus(Struct, frozen=True):
    """A consumer at one moment. `why` says what keeps it from reading or sending, "" if nothing.

    `positions`: for each partition the lowest unsettled offset.
    """

    why: str
    inflight: int
    waiting_retries: int
    fresh: int
    buffered_bytes: int
    positions: dict[int, int]
    last_undelivered: Undelivered | None
    dropped_headers: tuple[str, ...]


class SerialConsumer:
    """The actor for one subscription. Its messages are the subscription's new versions.

    It owns the stated partitions of `log_topic` (None: all, also new ones). `on_started` is called
    once, when it knows where to start. Stopping it (its inbox ends): no new attempt begins, what
    is in flight gets `stop_grace_ms`, and all that is settled is committed.
    """

    def __init__(
        self,
        live: LiveSubscription,
        log_topic: str,
        parts: ConsumerParts,
        *,
        partitions: tuple[int, ...] | None = None,
        epoch: int = 0,
        on_started: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises Refused for an endpoint that cannot be pushed to."""
        self._parts = parts
        self._clock = parts.clock
        self._config = parts.config
        self._log_topic = log_topic
        self._on_started = on_started
        self._measures = SubscriptionMeasures(parts.metrics, live.name)
        self._lanes = Lanes(1, parts.config.waiting_retries_max)
        self._limit = RateLimit(1)
        self._progress = TopicProgress(
            parts.log,
            live.name.consumer_group(parts.namespace),
            log_topic,
            Ownership(live.topic_incarnation, live.incarnation, epoch),
            created_at_ms=int(live.subscription.created_at * 1_000),
            owned=partitions,
        )
        self._intake = Intake(
            parts.log,
            log_topic,
            self._progress,
            self._lanes,
            parts.config,
            self._measures,
            self._on_read,
        )
        self._wakeup = Wakeup()
        self._touched = Wakeup()
        self._landed = Wakeup()
        self._sleeps_until_s = float("inf")
        self._is_filling = False
        self._error: Exception | None = None
        self._is_stopping = False
        self._last_undelivered: Undelivered | None = None
        self._last_failure: SendOutcome | None = None
        self._last_failure_ms = 0
        self._last_success_ms = 0
        self._version = 0
        self._adopt(live)
        # A restart, or a suspension that is taken back at once, must not double a second's rate.
        self._limit.drain(self._clock.monotonic_s())
        for name, attribute in (("inflight", "inflight"), ("waiting_retries", "waiting")):
            self._measures.gauge(name, Gauge(self._lanes, attribute))

    async def run(self, inbox: Inbox[LiveSubscription]) -> None:
        """Deliver until asked to stop, then drain and commit."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._work)
                async for live in inbox:
                    # A restart begins with the latest; what waited meanwhile is older.
                    if live.stamp >= self._live.stamp:
                        self._adopt(live)
                        self._wakeup.set()
                self._is_stopping = True
                self._intake.stop()
                await self._drain()
                nursery.cancel_scope.cancel()
        finally:
            # What is still in flight will be heard of by nobody: it is sent again after a restart.
            self._is_stopping = True
            self._version = -1
            # The gauges outlive it while it is suspended; up to 64 MiB must not.
            self._lanes.clear()

    @property
    def why(self) -> str:
        """What keeps it from reading or sending; "" when nothing does."""
        return "stopping" if self._is_stopping else self._intake.why

    def status(self) -> ConsumerStatus:
        """Everything that may be asked about it now."""
        return ConsumerStatus(
            why=self.why,
            inflight=self._lanes.inflight,
            waiting_retries=self._lanes.waiting,
            fresh=self._lanes.fresh,
            buffered_bytes=self._lanes.buffered_bytes,
            positions={p: o.position for p, o in self._progress.partitions.items()},
            last_undelivered=self._last_undelivered,
            dropped_headers=self._head.dropped,
        )

    def figures(self) -> SubscriptionFigures:
        """What the node's status record says of it."""
        failure = self._last_failure
        return SubscriptionFigures(
            why=self.why,
            counts=self._measures.flow(),
            inflight=self._lanes.inflight,
            waiting_retries=self._lanes.waiting,
            last_failure="" if failure is None else failure.reason(),
            last_failure_at_ms=self._last_failure_ms,
            last_success_at_ms=self._last_success_ms,
            log_topic=self._log_topic,
            positions={p: o.position for p, o in self._progress.partitions.items()},
        )

    def _adopt(self, live: LiveSubscription) -> None:
        """Go on with this version of the subscription; what is in flight is not touched."""
        policy = live.subscription.subscription_policy
        assert isinstance(policy, SerialPolicy), "a serial consumer needs a serial policy"
        endpoint = parse_endpoint(live.subscription.endpoint, str(live.name))
        self._live = live
        self._policy = policy
        self._retry_policy = RetryPolicy.of(
            policy, has_oauth=live.subscription.o_auth_policy is not None
        )
        self._endpoint = endpoint
        self._head = request_head(live.subscription, endpoint.authorization)
        if self._head.dropped:
            _logger.warning(
                "%s: fixed headers left out, their names are taken or not valid: %s",
                live.name,
                ", ".join(self._head.dropped),
            )
        self._sender = self._parts.sender_of(live)
        self._lanes.window = policy.inflight_size or self._config.inflight_max
        if self._limit.rate_per_s != policy.rate:
            self._limit.change(policy.rate)
        self._intake.read_ahead = min(
            self._config.read_batch_records_max, max(self._lanes.window, policy.rate)
        )
        self._version += 1

    # Starting and stopping.

    async def _work(self) -> None:
        await self._intake.find_start()
        self._touched.set()
        self._on_started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._intake.run)
            nursery.start_soon(self._intake.watch_partitions)
            nursery.start_soon(self._send)
            nursery.start_soon(self._commit_regularly)

    def _on_read(self) -> None:
        self._touched.set()
        if self._lanes.inflight < self._lanes.window:
            self._wakeup.set()

    async def _drain(self) -> None:
        with trio.move_on_after(self._config.stop_grace_ms / 1_000):
            while self._lanes.inflight:
                await self._landed.wait()
        with trio.move_on_after(_COMMIT_TIMEOUT_S):
            await self._commit()
        if behind := self._progress.uncommitted():
            _logger.warning(
                "%s: stopped, and its last commit was not taken within %g s; what was delivered of "
                "partitions %s since the commit before may be delivered again",
                self._live.name,
                _COMMIT_TIMEOUT_S,
                ", ".join(map(str, behind)),
            )

    # Sending.

    async def _send(self) -> None:
        """Send what only time or reading brings up; answers bring up the rest by themselves."""
        while True:
            if self._error is not None:
                raise self._error
            now_s = self._clock.monotonic_s()
            if self._fill(now_s) == _FILL_MAX:
                await trio.lowlevel.checkpoint()
                continue
            wait_s = self._idle_s(now_s)
            self._sleeps_until_s = now_s + wait_s
            await self._wakeup.wait(wait_s)

    def _fill(self, now_s: float) -> int:
        """Attempt what may be attempted now; how many messages were looked at."""
        if self._is_stopping:
            return 0
        lanes = self._lanes
        allowed = self._limit.available(now_s)
        sent = looked_at = 0
        self._is_filling = True
        while sent < allowed and looked_at < _FILL_MAX:
            delivery = lanes.next(now_s)
            if delivery is None:
                break
            looked_at += 1
            if self._take_up(delivery, now_s):
                sent += 1
                self._attempt(delivery, now_s)
        self._is_filling = False
        if sent:
            self._limit.take(now_s, sent)
        if looked_at:
            self._intake.note_room()
        return looked_at

    def _refill(self, now_s: float) -> None:
        """Use the room that an answer made; wake the actor only if its alarm must be earlier."""
        looked_at = self._fill(now_s)
        alarm_s = now_s + self._idle_s(now_s) + _ALARM_SLACK_S
        if looked_at == _FILL_MAX or alarm_s < self._sleeps_until_s:
            self._wakeup.set()

    def _idle_s(self, now_s: float) -> float:
        """How long there is nothing to do unless an answer comes or a batch is read."""
        lanes = self._lanes
        if self._is_stopping or lanes.inflight >= lanes.window:
            return float("inf")
        is_fresh = lanes.fresh > 0 and not lanes.is_waiting_full
        due_s = 0.0 if is_fresh else lanes.next_due_s - now_s
        return max(due_s, self._limit.wait_s(now_s))

    def _take_up(self, delivery: Delivery, now_s: float) -> bool:
        """Make the delivery ready for an attempt; False when it is not attempted now."""
        if delivery.message is None:
            try:
                delivery.message = from_record(delivery.record, self._parts.ids.message_id)
            except UndecodableRecord as error:
                self._measures.undecodable.value += 1
                self._discard(delivery, DiscardReason.UNDECODABLE, str(error))
                return False
            delivery.taken_up_s = now_s
            if self._policy.sending_delay:
                age_ms = self._clock.now_ms() - delivery.record.timestamp_ms
                delay_ms = min(self._policy.sending_delay, self._policy.sending_delay - age_ms)
                if delay_ms > 0:
                    self._lanes.wait(delivery, now_s + delay_ms / 1_000)
                    return False
        return True

    def _attempt(self, delivery: Delivery, now_s: float) -> None:
        message = delivery.message
        assert message is not None, "taken up before"
        if delivery.version != self._version:
            delivery.version = self._version
            delivery.message_lines = self._head.message_lines(message)
            delivery.route = None
        if delivery.attempts:
            self._measures.retries.value += 1
        delivery.sent_s = now_s
        if delivery.route is None:
            try:
                delivery.route = self._endpoint.resolve(message.body)
            except Unresolved as error:
                self._on_outcome(delivery, SendOutcome(0, "", Failure.UNRESOLVED, str(error)))
                return
        policy = self._policy
        push = Push(
            delivery.route,
            self._head.lines(delivery.message_lines, delivery.attempts),
            message.body,
            policy.request_timeout,
            policy.socket_timeout,
        )
        self._sender.send(push, partial(self._on_outcome, delivery))

    # Outcomes. These run in the sender's callback, on either loop.

    def _on_outcome(self, delivery: Delivery, outcome: SendOutcome) -> None:
        if self._version < 0:
            return
        try:
            self._land(delivery, outcome)
        # Not swallowed: raised again in the actor, so that its supervisor restarts it.
        except Exception as error:  # noqa: BLE001
            self._error = error
            self._wakeup.set()

    def _land(self, delivery: Delivery, outcome: SendOutcome) -> None:
        """Take in an attempt's outcome, and use the room that it makes."""
        measures, lanes = self._measures, self._lanes
        now_s = self._clock.monotonic_s()
        measures.on_outcome(outcome)
        if not outcome.is_local:
            measures.latency.observe(now_s - delivery.sent_s)
        if outcome.is_success:
            delivery.offsets.settle(delivery.record.offset)
            lanes.remove(delivery)
            self._intake.note_settled()
            measures.delivered.value += 1
            self._last_success_ms = self._clock.now_ms()
            measures.throughput_bytes.value += len(delivery.record.value)
            self._touched.set()
        else:
            self._on_failure(delivery, outcome, now_s)
        if self._is_stopping:
            if not lanes.inflight:
                self._landed.set()
        elif not self._is_filling:
            self._refill(now_s)

    def _on_failure(self, delivery: Delivery, outcome: SendOutcome, now_s: float) -> None:
        if not outcome.is_local:
            delivery.attempts += 1
        now_ms = self._clock.now_ms()
        self._last_failure, self._last_failure_ms = outcome, now_ms
        decision = decide(
            outcome,
            policy=self._retry_policy,
            previous_backoff_ms=delivery.backoff_ms,
            age_ms=(now_s - delivery.taken_up_s) * 1_000,
            now_ms=now_ms,
            rng=self._parts.rng,
        )
        if isinstance(decision, Again):
            delivery.backoff_ms = decision.backoff_ms
            self._lanes.wait(delivery, now_s + decision.delay_ms / 1_000)
        else:
            assert isinstance(decision, Discard), "a success is not a failure"
            self._discard(delivery, decision.reason, outcome.reason())

    def _discard(self, delivery: Delivery, reason: DiscardReason, detail: str) -> None:
        """Give a message up: counted and logged, never silently."""
        delivery.offsets.settle(delivery.record.offset)
        self._lanes.remove(delivery)
        self._intake.note_settled()
        self._measures.discarded.value += 1
        record, message = delivery.record, delivery.message
        self._last_undelivered = Undelivered(
            timestamp_ms=self._clock.now_ms(),
            partition=record.partition,
            offset=record.offset,
            message_id="" if message is None else message.id,
            reason=f"{reason.value}: {detail}",
        )
        _logger.info(
            "%s: discarded %s at %d/%d after %d attempts: %s: %s",
            self._live.name,
            self._last_undelivered.message_id or "a record",
            record.partition,
            record.offset,
            delivery.attempts,
            reason.value,
            detail,
        )
        self._touched.set()

    # Committing.

    async def _commit_regularly(self) -> None:
        interval_s = self._config.commit_interval_ms / 1_000
        while True:
            # An idle subscription costs nothing but its hourly refresh.
            await self._touched.wait(REFRESH_S)
            await trio.sleep(interval_s)
            self._intake.review()
            await self._commit()

    async def _commit(self) -> None:
        try:
            await self._progress.commit(self._clock.monotonic_s())
        except (LogUnavailable, UnknownTopic) as error:
            # Nothing is lost: the next commit says all that this one would have said.
            self._measures.commit_failures.add()
            self._touched.set()
            _logger.warning("%s: not committed: %r", self._live.name, error)
