"""Judges the state of a subscription on one node from its consumer's figures. Pure."""

from hermes_actors.status.lag import UNKNOWN
from hermes_actors.status.reasons import Code, Reason, because
from hermes_actors.status.record import SubscriptionStatus

_FAILING_SHARE = 0.1
"""With at most this share of successes the endpoint counts as failing; not 0, because rates fall
slowly.
"""

_RECENT_MS = 60_000
"""An older failure is no longer relevant."""

_LATELY_MS = 10_000
"""The window of the rates: without a success for this long there is none now."""

_JUST_NOW_MS = 3_000
"""How long a failure of an otherwise delivering endpoint is shown."""

_RATE_MIN = 50
"""In thousandths a second; lower rates would be shown as 0.0."""

_HALF_OPEN = ("SLOW", "HEARTBEAT")
"""At these levels an endpoint gets single messages until one succeeds."""


def judged(entry: SubscriptionStatus, now_ms: int) -> tuple[str, tuple[Reason, ...]]:
    """Return its state at `now_ms` and the reasons, the cause first."""
    if any(each.is_stop for each in entry.reasons):
        return "STOPPED", entry.reasons
    state, reasons = _by_figures(entry, now_ms)
    return state, (*reasons, *entry.reasons)


def _by_figures(entry: SubscriptionStatus, now_ms: int) -> tuple[str, tuple[Reason, ...]]:
    rates, fails, unsettled = entry.rates, _fails(entry, now_ms), unsettled_of(entry)
    takes_nothing = fails and rates.attempts and _takes_nothing(entry, now_ms)
    if entry.level in _HALF_OPEN or takes_nothing:
        return "FAILING", (*_failure(entry), *unsettled)
    if rates.delivered >= _RATE_MIN:
        failing = rates.attempts - rates.codes_2xx
        has_failed = fails or now_ms - entry.last_failure_at_ms < _JUST_NOW_MS
        delivers = because(Code.DELIVERS, rate=rates.delivered / 1_000)
        if not (has_failed and entry.last_failure and failing >= _RATE_MIN):
            return "DELIVERING", (delivers,)
        some_fail = because(Code.SOME_FAIL, rate=failing / 1_000, failure=entry.last_failure)
        return "DELIVERING", (delivers, some_fail)
    if entry.waiting_retries or entry.inflight:
        return ("FAILING", (*_failure(entry), *unsettled)) if fails else ("DELIVERING", unsettled)
    if rates.delivered and entry.lag > 0:
        return "DELIVERING", (because(Code.DELIVERS_FEW),)
    if entry.lag == UNKNOWN:
        return "UNKNOWN", (because(Code.LAG_UNKNOWN),)
    return "IDLE", _idle(entry)


def unsettled_of(entry: SubscriptionStatus) -> tuple[Reason, ...]:
    """The unsettled messages; empty if there are none."""
    inflight, waiting, age_ms = entry.inflight, entry.waiting_retries, entry.oldest_age_ms
    if not inflight and not waiting:
        return ()
    return (because(Code.UNSETTLED, inflight=inflight, waiting=waiting, oldest_s=age_ms / 1_000),)


def _failure(entry: SubscriptionStatus) -> tuple[Reason, ...]:
    if any(each.code == Code.UNAUTHORIZED.name for each in entry.reasons):
        # This reason is the failure.
        return ()
    return (because(Code.FAILS, failure=entry.last_failure or "every attempt"),)


def _idle(entry: SubscriptionStatus) -> tuple[Reason, ...]:
    """Distinguish a subscription with nothing to deliver from one whose filters let nothing
    pass.
    """
    counts, rates = entry.counts, entry.rates
    if rates.filtered and not rates.delivered:
        per_minute = max(1, round(60 * rates.filtered / 1_000))
        return (because(Code.FILTERED_OUT, per_minute=per_minute, count=counts.filtered),)
    nothing = because(Code.IDLE if entry.lag == 0 else Code.QUIET)
    if counts.filtered and not counts.delivered and not counts.discarded:
        return nothing, because(Code.ALL_FILTERED, count=counts.filtered)
    return (nothing,)


def _fails(entry: SubscriptionStatus, now_ms: int) -> bool:
    """True if a failure has not been followed by a success, or messages still wait for a retry
    after it.

    Rates do not show this: they take most of a minute to fall after an endpoint has recovered.
    """
    age_ms = now_ms - entry.last_failure_at_ms
    if entry.last_failure_at_ms > entry.last_success_at_ms:
        # The pauses between retries may be longer than a failure stays relevant.
        return entry.waiting_retries > 0 or age_ms < _RECENT_MS
    return entry.waiting_retries > 0 and age_ms < _LATELY_MS


def _takes_nothing(entry: SubscriptionStatus, now_ms: int) -> bool:
    rates, last_ms = entry.rates, entry.last_success_at_ms
    if rates.codes_2xx <= _FAILING_SHARE * rates.attempts:
        return True
    # Successes from before it failed affect the rates for a while.
    return last_ms > 0 and now_ms - last_ms >= _LATELY_MS
