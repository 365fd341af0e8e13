"""The decision after an attempt: settled, discarded, tried again after a delay, or the end. Pure.

The table is Hermes', with additions: a subscription may name statuses that are tried again or given
up whatever the table says, 410 ends the subscription, Retry-After may be an HTTP date, attempts may
be limited in number, and the backoff has jitter so that messages that failed together do not come
back together. The jitter only lengthens: a delay is drawn from [1, 1.25) × backoff, so none is
shorter than configured. A failure of our own is tried again like the endpoint's, and slows nothing.
A decision's `slows` is the table's column of that name, for whoever adapts the rate.
"""

import random
from datetime import UTC
from email.utils import parsedate_to_datetime

from msgspec import Struct

from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy, TtlFrom

_RETRY_AFTER_STATUSES = (429, 503)
_RETRY_AFTER_SECONDS_MAX = 10**9
_GONE_STATUS = 410
# Client errors that may end by themselves.
_FOR_LATER = (408, 425, 429)
_JITTER = 0.25


class RetryPolicy(Struct, frozen=True):
    """The part of a subscription's policy that decides; everything in milliseconds.

    `has_oauth`: a 401 means a token to renew, so it is always tried again. `gone_suspends`: a 410
    ends the subscription, unless it is in `retry_on` or `discard_on`. `is_ttl_from_publication`
    says what a message's age is counted from; else it is the time since it was taken up.
    """

    ttl_ms: int
    backoff_ms: int
    backoff_multiplier: float
    backoff_max_ms: int
    retry_client_errors: bool
    has_oauth: bool = False
    attempts_max: int | None = None
    retry_on: frozenset[int] = frozenset()
    discard_on: frozenset[int] = frozenset()
    gone_suspends: bool = False
    is_ttl_from_publication: bool = False

    @classmethod
    def of(
        cls,
        policy: SerialPolicy | BatchPolicy,
        *,
        has_oauth: bool = False,
        gone_suspends: bool = False,
    ) -> "RetryPolicy":
        """Return the part of a policy that decides. A batch's age counts from its first attempt."""
        return cls(
            ttl_ms=policy.message_ttl * 1_000,
            backoff_ms=policy.message_backoff,
            backoff_multiplier=policy.backoff_multiplier,
            backoff_max_ms=policy.backoff_max_interval_in_sec * 1_000,
            retry_client_errors=policy.retry_client_errors,
            has_oauth=has_oauth,
            attempts_max=policy.attempts_max,
            retry_on=frozenset(policy.retry_on),
            discard_on=frozenset(policy.discard_on),
            gone_suspends=gone_suspends,
            is_ttl_from_publication=isinstance(policy, SerialPolicy)
            and policy.ttl_from is TtlFrom.PUBLICATION,
        )

    def is_too_old(self, age_ms: float) -> bool:
        """True when a message of that age since publication is not worth a first attempt.

        A time to live of 0 means one attempt, however old the message is.
        """
        return self.is_ttl_from_publication and 0 < self.ttl_ms < age_ms


class Settled(Struct, frozen=True):
    """The decision that the subscriber has the message."""


class Discard(Struct, frozen=True):
    """The decision to give up. `slows`: whether it counts against the subscription's rate."""

    reason: DiscardReason
    slows: bool


class Again(Struct, frozen=True):
    """Try again in `delay_ms`; `backoff_ms` is to be handed to the next decision."""

    delay_ms: int
    backoff_ms: int
    slows: bool


class Gone(Struct, frozen=True):
    """The endpoint is gone for good: nothing more is to be sent, and the message is kept."""


Decision = Settled | Discard | Again | Gone
_SETTLED = Settled()
_GONE = Gone()


def decide(
    outcome: SendOutcome,
    *,
    policy: RetryPolicy,
    previous_backoff_ms: int | None,
    age_ms: float,
    now_ms: int,
    rng: random.Random,
    attempts: int = 1,
) -> Decision:
    """Return what is to be done after one attempt at a message.

    `age_ms` is the message's age as the policy counts it, `previous_backoff_ms` that of the last
    decision (None at the first failure), `now_ms` the wall clock, for Retry-After as a date,
    `attempts` how many were made, this one included. A message is given up now when its next
    attempt would come after its time to live.
    """
    if outcome.is_success:
        return _SETTLED
    status = outcome.status
    if status and (end := _end_by_status(status, policy)) is not None:
        if not (outcome.is_partial and isinstance(end, Gone)):
            return end
        # One recipient is gone, which is its own affair.
        return Discard(DiscardReason.CLIENT_ERROR, slows=False)
    backoff_ms = next_backoff_ms(previous_backoff_ms, policy)
    asked_ms = asked_pause_ms(outcome, now_ms)
    if asked_ms is not None:
        delay_ms = min(asked_ms, policy.ttl_ms)
    else:
        delay_ms = int(backoff_ms * (1.0 + _JITTER * rng.random()))
    # What was never sent, or asked for a pause itself, says nothing of how much it can take.
    is_sent = not outcome.is_local and outcome.failure is not Failure.UNRESOLVED
    slows = asked_ms is None and is_sent
    # A time to live of 0 means one attempt, also when no time at all has passed; what nothing was
    # sent of, for want of a token or a connection, has not had it yet.
    is_over = age_ms + delay_ms > policy.ttl_ms if policy.ttl_ms else not outcome.is_local
    if is_over:
        return Discard(DiscardReason.EXPIRED, slows=slows)
    if policy.attempts_max is not None and attempts >= policy.attempts_max:
        return Discard(DiscardReason.ATTEMPTS, slows=slows)
    return Again(delay_ms, backoff_ms, slows=slows)


def is_refused(outcome: SendOutcome, policy: RetryPolicy) -> bool:
    """True when the answer's status says that the message is not to be tried there again."""
    return outcome.status > 0 and _end_by_status(outcome.status, policy) is not None


def ending_detail(reason: DiscardReason, outcome: SendOutcome) -> str:
    """Return in one line why a message was given up after this answer, and the setting to
    change.
    """
    said = outcome.reason()
    if reason is DiscardReason.CLIENT_ERROR and outcome.status in _FOR_LATER:
        said += (
            f"; it is tried again with {outcome.status} in subscriptionPolicy.retryOn, or with "
            "retryClientErrors"
        )
    return said


def asked_pause_ms(outcome: SendOutcome, now_ms: int) -> int | None:
    """How long the answer asks to be left alone; None when it does not."""
    # The sum of several answers has the pause that one of them asked for.
    counts = outcome.status in _RETRY_AFTER_STATUSES or outcome.recipients is not None
    return retry_after_ms(outcome.retry_after, now_ms) if counts and outcome.retry_after else None


def _end_by_status(status: int, policy: RetryPolicy) -> Discard | Gone | None:
    """Return the end that an answer's status means at once; None when it is to be tried again."""
    if status in policy.discard_on:
        return Discard(DiscardReason.DISCARD_STATUS, slows=False)
    if status in policy.retry_on:
        return None
    if status == _GONE_STATUS and policy.gone_suspends:
        return _GONE
    if not 400 <= status < 500 or policy.retry_client_errors:
        return None
    if status == 401 and policy.has_oauth:
        return None
    return Discard(DiscardReason.CLIENT_ERROR, slows=False)


def next_backoff_ms(previous_ms: int | None, policy: RetryPolicy) -> int:
    """The policy's first backoff, then each time the last one × multiplier, up to the maximum."""
    if previous_ms is None:
        return min(policy.backoff_ms, policy.backoff_max_ms)
    return min(policy.backoff_max_ms, int(previous_ms * policy.backoff_multiplier))


def retry_after_ms(text: str, now_ms: int) -> int | None:
    """Retry-After in milliseconds from now: whole seconds or an HTTP date; None when it is neither.

    A date that has passed is 0. A negative number is not honoured.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        # A bound before int(): a header of thousands of digits is not worth converting.
        seconds = int(text[:11]) if len(text) <= 11 else _RETRY_AFTER_SECONDS_MAX
        return min(seconds, _RETRY_AFTER_SECONDS_MAX) * 1_000
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return max(0, int(moment.timestamp() * 1_000) - now_ms)
    except (OverflowError, ValueError):
        return None
