"""How fast one consumer may push now: the subscription's maximum, or less if its endpoint's answers
demand it. Also probes an endpoint that does not answer.
"""

import logging
from collections.abc import Callable

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.retry import RetryPolicy, is_well
from hermes_actors.consumer.rates.control import Level, Pace, RateControl
from hermes_actors.consumer.rates.limit import LEAST_PER_S, RateLimit
from hermes_actors.consumer.senders.sender import Failure, PushRoute, Sender, SendOutcome
from hermes_actors.consumer.serial.queue import SerialQueue
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.status.reasons import Code, Reason, because

_logger = logging.getLogger(__name__)


class Pacing(Pace):
    """A `limit` that holds in every second, and below it the rate `control`: this owner's share.

    Check both before each push and call `take` on both for it (on the rate control only while it is
    not full). Call `on_answers` for each attempt other than a plain success.
    """

    def __init__(
        self, live: LiveSubscription, rate_per_s: float, parts: ConsumerParts, owned: Owned
    ) -> None:
        self._clock = parts.clock
        self._rate_controls = parts.rate_controls
        self._name = str(live.name)
        self._owned = owned
        self._rate_per_s = rate_per_s
        self._identity = self._identity_of(live)
        self._last_route: PushRoute | None = None
        now_s = self._clock.monotonic_s()
        share = owned.share.value
        self.limit = RateLimit(rate_per_s * share)
        # A restart or a new owner must not double a second's rate.
        self.limit.drain(now_s)
        if self.limit.rate_per_s:
            self.control = RateControl(rate_per_s * share, now_s, share)
        else:
            self.control = RateControl(rate_per_s, now_s)
        before = self._rate_controls.find(self._name, self._identity)
        if before is not None:
            before.recover(now_s)
        known = owned.rate if before is None else before.known()
        if known is not None:
            self.control.take_over(known, now_s)
        self._rate_controls.keep(self._name, self._identity, self.control)
        self._level = self.control.level

    def _identity_of(self, live: LiveSubscription) -> tuple[int, str, int]:
        """What identifies a rate control: incarnation, endpoint and grant."""
        return live.incarnation, live.subscription.endpoint, self._owned.epoch

    def divide(self) -> None:
        """Apply a changed share or maximum of the rate."""
        now_s, share = self._clock.monotonic_s(), self._owned.share.value
        allowed, was_nothing = self._rate_per_s * share, not self.limit.rate_per_s
        self.limit.change(allowed)
        if was_nothing:
            self.limit.drain(now_s)
        self.limit.relax(now_s)
        # While the share is 0 nothing is sent, so the rate control stays as it is.
        if allowed >= LEAST_PER_S:
            self.control.change(allowed, share, now_s)

    def adopt(self, live: LiveSubscription, rate_per_s: float) -> None:
        """Apply a new version of the subscription."""
        now_s, identity = self._clock.monotonic_s(), self._identity_of(live)
        if rate_per_s != self._rate_per_s:
            self._rate_per_s = rate_per_s
            self.divide()
        if identity != self._identity:
            # Nothing is known about the new endpoint.
            self._identity = identity
            self.control.reset(now_s)
            self._rate_controls.keep(self._name, identity, self.control)
            self._last_route = None
        self.control.push_at_once(now_s)

    def known(self) -> RateState:
        """The rate control's level and rate, for the next owner to start with."""
        self.control.recover(self._clock.monotonic_s())
        return self.control.known()

    @property
    def level(self) -> Level:
        """How far the endpoint is trusted."""
        self.control.recover(self._clock.monotonic_s())
        return self.control.level

    @property
    def rate_now(self) -> float:
        """How many messages a second may be sent now."""
        return min(self.limit.rate_per_s, self.control.rate)

    @property
    def allowed(self) -> float:
        """The owner's share of the maximum."""
        return self.limit.rate_per_s

    def wait_s(self, due_s: float, now_s: float) -> float:
        """How long nothing can be pushed, if a message is due in `due_s`."""
        wait_s = max(due_s, self.limit.wait_s(now_s))
        control = self.control
        if control.is_full:
            return wait_s
        return min(max(wait_s, control.wait_s(now_s)), control.connect_wait_s(now_s))

    def probe(self, sender: Sender, now_s: float, wake: Callable[[], None]) -> None:
        """If it is time, check whether a dead endpoint accepts connections again."""
        control = self.control
        if control.connect_wait_s(now_s) > 0.0:
            return
        control.on_connecting(now_s)
        route, epoch = self._last_route, control.epoch

        def done(failure: Failure | None) -> None:
            # A probe of an earlier epoch went to another endpoint.
            if failure is None and control.epoch == epoch:
                control.on_connected(self._clock.monotonic_s())
            wake()

        if route is None or not sender.probe(route, done):
            # Without a probe, a single push has to find out.
            control.on_connected(now_s)

    def on_answers(
        self, delivery: Delivery, outcome: SendOutcome, policy: RetryPolicy, now_s: float
    ) -> None:
        """Adapt the rate to an attempt's answer, or to the answers of all recipients."""
        control, now_ms = self.control, self._clock.now_ms()
        answers = (outcome,) if outcome.recipients is None else outcome.recipients
        verdicts = [(each, is_well(each, policy, now_ms)) for each in answers]
        well = [each for each, verdict in verdicts if verdict is True]
        failed = [each for each, verdict in verdicts if verdict is False]
        is_answered = any(each.failure is None for each in answers)
        if control.level.is_half_open:
            # It probes whether any recipient is up, so the best answer counts.
            well, failed = well[:1], [] if well else failed[:1]
        if not well and not failed:
            control.on_neutral(now_s, delivery.epoch, is_answered=is_answered)
        for _ in well:
            control.on_success(now_s, delivery.epoch)
        before_s = delivery.failed_s
        for each in failed:
            self._last_route = delivery.route
            if control.on_failure(
                now_s,
                delivery.epoch,
                failed_before_s=before_s,
                is_answered=is_answered,
                is_pressed=each.is_pressed,
            ):
                delivery.failed_s = now_s
        self.note_level(outcome)

    def on_neutral(self, delivery: Delivery, now_s: float) -> None:
        """An attempt has ended without evidence about the endpoint."""
        self.control.on_neutral(now_s, delivery.epoch, is_answered=False)

    def reasons(self, queue: SerialQueue) -> list[Reason]:
        """What limits sending from the queue now."""
        now_s = self._clock.monotonic_s()
        self.control.recover(now_s)
        reasons = self.control.reasons(now_s)
        rate = self.limit.rate_per_s
        if queue.inflight >= queue.window:
            reasons.append(because(Code.ALL_REQUESTS_OPEN, count=queue.window))
        elif queue.fresh and not rate:
            reasons.append(because(Code.RATE_ELSEWHERE))
        elif queue.fresh and self.control.is_full and self.limit.wait_s(now_s) > 0:
            is_whole = self._owned.share.value == 1.0
            code = Code.RATE_USED if is_whole else Code.SHARE_USED
            reasons.append(because(code, rate=rate, rate_max=self._rate_per_s))
        if queue.parked:
            reasons.append(because(Code.KEYS_WAIT, count=queue.parked))
        return reasons

    def note_level(self, outcome: SendOutcome) -> None:
        """Log a change of the level once."""
        control, before = self.control, self._level
        if control.level is before:
            return
        self._level = control.level
        # One warning per outage, not one per probe.
        is_outage = before is Level.FULL and control.level.is_half_open
        _logger.log(
            logging.WARNING if is_outage else logging.INFO,
            "%s: its rate was %s and is %s now, at most %.4g/s; last answer: %s",
            self._name,
            before,
            control.level,
            control.rate,
            outcome.reason(),
        )
