import random
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.delivery.retry import (
    Again,
    Discard,
    Gone,
    RetryPolicy,
    decide,
    ending_detail,
    is_well,
    next_backoff_ms,
    retry_after_ms,
)
from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.model.dead_letter import DiscardReason
from hermes_actors.model.subscription import SerialPolicy, TtlFrom

NOW_MS = 1_700_000_000_000
PLAIN = RetryPolicy(SerialPolicy())
RETRYING = RetryPolicy(SerialPolicy(retry_client_errors=True))
OAUTH = RetryPolicy(SerialPolicy(), has_oauth=True)
OWN = RetryPolicy(
    SerialPolicy(retry_on=[400, 410], discard_on=[401, 404, 500, 503]),
    has_oauth=True,
    gone_suspends=True,
)


class NoJitter(random.Random):
    def random(self):
        return 0.0


def decided(outcome, policy=PLAIN, *, age_ms=0.0, previous_backoff_ms=None, rng=None, attempts=1):
    return decide(
        outcome,
        policy=policy,
        previous_backoff_ms=previous_backoff_ms,
        age_ms=age_ms,
        now_ms=NOW_MS,
        rng=rng or NoJitter(),
        attempts=attempts,
    )


DROPPED = Discard(DiscardReason.CLIENT_ERROR), True
AS_SAID = Discard(DiscardReason.DISCARD_STATUS), True
SLOWED = Again(100, 100), False
GONE = Gone(), None

# One row for each line of the documented table; and what the answer says of the endpoint.
TABLE = [
    ("3xx is tried again, not followed", 302, "", PLAIN, SLOWED),
    ("304 is tried again", 304, "", RETRYING, SLOWED),
    ("4xx is dropped and slows nothing", 400, "", PLAIN, DROPPED),
    ("410 is dropped", 410, "", PLAIN, DROPPED),
    ("410 suspends", 410, "", RetryPolicy(SerialPolicy(), gone_suspends=True), GONE),
    ("429 is dropped without the flag", 429, "", PLAIN, DROPPED),
    ("429 is dropped with Retry-After too", 429, "5", PLAIN, DROPPED),
    ("4xx is tried again with the flag", 404, "", RETRYING, SLOWED),
    ("4xx ignores Retry-After", 404, "5", RETRYING, SLOWED),
    ("429 with the flag backs off", 429, "", RETRYING, SLOWED),
    ("429 with the flag honours Retry-After", 429, "5", RETRYING, (Again(5_000, 100), None)),
    ("401 is dropped without OAuth", 401, "", PLAIN, DROPPED),
    ("401 with OAuth is tried again", 401, "", OAUTH, SLOWED),
    ("403 with OAuth is dropped", 403, "", OAUTH, DROPPED),
    ("5xx is tried again", 500, "", PLAIN, SLOWED),
    ("500 ignores Retry-After", 500, "5", PLAIN, SLOWED),
    ("503 backs off", 503, "", PLAIN, SLOWED),
    ("503 honours Retry-After", 503, "5", PLAIN, (Again(5_000, 100), None)),
    ("503 with Retry-After 0 is tried at once", 503, "0", PLAIN, (Again(0, 100), None)),
    ("a negative Retry-After is not honoured", 503, "-1", PLAIN, SLOWED),
    ("nonsense in Retry-After is not honoured", 503, "soon", PLAIN, SLOWED),
    ("Retry-After may be a date", 503, formatdate(NOW_MS / 1_000 + 30), PLAIN,
     (Again(30_000, 100), None)),
    ("a date that has passed means at once", 429, formatdate(NOW_MS / 1_000 - 30), RETRYING,
     (Again(0, 100), None)),
    *((f"discardOn {status} wins", status, "5", OWN, AS_SAID) for status in (401, 404, 500, 503)),
    *((f"retryOn {status} wins", status, "", OWN, SLOWED) for status in (400, 410)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "retry_after", "policy", "expected"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_the_table(status, retry_after, policy, expected):
    outcome = SendOutcome(status, retry_after)
    assert (decided(outcome, policy), is_well(outcome, policy, NOW_MS)) == expected


@pytest.mark.parametrize("failure", list(Failure))
def test_each_failure_without_an_answer_is_tried_again(failure):
    outcome = SendOutcome(0, "", failure)
    says_nothing = failure.is_local or failure is Failure.UNRESOLVED
    assert decided(outcome) == Again(100, 100)
    assert is_well(outcome, PLAIN, NOW_MS) is (None if says_nothing else False)
    aged = RetryPolicy(SerialPolicy(message_ttl=60))
    assert decided(outcome, aged, age_ms=60_000) == Discard(DiscardReason.EXPIRED)
    # A time to live of 0 is one attempt, which a push that was never sent has not had.
    once = RetryPolicy(SerialPolicy(message_ttl=0, message_backoff=0))
    assert isinstance(decided(outcome, once, age_ms=1e9), Again) == failure.is_local


def test_a_message_is_given_up_when_its_next_attempt_would_come_too_late():
    policy = RetryPolicy(SerialPolicy(message_ttl=10, message_backoff=1_000))
    assert decided(SendOutcome(500), policy, age_ms=9_000) == Again(1_000, 1_000)
    assert decided(SendOutcome(500), policy, age_ms=9_001) == Discard(DiscardReason.EXPIRED)
    late = SendOutcome(503, "3600")
    assert decided(late, policy, age_ms=5) == Discard(DiscardReason.EXPIRED)
    assert decided(late, policy, age_ms=0) == Again(10_000, 1_000)


@pytest.mark.parametrize("retry_after", ["", "0"])
def test_a_time_to_live_of_nothing_means_one_attempt(retry_after):
    policy = RetryPolicy(SerialPolicy(message_ttl=0, message_backoff=0))
    assert decided(SendOutcome(503, retry_after), policy) == Discard(DiscardReason.EXPIRED)


def test_the_backoff_grows_to_its_maximum_with_retry_after_as_well():
    policy = SerialPolicy(backoff_multiplier=2.5, backoff_max_interval_in_sec=1)
    seen, previous = [], None
    for _ in range(5):
        previous = next_backoff_ms(previous, policy)
        seen.append(previous)
    assert seen == [100, 250, 625, 1_000, 1_000]
    again = decided(SendOutcome(503, "5"), RetryPolicy(policy), previous_backoff_ms=100)
    assert again == Again(5_000, 250)


@given(seed=st.integers(), backoff_ms=st.integers(0, 600_000))
def test_the_jitter_only_lengthens_and_by_less_than_a_quarter(seed, backoff_ms):
    policy = RetryPolicy(SerialPolicy(message_backoff=backoff_ms, message_ttl=7_200))
    again = decided(SendOutcome(500), policy, rng=random.Random(seed))
    assert backoff_ms <= again.delay_ms <= backoff_ms * 1.25
    assert again.backoff_ms == backoff_ms


@given(st.text(max_size=60) | st.from_regex(r"\A[0-9]{1,5000}\Z"))
def test_reading_retry_after_never_raises_and_is_never_negative(text):
    delay_ms = retry_after_ms(text, NOW_MS)
    assert delay_ms is None or delay_ms >= 0


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [("120", 120_000), (" 5 ", 5_000), ("1.5", None), ("٣", None), ("9" * 400, 10**12), ("", None)],
)
def test_retry_after_in_seconds(text, delay_ms):
    assert retry_after_ms(text, NOW_MS) == delay_ms


@given(status=st.integers(300, 599), attempts=st.integers(1, 20), most=st.integers(1, 20))
def test_no_message_has_more_attempts_than_it_may(status, attempts, most):
    policy = RetryPolicy(SerialPolicy(attempts_max=most, retry_client_errors=True))
    decision = decided(SendOutcome(status), policy, attempts=attempts)
    assert isinstance(decision, Again) == (attempts < most)


@given(
    ttl=st.integers(0, 7_200),
    age_ms=st.floats(0, 10_000_000),
    ttl_from=st.sampled_from(TtlFrom),
)
def test_only_what_is_older_than_its_time_to_live_since_publication_is_too_old(
    ttl, age_ms, ttl_from
):
    policy = RetryPolicy(SerialPolicy(message_ttl=ttl, ttl_from=ttl_from))
    expected = ttl_from is TtlFrom.PUBLICATION and ttl > 0 and age_ms > ttl * 1_000
    assert policy.is_too_old(age_ms) == expected


def test_only_a_client_error_that_may_pass_names_the_settings_that_try_it_again() -> None:
    told = ending_detail(DiscardReason.CLIENT_ERROR, SendOutcome(429))
    assert "add 429 to subscriptionPolicy.retryOn, or set retryClientErrors" in told
    assert ending_detail(DiscardReason.CLIENT_ERROR, SendOutcome(400)) == "HTTP 400"
    assert ending_detail(DiscardReason.EXPIRED, SendOutcome(429)) == "HTTP 429"
