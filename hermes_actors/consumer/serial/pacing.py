"""How fast one consumer may push now: the subscription's maximum, and below it what its endpoint's
answers allow. Says so in words, and probes an endpoint that does not answer.
"""

import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from hermes_actors.consumer.delivery.delivery import Delivery
from hermes_actors.consumer.delivery.parts import ConsumerParts
from hermes_actors.consumer.delivery.retry import (
    Again,
    Decision,
    Discard,
    Gone,
    RetryPolicy,
    Settled,
    asked_pause_ms,
    is_refused,
)
from hermes_actors.consumer.rates.control import Level, RateControl
from hermes_actors.consumer.rates.limit import LEAST_PER_S, RateLimit
from hermes_actors.consumer.senders.sender import Failure, PushRoute, Sender, SendOutcome
from hermes_actors.consumer.serial.queue import SerialQueue
from hermes_actors.coordination.commands import RateState
from hermes_actors.coordination.owned import Owned
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.status.reasons import Code, Reason, because

_logger = logging.getLogger(__name__)


class Pacing:
    """The `limit` that no second exceeds, and the rate `control` below it: this owner's share.

    Use: both are asked before each push and told of it (the rate control only while it is not
    full); `on_failure` is told of each attempt that was no success. `last_failure` is that of the
    last attempt which failed, set by its user.
    """

    def __init__(
        self, live: LiveSubscription, rate_per_s: float, parts: ConsumerParts, owned: Owned
    ) -> None:
        self._clock = parts.clock
        self._rate_controls = parts.rate_controls
        self._name = str(live.name)
        self._identity = _identity(live)
        self._last_route: PushRoute | None = None
        now_s = self._clock.monotonic_s()
        self._rate_per_s = rate_per_s
        self._owned = owned
        self.limit = RateLimit(rate_per_s * owned.share.value)
        # A restart, or a suspension that is taken back at once, must not double a second's rate,
        # nor may who owned it before and this one.
        self.limit.drain(now_s)
        self.control = self._begin(now_s)
        self._level = self.control.level
        self.last_failure: SendOutcome | None = None

    def _begin(self, now_s: float) -> RateControl:
        """Return the rate control as this node's consumer of the same grant left it, or the owner
        before.
        """
        owned, share = self._owned, self._control_share
        maximum, controls = self._rate_per_s * share, self._rate_controls
        control = controls.find(self._name, self._identity, epoch=owned.epoch)
        if control is not None:
            control.resume(now_s)
            control.change(maximum, now_s)
            control.share = share
            return control
        control = RateControl(maximum, now_s)
        controls.keep(self._name, self._identity, control, epoch=owned.epoch)
        control.share = share
        if owned.rate is not None:
            control.take_over(owned.rate, now_s)
        return control

    @property
    def _control_share(self) -> float:
        # While the share is nothing, nothing is sent: the rate control stays as it is.
        share = self._owned.share.value
        return share if self._rate_per_s * share >= LEAST_PER_S else 1.0

    def divide(self) -> None:
        """Put another share of the rate in force at once."""
        now_s = self._clock.monotonic_s()
        was_nothing = not self.limit.rate_per_s
        self.limit.change(self._rate_per_s * self._owned.share.value)
        if was_nothing:
            self.limit.drain(now_s)
        self.limit.relax(now_s)
        share = self._control_share
        self.control.divide(self._rate_per_s * share, share, now_s)

    def known(self) -> RateState:
        """Return the rate control's level and rate, for the next owner to begin with."""
        self.control.recover(self._clock.monotonic_s())
        return self.control.known()

    @property
    def rate_now(self) -> float:
        """How many messages a second may be sent now."""
        return min(self.limit.rate_per_s, self.control.rate)

    def adopt(self, live: LiveSubscription, rate_per_s: float) -> None:
        """Go on with this version of the subscription."""
        now_s = self._clock.monotonic_s()
        self._rate_per_s = rate_per_s
        allowed = rate_per_s * self._owned.share.value
        if self.limit.rate_per_s != allowed:
            self.limit.change(allowed)
        self.control.change(rate_per_s * self._control_share, now_s)
        identity = _identity(live)
        if identity != self._identity:
            # Nothing is known of another endpoint.
            self._identity = identity
            self.control.reset(now_s)
            self._rate_controls.keep(self._name, identity, self.control, epoch=self._owned.epoch)
            self._last_route = None
        self.control.push_at_once(now_s)

    @property
    def level(self) -> Level:
        """The rate control's level: how much the endpoint is trusted with."""
        self.control.recover(self._clock.monotonic_s())
        return self.control.level

    def wait_s(self, due_s: float, now_s: float) -> float:
        """How long there is nothing to do, if in `due_s` there is something to push."""
        wait_s = max(due_s, self.limit.wait_s(now_s))
        control = self.control
        if control.is_full:
            return wait_s
        return min(max(wait_s, control.wait_s(now_s)), control.connect_wait_s(now_s))

    def probe(self, sender: Sender, now_s: float, wake: Callable[[], None]) -> None:
        """If it is time, find out whether a dead endpoint takes connections again."""
        control = self.control
        if control.connect_wait_s(now_s) > 0.0:
            return
        control.on_connecting(now_s)
        route, epoch = self._last_route, control.epoch

        def done(failure: Failure | None) -> None:
            # One of an earlier epoch asked another endpoint, or for another consumer.
            if control.epoch == epoch:
                control.on_connect(self._clock.monotonic_s(), is_made=failure is None)
                wake()

        if route is None or not sender.probe(route, done):
            # Then a single push finds it out.
            control.on_connect(now_s, is_made=True)

    def on_success(self, delivery: Delivery, now_s: float) -> None:
        """Take in that a push was taken."""
        control = self.control
        control.success_s = now_s
        if control.is_watching:
            control.on_success(now_s, delivery.epoch)
            self._note_level()

    def on_failure(
        self, decision: Decision, delivery: Delivery, outcome: SendOutcome, now_s: float
    ) -> None:
        """Tell the rate control what an attempt that was no success says of the endpoint."""
        control, is_answered = self.control, outcome.failure is None
        match decision:
            case Again(slows=True) | Discard(slows=True):
                if control.on_failure(
                    now_s,
                    delivery.epoch,
                    failed_before_s=delivery.failed_s,
                    is_answered=is_answered,
                    is_pressed=outcome.is_pressed,
                ):
                    delivery.failed_s = now_s
                self._last_route = delivery.route
            case Discard(reason) if reason.is_the_messages:
                control.on_success(now_s, delivery.epoch)
            case Again() | Discard() | Gone() | Settled():
                control.on_neutral(now_s, delivery.epoch, is_answered=is_answered)
            case _:
                assert_never(decision)
        self._note_level()

    def on_neutral(self, delivery: Delivery, now_s: float) -> None:
        """An attempt has ended in a way that says nothing of the endpoint."""
        self.control.on_neutral(now_s, delivery.epoch, is_answered=False)

    def on_answers(
        self,
        outcomes: Sequence[SendOutcome],
        policy: RetryPolicy,
        delivery: Delivery,
        now_s: float,
    ) -> None:
        """Tell the rate control what each recipient's answer to an attempt says of the endpoint."""
        control, epoch, now_ms = self.control, delivery.epoch, self._clock.now_ms()
        well = [each for each in outcomes if each.is_success or is_refused(each, policy)]
        failed = [each for each in outcomes if each not in well and _is_failure(each, now_ms)]
        is_answered = any(each.failure is None for each in outcomes)
        if control.level.is_half_open:
            # It tries whether anybody is there: the best answer counts.
            well, failed = well[:1], [] if well else failed[:1]
        if not well and not failed:
            control.on_neutral(now_s, epoch, is_answered=is_answered)
        for _ in well:
            control.on_success(now_s, epoch)
        before_s = delivery.failed_s
        for each in failed:
            if control.on_failure(
                now_s,
                epoch,
                failed_before_s=before_s,
                is_answered=is_answered,
                is_pressed=each.is_pressed,
            ):
                delivery.failed_s = now_s
            self._last_route = delivery.route
        self._note_level()

    def reasons(self, queue: SerialQueue) -> list[Reason]:
        """What keeps the queue from being sent faster now."""
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

    def _note_level(self) -> None:
        """Log a change of the level, once."""
        control, before = self.control, self._level
        if control.level is before:
            return
        self._level = control.level
        # A warning once for each outage, not each time that a sick endpoint is tried again.
        is_outage = before is Level.FULL and control.level.is_half_open
        _logger.log(
            logging.WARNING if is_outage else logging.INFO,
            "%s: its rate was %s and is %s now, at most %.4g/s; last failure: %s",
            self._name,
            before,
            control.level,
            control.rate,
            "none" if self.last_failure is None else self.last_failure.reason(),
        )


def _identity(live: LiveSubscription) -> tuple[int, str]:
    """Return what tells one endpoint's rate control from another: incarnation and address."""
    return live.incarnation, live.subscription.endpoint


def _is_failure(outcome: SendOutcome, now_ms: int) -> bool:
    """True for what counts as a failure of a single push: it was sent and asked for no pause."""
    if outcome.is_local or outcome.failure is Failure.UNRESOLVED:
        return False
    return asked_pause_ms(outcome, now_ms) is None
