"""The decision after an attempt: settled, discarded, tried again after a delay, or the end. Pure.

The table is Hermes', with additions: a subscription may name statuses that are tried again or given
up whatever the table says, 410 ends the subscription, Retry-After may be an HTTP date, attempts may
be limited in number, and the backoff has jitter so that messages that failed together do not come
back together. The jitter only lengthens: a delay is drawn from [1, 1.25) × backoff, so none is
shorter than configured. A failure of our own is tried again like the endpoint's.
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
    """The policy of a subscription, with what else decides whether a message is tried again.

    `has_oauth`: a 401 means a token to renew, so it is always tried again. `gone_suspends`: a 410
    ends the subscription, unless it is in the policy's `retry_on` or `discard_on`.
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
        """True where a message's age is that since its publication."""
        policy = self.policy
        return isinstance(policy, SerialPolicy) and policy.ttl_from is TtlFrom.PUBLICATION

    def is_too_old(self, age_ms: float) -> bool:
        """True when a message of that age since publication is not worth a first attempt.

        A time to live of 0 means one attempt, however old the message is.
        """
        return self.is_ttl_from_publication and 0 < self.ttl_ms < age_ms


class Discard(Struct, frozen=True):
    """Give the message up."""

    reason: DiscardReason


class Again(Struct, frozen=True):
    """Try again in `delay_ms`; hand `backoff_ms` to the next decision."""

    delay_ms: int
    backoff_ms: int


class Gone(Struct, frozen=True):
    """The endpoint is gone for good: nothing more is to be sent, and the message is kept."""


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
    """Decide what follows from an attempt that was no success.

    `age_ms` is the message's age as the policy counts it, `previous_backoff_ms` that of the last
    decision (None at the first failure), `now_ms` the wall clock, for Retry-After as a date,
    `attempts` how many were made, this one included. A message is given up now when its next
    attempt would come after its time to live.
    """
    if (end := _end_by_status(outcome.status, policy)) is not None:
        if not (outcome.is_partial and isinstance(end, Gone)):
            return end
        # One recipient is gone, which is its own affair.
        return Discard(DiscardReason.CLIENT_ERROR)
    backoff_ms = next_backoff_ms(previous_backoff_ms, policy.policy)
    asked_ms = asked_pause_ms(outcome, now_ms)
    if asked_ms is not None:
        delay_ms = min(asked_ms, policy.ttl_ms)
    else:
        delay_ms = int(backoff_ms * (1.0 + _JITTER * rng.random()))
    # A time to live of 0 means one attempt, also when no time at all has passed. A push that was
    # never sent, for want of a token or a connection, has not been that attempt.
    is_over = age_ms + delay_ms > policy.ttl_ms if policy.ttl_ms else not outcome.is_local
    if is_over:
        return Discard(DiscardReason.EXPIRED)
    attempts_max = policy.policy.attempts_max
    if attempts_max is not None and attempts >= attempts_max:
        return Discard(DiscardReason.ATTEMPTS)
    return Again(delay_ms, backoff_ms)


def is_well(outcome: SendOutcome, policy: RetryPolicy, now_ms: int) -> bool | None:
    """What an answer says of its endpoint's strength. None: nothing, for nothing was sent, or the
    endpoint asked for a pause itself.
    """
    end = _end_by_status(outcome.status, policy)
    if outcome.is_success or isinstance(end, Discard):
        return True
    is_unsent = outcome.is_local or outcome.failure is Failure.UNRESOLVED
    if isinstance(end, Gone) or is_unsent or asked_pause_ms(outcome, now_ms) is not None:
        return None
    return False


def is_refused(outcome: SendOutcome, policy: RetryPolicy) -> bool:
    """True when the answer's status says that the message is not to be tried there again."""
    return _end_by_status(outcome.status, policy) is not None


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


def _end_by_status(status: int, retry: RetryPolicy) -> Discard | Gone | None:
    """Return the end that an answer's status means at once; None when it is to be tried again."""
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
    """The policy's first backoff, then each time the last one × multiplier, up to the maximum."""
    if previous_ms is None:
        backoff_ms = policy.message_backoff
    else:
        backoff_ms = int(previous_ms * policy.backoff_multiplier)
    return min(backoff_ms, policy.backoff_max_interval_in_sec * 1_000)


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
