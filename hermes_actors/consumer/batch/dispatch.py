"""The sending half of a batch consumer, which never waits: one batch at a time, repeated until it
is accepted or given up.

The sender's callback settles a batch and wakes the actor (`push_consumer.py`), which waits, reads
and commits.
"""

from functools import partial

from hermes_actors.consumer.batch.assembly import BatchAssembly, element_of
from hermes_actors.consumer.batch.pacing import BatchPacing
from hermes_actors.consumer.delivery.delivery import Batch, Delivery, Settlement
from hermes_actors.consumer.delivery.dispatching import FILL_MAX, Dispatching, Surroundings
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import from_record
from hermes_actors.model.subscription import BatchBody, BatchPolicy
from hermes_actors.status.reasons import Code, Reason, because

_READ_AHEAD_MIN = 100
"""Reading one message costs as much as reading several, so read more even for small batches."""


class BatchDispatch(Dispatching[Batch]):
    """The sending half of one subscription's batch consumer. Raises Refused for an endpoint that
    cannot take batches.
    """

    def __init__(self, live: LiveSubscription, around: Surroundings) -> None:
        parts, policy = around.parts, _policy(live)
        self._assembly = BatchAssembly(
            policy,
            self._render,
            parts.clock.monotonic_s,
            bytes_max=parts.config.buffered_bytes_max,
            buried_max=parts.config.waiting_retries_max,
        )
        self._pacing = BatchPacing(policy, around.owned, parts.clock)
        super().__init__(live, around, self._assembly, self._pacing)
        self.adopt(live)

    def _render(self, delivery: Delivery, form: BatchBody) -> bytes:
        """Make a message an element of a batch. Decodes it only once."""
        if delivery.message is None:
            delivery.message = from_record(delivery.record)
        return element_of(delivery.message, form)

    def adopt(self, live: LiveSubscription) -> None:
        """Apply a new version of the subscription. A waiting batch keeps its id and body unless the
        limits or the form have changed.
        """
        policy, endpoint_before = _policy(live), self.live.subscription.endpoint
        self.policy = policy
        self._begin(live, policy)
        self._pacing.adopt(policy)
        self._assembly.change(policy)
        self._assembly.size_max = self._pacing.size_max
        waiting = self._assembly.current
        if live.subscription.endpoint != endpoint_before and waiting is not None:
            # Nothing is known about the new endpoint.
            waiting.due_s = self._clock.monotonic_s()

    @property
    def read_ahead(self) -> int:
        """How many fresh messages to read ahead: a batch besides the open one."""
        return max(self._assembly.size_max, _READ_AHEAD_MIN)

    def _held_back(self) -> list[Reason]:
        """What the next batch waits for."""
        now_s, current = self._clock.monotonic_s(), self._assembly.current
        due_s, count = self._assembly.due
        wait_s = due_s - now_s
        if self._assembly.inflight or not count:
            return []
        if wait_s > 0 and current is None:
            size = self._assembly.size_max
            return [because(Code.BATCH_FILLS, count=count, size=size, wait_s=wait_s)]
        if wait_s > 0 and current is not None:
            attempt = current.attempts + 1
            return [because(Code.BATCH_WAITS, count=count, attempt=attempt, wait_s=wait_s)]
        if self._pacing.limit == 0:
            return [because(Code.RATE_ELSEWHERE)]
        if self._pacing.wait_s(now_s, count) > 0:
            return [because(Code.RATE_USED, rate=float(self.policy.message_rate or 0))]
        return []

    # Sending.

    def on_read(self) -> None:
        """Wake the loop if the open batch can take messages."""
        if self._assembly.can_fill:
            self._around.wake()

    def _fill(self, now_s: float) -> int:
        assembly = self._assembly
        # The share of the rate may have changed.
        assembly.size_max = self._pacing.size_max
        before = assembly.fresh
        assembly.fill(FILL_MAX, self._reject)
        if self._wait_s(now_s) <= 0:
            self._attempt(
                assembly.current or assembly.close(self._parts.ids.message_id(), now_s), now_s
            )
        if assembly.fresh < before:
            self.note_room()
        return FILL_MAX if assembly.can_fill else 0

    def _reject(self, delivery: Delivery, reason: DiscardReason, detail: str) -> None:
        """Make a message that fits into no batch a dead letter."""
        self._log_discarded(delivery, reason, detail)
        self._write_off(delivery, reason, 0, detail)

    def idle_s(self, now_s: float) -> float:
        """How long nothing is due unless an answer or a record comes."""
        if self._is_halted:
            return float("inf")
        return 0.0 if self._assembly.can_fill else max(0.0, self._wait_s(now_s))

    def _wait_s(self, now_s: float) -> float:
        """How long until the next attempt; zero or negative if it may begin."""
        due_s, count = self._assembly.due
        return max(due_s - now_s, self._pacing.wait_s(now_s, count) if count else 0.0)

    def _attempt(self, batch: Batch, now_s: float) -> None:
        self._pacing.take(now_s, len(batch.deliveries))
        self.taken += len(batch.deliveries)
        self.taken_bytes += len(batch.body)
        batch.sent(now_s)
        self._assembly.inflight = len(batch.deliveries)
        batch.version = self._version
        self._transitions.sent(batch.deliveries, is_retry=batch.attempts > 0)
        self._pushing.send(batch, partial(self._on_outcome, batch))

    # Outcomes. These run in the sender's callback, on either loop.

    def _land(self, batch: Batch, outcome: SendOutcome) -> None:
        """Handle an attempt's outcome, and wake the actor."""
        now_s = self._clock.monotonic_s()
        self._transitions.answered(batch.deliveries, outcome, now_s - batch.sent_s)
        if outcome.is_success:
            self._settle(batch)
            self._last_success_s = now_s
        else:
            self._on_failure(batch, outcome, now_s)
        self._note_landed()
        self._around.wake()

    def _settle(self, batch: Batch) -> None:
        batch.settled()
        self._assembly.remove(batch)
        self._transitions.settled(batch.deliveries, Settlement.DELIVERED)
        self._around.note_settled()

    def _age_ms(self, batch: Batch, now_s: float) -> float:
        assert batch.taken_up_s is not None, "it has been sent"
        return (now_s - batch.taken_up_s) * 1_000


def _policy(live: LiveSubscription) -> BatchPolicy:
    policy = live.subscription.subscription_policy
    assert isinstance(policy, BatchPolicy), "a batch consumer needs a batch policy"
    return policy
