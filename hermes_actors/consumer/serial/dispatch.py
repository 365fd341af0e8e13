"""The sending half of a serial consumer, which never waits: queue → rate → window → sender.
`pacing.py` decides how fast, `delivery/dispatching.py` what follows from an answer.

There is no task and no timer for each message: the sender's callback settles one message, and
after all callbacks of a turn the next ones are sent, on the same thread. The actor
(`push_consumer.py`) waits, reads and commits.
"""

from functools import partial

from hermes_actors.consumer.delivery.delivery import Delivery, Settlement
from hermes_actors.consumer.delivery.dispatching import FILL_MAX, Dispatching, Surroundings
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.consumer.serial.pacing import Pacing
from hermes_actors.consumer.serial.queue import SerialQueue
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.message import UndecodableRecord, from_record
from hermes_actors.model.subscription import SerialPolicy
from hermes_actors.status.reasons import Reason

# An alarm so little too late is not worth waking the actor.
_ALARM_SLACK_S = 1e-4


class SerialDispatch(Dispatching[Delivery]):
    """The sending half of one subscription's serial consumer. Raises Refused for an endpoint that
    cannot be pushed to.
    """

    def __init__(self, live: LiveSubscription, around: Surroundings) -> None:
        policy, parts = _policy(live), around.parts
        queue = SerialQueue(1, parts.config.waiting_retries_max, is_ordered=policy.ordered)
        self._pacing = Pacing(live, policy.rate, parts, around.owned)
        super().__init__(live, around, queue, self._pacing)
        self._monotonic_s = parts.clock.monotonic_s
        self._queue = queue
        self._is_filling = self._is_refill_due = False
        self._limit, self._control = self._pacing.limit, self._pacing.control
        self.adopt(live)

    def adopt(self, live: LiveSubscription) -> None:
        """Apply a new version of the subscription. Pushes in flight are not affected."""
        policy = _policy(live)
        self.policy = policy
        self._begin(live, policy)
        self._is_age_asked = bool(policy.sending_delay) or (
            self._retry_policy.is_ttl_from_publication
        )
        self._queue.window = policy.inflight_size or self._parts.config.inflight_max
        self._pacing.adopt(live, policy.rate)

    @property
    def read_ahead(self) -> int:
        """How many fresh messages to read ahead."""
        return max(self._queue.window, self.policy.rate)

    def _held_back(self) -> list[Reason]:
        """What limits sending from the queue."""
        return self._pacing.reasons(self._queue)

    # Sending.

    def on_read(self) -> None:
        """Send at once if there is room: it saves a message the way over the sending loop."""
        if self._queue.inflight < self._queue.window:
            self._refill()

    def _fill(self, now_s: float) -> int:
        queue, limit, control = self._queue, self._limit, self._control
        sent = looked_at = 0
        self._is_filling = True
        if not control.is_full:
            self._pacing.probe(self._pushing.sender, now_s, self._around.wake)
            if control.level.is_half_open:
                looked_at = self._expire(now_s)
        allowed = limit.available(now_s)
        while sent < allowed and looked_at < FILL_MAX and queue.inflight < queue.window:
            # Checked each time, because an attempt may fail at once and lower the rate.
            if not control.is_full and not control.available(now_s):
                break
            # Checked each time, because the process may have been paused in between.
            if looked_at and not self._is_lease_open():
                self._around.wake()
                break
            delivery = queue.next(now_s)
            if delivery is None:
                break
            looked_at += 1
            if delivery.taken_up_s is not None or self._take_up(delivery, now_s):
                sent += 1
                if not control.is_full:
                    control.take(now_s)
                self.taken_bytes += len(delivery.record.value)
                self._attempt(delivery, now_s)
        self._is_filling = False
        if sent:
            limit.take(now_s, sent)
            self.taken += sent
        if looked_at:
            self.note_room()
        return looked_at

    def _expire(self, now_s: float) -> int:
        """Give up due retries past their time to live, which might wait long. Return how many."""

        def is_over(delivery: Delivery) -> bool:
            is_tried = delivery.attempts > 0 or self._retry_policy.is_ttl_from_publication
            return is_tried and self._age_ms(delivery, now_s) > self._retry_policy.ttl_ms

        for count in range(FILL_MAX):
            delivery = self._queue.next_over(now_s, is_over)
            if delivery is None:
                return count
            last = delivery.last
            status, reason = (0, "none") if last is None else (last.status, last.reason())
            detail = f"while the endpoint is failing; last answer: {reason}"
            self._give_up(delivery, DiscardReason.EXPIRED, status, detail)
        return FILL_MAX

    def _age_ms(self, delivery: Delivery, now_s: float) -> float:
        """A message's age in milliseconds, as its time to live counts it."""
        if self._retry_policy.is_ttl_from_publication:
            return max(0, self._clock.now_ms() - delivery.record.timestamp_ms)
        taken_up_s = delivery.taken_up_s
        return 0.0 if taken_up_s is None else (now_s - taken_up_s) * 1_000

    def _refill(self) -> None:
        """Use the room that there is; wake the actor only if its alarm must be earlier."""
        self._is_refill_due = False
        now_s, queue = self._monotonic_s(), self._queue
        try:
            looked_at = self.fill(now_s)
        # The sender calls this, too.
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return
        if queue.inflight >= queue.window and looked_at < FILL_MAX:
            # Only an answer makes room.
            return
        alarm_s = now_s + self.idle_s(now_s) + _ALARM_SLACK_S
        if looked_at == FILL_MAX or alarm_s < self.alarm_s:
            self._around.wake()

    def idle_s(self, now_s: float) -> float:
        """How long nothing is due unless an answer or a record comes."""
        queue = self._queue
        if self._is_halted or queue.inflight >= queue.window:
            return float("inf")
        is_fresh = queue.fresh > 0 and not queue.is_waiting_full
        due_s = 0.0 if is_fresh else queue.next_due_s - now_s
        return self._pacing.wait_s(due_s, now_s)

    def _take_up(self, delivery: Delivery, now_s: float) -> bool:
        """Prepare the message for its first attempt; False if it is not attempted now."""
        if delivery.message is None:
            try:
                delivery.message = from_record(delivery.record)
            except UndecodableRecord as error:
                self._give_up(delivery, DiscardReason.UNDECODABLE, 0, str(error))
                return False
        delivery.taken_up_s = now_s
        return self._is_of_age(delivery, now_s) if self._is_age_asked else True

    def _is_of_age(self, delivery: Delivery, now_s: float) -> bool:
        """True if the message is neither too young nor too old for its first attempt. Otherwise it
        waits, or is given up.
        """
        age_ms = self._clock.now_ms() - delivery.record.timestamp_ms
        if self._retry_policy.is_too_old(age_ms):
            detail = "older than its time to live before its first attempt"
            self._give_up(delivery, DiscardReason.EXPIRED, 0, detail)
            return False
        # A timestamp in the future must not delay by more than the delay.
        delay_ms = min(self.policy.sending_delay, self.policy.sending_delay - age_ms)
        if delay_ms > 0:
            # The time to live starts with the first attempt.
            delivery.taken_up_s = now_s + delay_ms / 1_000
            self._queue.wait(delivery, delivery.taken_up_s)
            return False
        return True

    def _attempt(self, delivery: Delivery, now_s: float) -> None:
        if delivery.version != self._version:
            if delivery.version >= 0:
                # Made for another version.
                delivery.message_lines = b""
                delivery.route = None
            delivery.version = self._version
        delivery.sent(now_s)
        self._transitions.sent((delivery,), is_retry=delivery.attempts > 0)
        delivery.epoch = self._control.epoch
        self._send(delivery, now_s)

    def _send(self, delivery: Delivery, _now_s: float) -> None:
        self._pushing.send(delivery, partial(self._on_outcome, delivery))

    # Outcomes. These run in the sender's callback, on either loop.

    def _land(self, delivery: Delivery, outcome: SendOutcome) -> None:
        """Handle an attempt's outcome. The room that it makes is used after all outcomes of the
        loop's turn.
        """
        transitions, control = self._transitions, self._control
        now_s = self._monotonic_s()
        is_single = outcome.recipients is None
        if is_single:
            transitions.answered((delivery,), outcome, now_s - delivery.sent_s)
        if outcome.is_success:
            delivery.settled()
            self._queue.remove(delivery)
            transitions.settled((delivery,), Settlement.DELIVERED)
            self._last_success_s = now_s
            if not is_single:
                self._learn(delivery, outcome, now_s)
            else:
                control.success_s = now_s
                if control.is_watching:
                    control.on_success(now_s, delivery.epoch)
                    self._pacing.note_level(outcome)
            self._around.note_settled()
        else:
            self._on_failure(delivery, outcome, now_s)
        if self._is_stopping:
            self._note_landed()
        elif not (self._is_filling or self._is_refill_due):
            self._is_refill_due = True
            self._pushing.sender.after_outcomes(self._refill)

    def _learn(self, delivery: Delivery, outcome: SendOutcome, now_s: float) -> None:
        self._pacing.on_answers(delivery, outcome, self._retry_policy, now_s)

    def _repeat(self, delivery: Delivery, now_s: float) -> None:
        self._pacing.on_neutral(delivery, now_s)
        super()._repeat(delivery, now_s)


def _policy(live: LiveSubscription) -> SerialPolicy:
    policy = live.subscription.subscription_policy
    assert isinstance(policy, SerialPolicy), "a serial consumer needs a serial policy"
    return policy
