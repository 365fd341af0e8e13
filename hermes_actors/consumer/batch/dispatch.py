"""Which batch is sent when and what its answer means, without waiting: one at a time, the same one
again until it is taken or given up.

The sender's callback settles a batch and wakes the actor around it (`push_consumer.py`), which
waits, reads and commits. No rate is learned from the answers: one request at a
time, with the policy's back-off, is slow enough for an endpoint that is not well.
"""

import logging
from collections import deque
from functools import partial

from hermes_actors.consumer.batch.assembly import BatchAssembly, Bounds, GivenUp, element_of
from hermes_actors.consumer.delivery.delivery import Batch, Delivery, Settlement
from hermes_actors.consumer.delivery.dispatching import FILL_MAX, Dispatching, Surroundings
from hermes_actors.consumer.delivery.retry import Decision, ending_detail
from hermes_actors.consumer.rates.limit import BatchRate, messages_max
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import from_record
from hermes_actors.model.subscription import BatchBody, BatchPolicy
from hermes_actors.status.reasons import Code, Reason, because

_logger = logging.getLogger(__name__)

_READ_AHEAD_MIN = 100
"""Reading costs as much for one message as for some, also where batches are small."""


def batch_policy(live: LiveSubscription) -> BatchPolicy:
    """The policy of a subscription with `deliveryType` BATCH."""
    policy = live.subscription.subscription_policy
    assert isinstance(policy, BatchPolicy), "a batch consumer needs a batch policy"
    return policy


def bounds_of(policy: BatchPolicy) -> Bounds:
    """Return when a subscription's batches are complete."""
    return Bounds(
        size=messages_max(policy.batch_size, policy.message_rate),
        time_s=policy.batch_time / 1_000,
        volume_bytes=policy.batch_volume,
        body=policy.body,
    )


class BatchDispatch(Dispatching[Batch]):
    """The sending half of one subscription's batch consumer. Raises Refused for an endpoint that
    batches cannot be pushed to.
    """

    def __init__(self, live: LiveSubscription, around: Surroundings) -> None:
        parts = around.parts
        self._assembly = BatchAssembly(
            bounds_of(batch_policy(live)),
            self._render,
            parts.clock.monotonic_s,
            bytes_max=parts.config.buffered_bytes_max,
            buried_max=parts.config.waiting_retries_max,
        )
        super().__init__(live, around, self._assembly)
        self._rate = BatchRate(None)
        # Given up, and their letters not handed over yet: bounded by what is read.
        self._given_up: deque[GivenUp] = deque()
        self._endpoint_text = live.subscription.endpoint
        self.adopt(live)

    def _render(self, delivery: Delivery, form: BatchBody) -> bytes:
        """Make a message an element of a batch; it is decoded once."""
        if delivery.message is None:
            delivery.message = from_record(delivery.record, self._parts.ids.message_id)
        return element_of(delivery.message, form)

    def adopt(self, live: LiveSubscription) -> None:
        """Go on with this version of the subscription. A batch that waits keeps its id and its
        body, unless they cannot be kept: other bounds, or another form.
        """
        policy = batch_policy(live)
        self.policy = policy
        self._begin(live, policy)
        now_s = self._clock.monotonic_s()
        if self._rate.rate != policy.message_rate:
            self._rate = BatchRate(policy.message_rate, self._owned.share.value)
            # Neither a restart nor another owner or limit must double a second's rate.
            self._rate.drain(now_s)
        self._assembly.change(bounds_of(policy))
        self._cap()
        waiting = self._assembly.current
        if live.subscription.endpoint != self._endpoint_text and waiting is not None:
            # Nothing is known of another endpoint.
            waiting.due_s = now_s
        self._endpoint_text = live.subscription.endpoint

    @property
    def allowed(self) -> float:
        """The owner's share of the limit, in messages a second; below 0 when there is none."""
        rate = self.policy.message_rate
        return -1.0 if rate is None else rate * self._owned.share.value

    def divide(self) -> None:
        """The owner's share of the rate is another one: in force at once. Without a limit there is
        nothing to share.
        """
        self._rate.change(self._owned.share.value)
        self._cap()

    def _cap(self) -> None:
        """Batches fit into what may be sent in a second, so that whole ones fill it."""
        limit = self._rate.limit
        self._assembly.cap(
            messages_max(self.policy.batch_size, None if limit is None else max(1, limit))
        )

    def abandon(self) -> None:
        """Drop all that is held: outcomes still to come are ignored, and what is under way is sent
        again after a restart.
        """
        super().abandon()
        self._given_up.clear()

    @property
    def read_ahead(self) -> int:
        """How many fresh messages are worth having at hand: a batch beside the open one."""
        return max(self._assembly.window, _READ_AHEAD_MIN)

    @property
    def rate_now(self) -> float:
        """The owner's share of the policy's limit, in messages a second; 0 when there is none."""
        return float(self.policy.message_rate or 0) * self._owned.share.value

    def _held_back(self) -> list[Reason]:
        """What the next batch waits for."""
        now_s, assembly, current = self._clock.monotonic_s(), self._assembly, self._assembly.current
        count = assembly.gathered if current is None else len(current.deliveries)
        if assembly.inflight or not count:
            return []
        wait_s = (assembly.ready_s if current is None else current.due_s) - now_s
        if wait_s > 0 and current is None:
            size = assembly.window
            return [because(Code.BATCH_FILLS, count=count, size=size, wait_s=wait_s)]
        if wait_s > 0 and current is not None:
            attempt = current.attempts + 1
            return [because(Code.BATCH_WAITS, count=count, attempt=attempt, wait_s=wait_s)]
        if self._rate.limit == 0:
            return [because(Code.RATE_ELSEWHERE)]
        if self._rate.wait_s(now_s, count) > 0:
            return [because(Code.RATE_USED, rate=float(self.policy.message_rate or 0))]
        return []

    # Sending.

    def on_read(self) -> bool:
        """Take note that messages have been read; True if the open batch can take some."""
        return self._assembly.can_fill

    def fill(self, now_s: float) -> int:
        """Assemble, and send what may be sent now; FILL_MAX when more is to be done at once."""
        if not self._is_lease_open():
            # The actor waits for it. Dead letters are seen by others too.
            self._around.wake()
            return 0
        looked_at = self._hand_over(FILL_MAX)
        if self._is_halted:
            return looked_at
        assembly = self._assembly
        before = assembly.fresh
        self._given_up.extend(assembly.fill(FILL_MAX))
        looked_at = max(looked_at, before - assembly.fresh)
        self._attempt_if_due(now_s)
        if assembly.fresh < before:
            self.note_room()
        return FILL_MAX if assembly.can_fill or self._given_up else min(looked_at, FILL_MAX - 1)

    def idle_s(self, now_s: float) -> float:
        """How long there is nothing to do unless an answer comes or messages are read."""
        if self._given_up:
            return 0.0
        if self._is_halted:
            return float("inf")
        assembly = self._assembly
        if assembly.can_fill:
            return 0.0
        current = assembly.current
        if current is None:
            due_s, count = assembly.ready_s, assembly.gathered
        elif assembly.inflight:
            return float("inf")
        else:
            due_s, count = current.due_s, len(current.deliveries)
        return max(0.0, due_s - now_s, self._rate.wait_s(now_s, count) if count else 0.0)

    def _attempt_if_due(self, now_s: float) -> None:
        assembly, current = self._assembly, self._assembly.current
        if current is None:
            if assembly.ready_s > now_s or self._rate.wait_s(now_s, assembly.gathered) > 0:
                return
            current = assembly.close(self._parts.ids.message_id(), now_s)
        elif current.ending is not None:
            self._end(current, *current.ending, now_s)
            return
        elif (
            assembly.inflight
            or current.due_s > now_s
            or self._rate.wait_s(now_s, len(current.deliveries)) > 0
        ):
            return
        self._attempt(current, now_s)

    def _attempt(self, batch: Batch, now_s: float) -> None:
        self._rate.take(now_s, len(batch.deliveries))
        self.taken += len(batch.deliveries)
        self.taken_bytes += len(batch.body)
        batch.sent(now_s)
        self._assembly.inflight = len(batch.deliveries)
        batch.version = self._version
        self._transitions.sent(batch.deliveries, is_retry=batch.attempts > 0)
        self._pushing.send(batch, partial(self._on_outcome, batch))

    # Outcomes. These run in the sender's callback, on either loop.

    def _land(self, batch: Batch, outcome: SendOutcome) -> None:
        """Take in an attempt's outcome; the actor then sees what is due."""
        now_s = self._clock.monotonic_s()
        self._assembly.inflight = 0
        self._transitions.answered(batch.deliveries, outcome, now_s - batch.sent_s)
        if outcome.is_success:
            self._settle(batch)
        else:
            self._on_failure(batch, outcome, now_s)
        self._note_landed()
        self._around.wake()

    def _settle(self, batch: Batch) -> None:
        self._assembly.settle()
        self._transitions.settled(batch.deliveries, Settlement.DELIVERED)
        self.last_success_ms = self._clock.now_ms()
        self._around.note_settled()

    def _age_ms(self, batch: Batch, now_s: float) -> float:
        return (now_s - batch.first_s) * 1_000

    def _learn(
        self, batch: Batch, _decision: Decision, outcome: SendOutcome, _now_s: float
    ) -> None:
        for delivery in batch.deliveries:
            # Each may be in another batch next.
            delivery.attempts += not outcome.is_local
            delivery.last = outcome

    def _wait(self, batch: Batch, due_s: float) -> None:
        batch.wait(due_s)

    def _let_go(self, batch: Batch, decision: Decision, outcome: SendOutcome) -> None:
        self._suspend_if_gone(batch, decision, outcome)
        # Its messages come again in batches as they are to be now, but for those that a
        # retransmission has taken elsewhere.
        self._assembly.dissolve()

    # Giving up: counted, logged and kept as dead letters, never silently.

    def _give_up(self, batch: Batch, reason: DiscardReason, outcome: SendOutcome) -> None:
        detail = ending_detail(reason, outcome)
        _logger.info(
            "%s: discarded batch %s of %d messages after %d attempts: %s: %s",
            self.live.name,
            batch.id,
            len(batch.deliveries),
            batch.attempts,
            reason.value,
            detail,
        )
        self._assembly.bury()
        self._given_up.extend(
            GivenUp(each, reason, detail, batch.attempts, outcome.status)
            for each in batch.deliveries
        )

    def _hand_over(self, count_max: int) -> int:
        """Hand over dead letters, a bounded number at a time; how many it were."""
        for count in range(count_max):
            # Each time, for the process may have been stopped between any two.
            if not self._given_up or not self._is_lease_open():
                return count
            each = self._given_up.popleft()
            self._write_off(each.delivery, each.reason, each.status, each.detail, each.attempts)
        return count_max
