"""The decision after a failed attempt: retry after a delay, discard, or suspend. Pure.

The table is Hermes', with additions: a subscription may name statuses that are always retried or
discarded; 410 suspends the subscription; Retry-After may be an HTTP date; the number of attempts
may be limited; and the backoff has jitter, so that messages that failed together are not retried
together. The jitter only lengthens a delay: it is drawn from [1, 1.25) × backoff. A failure on our
own side is retried like one of the endpoint.
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
# Client errors that may be temporary.
_FOR_LATER = (408, 425, 429)
_JITTER = 0.25


class RetryPolicy(Struct, frozen=True):
    """A subscription's policy, with the other settings that decide about a retry.

    `has_oauth`: a 401 means that the token must be renewed, so it is always retried.
    `gone_suspends`: a 410 suspends the subscription, unless it is in the policy's `retry_on` or
    `discard_on`.
    """

    policy: SerialPolicy | BatchPolicy
    has_oauth: bool = False
    gone_suspends: bool = False

    @property
    def ttl_ms(self) -> int:
        """The time to live, counted from the first attempt or from publication."""
        return self.policy.message_ttl * 1_000

    @property
    def is_ttl_from_publication(self) -> bool:
        """True if the time to live counts from publication."""
        policy = self.policy
        return isinstance(policy, SerialPolicy) and policy.ttl_from is TtlFrom.PUBLICATION

    def is_too_old(self, age_ms: float) -> bool:
        """True if a message of this age since publication gets no first attempt.

        With a time to live of 0 every message gets one attempt.
        """
        return self.is_ttl_from_publication and 0 < self.ttl_ms < age_ms


class Discard(Struct, frozen=True):
    """Give the message up."""

    reason: DiscardReason


class Again(Struct, frozen=True):
    """Try again in `delay_ms`; pass `backoff_ms` to the next decision."""

    delay_ms: int
    backoff_ms: int


class Gone(Struct, frozen=True):
    """The endpoint is gone for good: send nothing more, and keep the message."""


Decision = Discard | Again | Gone


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
    """Decide what follows from a failed attempt.

    `age_ms` is the message's age as the policy counts it. `previous_backoff_ms` is that of the last
    decision, None after the first failure. `now_ms` is the wall clock, for Retry-After as a date.
    `attempts` is the number of attempts, this one included. A message is discarded at once if its
    next attempt would come after its time to live.
    """
    if (end := _end_by_status(outcome.status, policy)) is not None:
        if not (outcome.is_partial and isinstance(end, Gone)):
            return end
        # Only one recipient is gone, not the endpoint.
        return Discard(DiscardReason.CLIENT_ERROR)
    backoff_ms = next_backoff_ms(previous_backoff_ms, policy.policy)
    asked_ms = asked_pause_ms(outcome, now_ms)
    if asked_ms is not None:
        # A client that nacks wants the message again, so it comes before its time to live ends.
        spent_ms = age_ms if outcome.failure is Failure.NACKED else 0
        delay_ms = min(asked_ms, max(0, int(policy.ttl_ms - spent_ms)))
    else:
        delay_ms = int(backoff_ms * (1.0 + _JITTER * rng.random()))
    # A time to live of 0 means one attempt, even if no time has passed. A push that was never sent,
    # for lack of a token or a connection, does not count as that attempt.
    is_over = age_ms + delay_ms > policy.ttl_ms if policy.ttl_ms else not outcome.is_local
    if is_over:
        return Discard(DiscardReason.EXPIRED)
    attempts_max = policy.policy.attempts_max
    if attempts_max is not None and attempts >= attempts_max:
        return Discard(DiscardReason.ATTEMPTS)
    return Again(delay_ms, backoff_ms)


def is_well(outcome: SendOutcome, policy: RetryPolicy, now_ms: int) -> bool | None:
    """Whether an answer shows a healthy endpoint. None if it shows nothing: nothing was sent, the
    endpoint asked for a pause, or it is gone.
    """
    end = _end_by_status(outcome.status, policy)
    if outcome.is_success or isinstance(end, Discard):
        return True
    is_unsent = outcome.is_local or outcome.failure is Failure.UNRESOLVED
    if isinstance(end, Gone) or is_unsent or asked_pause_ms(outcome, now_ms) is not None:
        return None
    return False


def is_refused(outcome: SendOutcome, policy: RetryPolicy) -> bool:
    """True if the answer's status forbids another attempt there."""
    return _end_by_status(outcome.status, policy) is not None


def ending_detail(reason: DiscardReason, outcome: SendOutcome) -> str:
    """One line that says why a message was given up after this answer, and which setting would
    change that.
    """
    said = outcome.reason()
    if reason is DiscardReason.CLIENT_ERROR and outcome.status in _FOR_LATER:
        said += (
            f"; to retry it, add {outcome.status} to subscriptionPolicy.retryOn, or set "
            "retryClientErrors"
        )
    return said


def asked_pause_ms(outcome: SendOutcome, now_ms: int) -> int | None:
    """The pause that the answer asks for; None if it asks for none."""
    if outcome.pause_ms is not None:
        return outcome.pause_ms
    # A summed-up outcome carries the pause that one of the answers asked for.
    counts = outcome.status in _RETRY_AFTER_STATUSES or outcome.recipients is not None
    return retry_after_ms(outcome.retry_after, now_ms) if counts and outcome.retry_after else None


def _end_by_status(status: int, retry: RetryPolicy) -> Discard | Gone | None:
    """The end that a status means at once; None if it is to be retried."""
    policy = retry.policy
    if status in policy.discard_on:
        return Discard(DiscardReason.DISCARD_STATUS)
    if status in policy.retry_on:
        return None
    if status == _GONE_STATUS and retry.gone_suspends:
        return Gone()
    is_for_later = policy.retry_client_errors or (status == 401 and retry.has_oauth)
    return None if is_for_later or not 400 <= status < 500 else Discard(DiscardReason.CLIENT_ERROR)


def next_backoff_ms(previous_ms: int | None, policy: SerialPolicy | BatchPolicy) -> int:
    """The policy's first backoff, then the previous one × multiplier, up to the maximum."""
    if previous_ms is None:
        backoff_ms = policy.message_backoff
    else:
        backoff_ms = int(previous_ms * policy.backoff_multiplier)
    return min(backoff_ms, policy.backoff_max_interval_in_sec * 1_000)


def retry_after_ms(text: str, now_ms: int) -> int | None:
    """Retry-After in milliseconds from now, from whole seconds or an HTTP date; None if invalid.

    A date in the past is 0. A negative number is invalid.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        # Bound before int(): a header may have thousands of digits.
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
