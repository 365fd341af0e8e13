"""What follows from an attempt: settled, discarded, or tried again after a delay. Pure.

The table is Hermes', with two additions: Retry-After may be an HTTP date, and the backoff has
jitter so that messages that failed together do not come back together. The jitter only lengthens:
a delay is drawn from [1, 1.25) × backoff, so none is shorter than configured. A failure of our own
is tried again like the endpoint's, and slows nothing. A decision's `slows` is the table's column of
that name, for whoever adapts the rate; nobody does yet.
"""

import random
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

from msgspec import Struct

from hermes_actors.consumer.sender import SendOutcome
from hermes_actors.model.subscription import SerialPolicy

_RETRY_AFTER_STATUSES = (429, 503)
_RETRY_AFTER_SECONDS_MAX = 10**9
_JITTER = 0.25


class DiscardReason(StrEnum):
    """Why a message is given up."""

    CLIENT_ERROR = "client-error"
    EXPIRED = "expired"
    UNDECODABLE = "undecodable"


class RetryPolicy(Struct, frozen=True):
    """What of a subscription's policy decides; everything in milliseconds.

    `has_oauth`: a 401 means a token to renew, so it is always tried again.
    """

    ttl_ms: int
    backoff_ms: int
    backoff_multiplier: float
    backoff_max_ms: int
    retry_client_errors: bool
    has_oauth: bool = False

    @classmethod
    def of(cls, policy: SerialPolicy, *, has_oauth: bool = False) -> "RetryPolicy":
        """The deciding part of a serial policy."""
        return cls(
            ttl_ms=policy.message_ttl * 1_000,
            backoff_ms=policy.message_backoff,
            backoff_multiplier=policy.backoff_multiplier,
            backoff_max_ms=policy.backoff_max_interval_in_sec * 1_000,
            retry_client_errors=policy.retry_client_errors,
            has_oauth=has_oauth,
        )


class Settled(Struct, frozen=True):
    """The subscriber has it."""


class Discard(Struct, frozen=True):
    """Given up. `slows`: whether it counts against the subscription's rate."""

    reason: DiscardReason
    slows: bool


class Again(Struct, frozen=True):
    """Try again in `delay_ms`; `backoff_ms` is to be handed to the next decision."""

    delay_ms: int
    backoff_ms: int
    slows: bool


Decision = Settled | Discard | Again
_SETTLED = Settled()


def decide(
    outcome: SendOutcome,
    *,
    policy: RetryPolicy,
    previous_backoff_ms: int | None,
    age_ms: float,
    now_ms: int,
    rng: random.Random,
) -> Decision:
    """What follows from one attempt at a message.

    `age_ms` is the time since the message was taken up, `previous_backoff_ms` that of the last
    decision (None at the first failure), `now_ms` the wall clock, for Retry-After as a date. A
    message is given up now when its next attempt would come after its time to live.
    """
    if outcome.is_success:
        return _SETTLED
    backoff_ms = next_backoff_ms(previous_backoff_ms, policy)
    is_client_error = 400 <= outcome.status < 500
    is_token_refused = outcome.status == 401 and policy.has_oauth
    if is_client_error and not policy.retry_client_errors and not is_token_refused:
        return Discard(DiscardReason.CLIENT_ERROR, slows=False)
    asked_ms = None
    if outcome.status in _RETRY_AFTER_STATUSES and outcome.retry_after:
        asked_ms = retry_after_ms(outcome.retry_after, now_ms)
    if asked_ms is not None:
        delay_ms = min(asked_ms, policy.ttl_ms)
    else:
        delay_ms = int(backoff_ms * (1.0 + _JITTER * rng.random()))
    slows = asked_ms is None and not outcome.is_local
    # A time to live of 0 means one attempt, also when no time at all has passed.
    if policy.ttl_ms == 0 or age_ms + delay_ms > policy.ttl_ms:
        return Discard(DiscardReason.EXPIRED, slows=slows)
    return Again(delay_ms, backoff_ms, slows=slows)


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
