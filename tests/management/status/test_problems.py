"""Whether a subscription is healthy, for whatever its nodes may tell."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.management.status.problems import SubscriptionHealth, health_of
from hermes_actors.metadata.bodies import Suspension
from hermes_actors.metadata.catalog import LiveSubscription
from hermes_actors.model.subscription import SerialPolicy, SubscriptionState
from hermes_actors.status.record import Flow, LastUndelivered
from hermes_actors.status.sums import SubscriptionSum
from tests.values import a_live_subscription, a_subscription

RATE = st.integers(0, 50_000)
FLOWS = st.builds(
    Flow,
    delivered=RATE,
    timeouts=RATE,
    other_errors=RATE,
    codes_2xx=RATE,
    codes_4xx=RATE,
    codes_5xx=RATE,
)
SUMS = st.builds(
    SubscriptionSum,
    is_known=st.just(True),
    is_whole=st.booleans(),
    counts=st.just(Flow()),
    rates=FLOWS,
    lag=st.just(0),
    lag_min=st.integers(0, 10**8),
    nodes=st.integers(0, 3),
    open_letters=st.integers(-1, 2),
    last_undelivered=st.sampled_from([None, LastUndelivered(1, 0, 7, "HTTP 400")]),
    latency_ms=st.none(),
)
TOPIC_RATES = st.integers(0, 100_000)
MISSING = st.dictionaries(st.sampled_from(["dc1", "dc2"]), st.just("all nodes are full"))
SUSPENSIONS = st.sampled_from([None, Suspension(0, reason="the endpoint answered 410 Gone")])


def live(*, is_suspended=False, suspension=None, retries=False) -> LiveSubscription:
    state = SubscriptionState.SUSPENDED if is_suspended else SubscriptionState.ACTIVE
    policy = SerialPolicy(retry_client_errors=retries)
    subscription = a_subscription(state=state, subscription_policy=policy)
    return msgspec.structs.replace(a_live_subscription(subscription), suspension=suspension)


def judged(found: SubscriptionSum, **given: Any) -> SubscriptionHealth:
    rate, missing = given.pop("topic_rate", 0), given.pop("missing", {})
    return health_of(live(**given), found, (), rate, missing)


def codes(health: SubscriptionHealth) -> list[str]:
    return [each["code"] for each in health.problems]


@given(SUMS, TOPIC_RATES, MISSING, SUSPENSIONS, st.booleans(), st.booleans())
def test_it_is_unhealthy_exactly_when_there_is_a_problem(
    found, topic_rate, missing, suspension, is_suspended, retries
):
    subscription = live(is_suspended=is_suspended, suspension=suspension, retries=retries)
    health = health_of(subscription, found, (), topic_rate, missing)
    assert (health.status == "UNHEALTHY") == bool(health.problems)
    assert all(each["code"] and each["description"] for each in health.problems)
    if health.status == "HEALTHY" and not is_suspended:
        assert found.is_whole
        assert found.nodes


@given(SUMS, TOPIC_RATES, MISSING)
def test_what_somebody_has_suspended_is_healthy_until_messages_wait(found, topic_rate, missing):
    subscription = live(is_suspended=True, suspension=Suspension(1_700_000_000_000, "alice"))
    health = health_of(subscription, found, (), topic_rate, missing)
    letters = ["RECEIVING_MALFORMED_MESSAGES"] if found.open_letters > 0 else []
    if not found.lag_min:
        assert codes(health) == letters
        return
    assert (health.status, codes(health)) == ("UNHEALTHY", ["LAGGING", *letters])
    assert health.problems[0]["description"] == (
        f"suspended since 2023-11-14T22:13:20Z by alice; messages that wait: {found.lag_min}"
    )


@given(SUMS)
def test_what_the_broker_has_suspended_says_why(found):
    health = judged(found, is_suspended=True, suspension=Suspension(0, reason="410 Gone"))
    assert health.status == "UNHEALTHY"
    assert health.problems[0]["code"] == "UNREACHABLE"
    assert health.problems[0]["description"].startswith("the broker has suspended it: 410 Gone")


@given(SUMS, TOPIC_RATES, st.booleans())
def test_the_codes_are_those_of_hermes_limits(found, topic_rate, retries):
    rates = found.rates
    attempts = rates.attempts
    wanted = []
    if found.lag_min * 1_000 > 600 * max(topic_rate, 2_000):
        wanted.append("LAGGING")
    if attempts >= 2_000:
        shares = (
            ("UNREACHABLE", rates.other_errors, 0.5),
            ("TIMING_OUT", rates.timeouts, 0.1),
            ("MALFUNCTIONING", rates.codes_5xx, 0.1),
            ("RECEIVING_MALFORMED_MESSAGES", rates.codes_4xx if retries else 0, 0.1),
        )
        wanted += [code for code, rate, share in shares if rate > share * attempts]
    if found.open_letters > 0:
        wanted.append("RECEIVING_MALFORMED_MESSAGES")
    assert codes(judged(found, topic_rate=topic_rate, retries=retries)) == wanted


@given(SUMS, st.integers(1, 10**6), TOPIC_RATES)
def test_more_that_waits_takes_no_problem_away(found, more, topic_rate):
    worse = msgspec.structs.replace(found, lag_min=found.lag_min + more)
    before = codes(judged(found, topic_rate=topic_rate))
    assert set(before) <= set(codes(judged(worse, topic_rate=topic_rate)))


@given(SUMS)
def test_a_problem_outweighs_what_is_not_known(found):
    part = msgspec.structs.replace(found, is_whole=False)
    if judged(found).problems:
        assert judged(part) == judged(found)
    else:
        assert judged(part).status == "NO_DATA"
