"""Sums of many answers, and whom a message still has to go to."""

import random
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.delivery.broadcast import (
    Broadcast,
    PushCallbacks,
    summed_up,
    who_missed,
)
from hermes_actors.consumer.delivery.delivery import Served
from hermes_actors.consumer.delivery.retry import (
    Again,
    Discard,
    Gone,
    RetryPolicy,
    decide,
)
from hermes_actors.consumer.rates.control import Level, RateControls
from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.recipients.resolver_recipients import Recipient
from hermes_actors.consumer.senders.sender import Failure, SendOutcome
from hermes_actors.consumer.serial.pacing import Pacing
from hermes_actors.coordination.owned import Owned
from hermes_actors.model.dead_letter import (
    DiscardReason,
    Letter,
)
from hermes_actors.model.subscription import SerialPolicy
from tests.values import a_live_subscription, a_subscription

POLICY = RetryPolicy(SerialPolicy(message_ttl=60), gone_suspends=True)
OK = SendOutcome(200)
TIMEOUT = SendOutcome(0, "", Failure.TIMEOUT, "no answer")


def recipient(name, problem=""):
    route = None if problem else parse_endpoint(f"http://{name}/in?t=1", "lane").route
    return Recipient(f"http://{name}/in?t=1", route, "", problem)


def attempt(recipients, answers, served=None, policy=POLICY, pushes_max=20):
    """One attempt whose pushes are answered in their order; the sum, and who was pushed to."""
    served = Served() if served is None else served
    started, sums, high = [], [], [0, 0]
    waiting = []

    def push(each, done):
        started.append(each.key)
        waiting.append(partial(done, answers[each.name.split("/")[2]]))
        high[0] = max(high[0], len(waiting))

    Broadcast(
        recipients,
        served,
        policy,
        PushCallbacks(lambda: True, lambda: False, sums.append),
        push=push,
        done=sums.append,
        now_ms=lambda: 0,
        pushes_max=pushes_max,
    ).begin()
    while waiting:
        waiting.pop(0)()
    (total,) = sums
    return total, started, served, high[0]


def decided(outcome, policy=POLICY):
    return decide(
        outcome, policy=policy, previous_backoff_ms=None, age_ms=0, now_ms=0,
        rng=random.Random(1),
    )  # fmt: skip


A, B, C = recipient("a"), recipient("b"), recipient("c")


def test_the_largest_status_and_the_smallest_pause_stand_for_all_that_are_tried_again() -> None:
    answers = {"a": SendOutcome(503, "30"), "b": SendOutcome(504), "c": SendOutcome(503, "7")}
    total, *_ = attempt([A, B, C], answers)
    assert total.status == 504
    decision = decided(total)
    assert isinstance(decision, Again)
    assert decision.delay_ms == 7_000


def test_a_client_error_ends_it_only_once_nobody_is_left_to_try() -> None:
    served = Served()
    answers = {"a": SendOutcome(400), "b": SendOutcome(500), "c": OK}
    total, *_ = attempt([A, B, C], answers, served)
    assert isinstance(decided(total), Again)
    total, started, *_ = attempt([A, B, C], {"b": SendOutcome(422)}, served)
    assert started == [B.key]
    assert decided(total) == Discard(DiscardReason.CLIENT_ERROR)
    assert total.status == 422
    assert total.reason() == "HTTP 422: missed by http://a/in (HTTP 400), http://b/in (HTTP 422)"


def test_who_missed_it_is_named_without_what_may_be_secret() -> None:
    total, *_ = attempt([A, B], {"a": TIMEOUT, "b": OK})
    assert total.failure is Failure.TIMEOUT
    assert "missed by http://a" in total.reason()
    assert "t=1" not in total.reason()


def test_nobody_at_all_is_tried_again_later() -> None:
    total, *_ = attempt([], {})
    assert isinstance(decided(total), Again)


def test_a_410_of_one_is_its_own_affair_and_of_all_is_the_end() -> None:
    gone = SendOutcome(410)
    total, *_ = attempt([A, B], {"a": gone, "b": OK})
    assert isinstance(decided(total), Discard)
    total, _, served, _ = attempt([A, B], {"a": gone, "b": gone})
    assert isinstance(decided(total), Gone)
    # Resumed, both are asked again.
    assert attempt([A, B], {"a": OK, "b": OK}, served)[0].is_success


def test_no_more_pushes_at_once_than_allowed() -> None:
    many = [recipient(f"host{each}") for each in range(10)]
    total, started, _, high = attempt(many, {f"host{each}": OK for each in range(10)}, pushes_max=3)
    assert (len(started), high) == (10, 3)
    assert total.is_success


def test_an_abandoned_attempt_begins_no_further_push() -> None:
    over, started, waiting = [], [], []
    Broadcast(
        [A, B],
        Served(),
        POLICY,
        PushCallbacks(lambda: True, lambda: len(started) == 1 and not waiting, over.append),
        push=lambda each, done: (started.append(each), waiting.append(done)),
        done=over.append,
        now_ms=lambda: 0,
        pushes_max=1,
    ).begin()
    waiting.pop()(OK)
    assert started == [A]
    assert over == []


STATUSES = st.sampled_from([200, 204, 302, 400, 404, 410, 429, 500, 503, 0])


@given(rounds=st.lists(st.lists(STATUSES, min_size=4, max_size=4), min_size=1, max_size=6))
def test_nobody_who_is_served_is_pushed_to_and_the_sum_says_what_is_left(rounds) -> None:
    everyone = [recipient(name) for name in "abcd"]
    served = Served()
    took, refused = set(), set()
    for statuses in rounds:
        answers = {
            name: SendOutcome(status) if status else TIMEOUT
            for name, status in zip("abcd", statuses, strict=True)
        }
        total, started, *_ = attempt(everyone, answers, served)
        assert not {each for each in everyone if each.key in started} & (took | refused)
        for each in everyone:
            if each.key in started:
                status = answers[each.name.split("/")[2]].status
                if 200 <= status < 300:
                    took.add(each)
                elif 400 <= status < 500:
                    refused.add(each)
        waiting = set(everyone) - took - refused
        assert total.is_success == (not waiting and not refused)
        if not waiting:
            assert not refused or isinstance(decided(total), Discard | Gone)
            assert all(each.name in total.reason() for each in refused)
            break
        assert isinstance(decided(total), Again)


def pacing_after(outcomes, pacing=None, now_s=0.0):
    clock = SimpleNamespace(monotonic_s=lambda: 0.0, now_ms=lambda: 0)
    parts = SimpleNamespace(clock=clock, rate_controls=RateControls())
    pacing = pacing or Pacing(a_live_subscription(a_subscription()), 1_000, parts, Owned())
    delivery = SimpleNamespace(epoch=pacing.control.epoch, failed_s=None, route=None)
    total = SendOutcome(500, recipients=tuple(outcomes))
    pacing.on_answers(delivery, total, POLICY, now_s)
    return pacing


def test_each_recipients_answer_counts_for_the_rate() -> None:
    dead = pacing_after([SendOutcome(500)] * 10)
    assert dead.control.level is Level.SLOW
    assert pacing_after([SendOutcome(500)] * 10 + [OK] * 10).control.level is Level.FULL


@pytest.mark.parametrize(
    "outcome",
    [SendOutcome(404), SendOutcome(503, "1"), SendOutcome(0, "", Failure.UNRESOLVED)],
)
def test_what_is_no_fault_of_a_recipient_slows_nothing(outcome) -> None:
    assert pacing_after([outcome] * 50).control.level is Level.FULL


def test_a_half_open_control_opens_when_anybody_answers() -> None:
    pacing = pacing_after([SendOutcome(500)] * 10)
    pacing_after([SendOutcome(500), TIMEOUT], pacing, 2.0)
    assert pacing.control.level is Level.SLOW
    pacing_after([TIMEOUT, OK, TIMEOUT], pacing, 4.0)
    assert pacing.control.level is Level.ADAPTING


def test_the_sum_of_local_failures_is_local() -> None:
    busy = SendOutcome(0, "", Failure.OVERLOADED)
    total = summed_up([A, B], {A.key: busy, B.key: busy}, Served(), now_ms=0)
    assert total.is_local
    total = summed_up([A, B], {A.key: busy, B.key: TIMEOUT}, Served(), now_ms=0)
    assert total.failure is Failure.TIMEOUT


def test_who_has_not_taken_it_by_the_end_is_named_and_tried_again_on_demand() -> None:
    served = Served()
    attempt([A, B, C], {"a": OK, "b": SendOutcome(503), "c": SendOutcome(400)}, served)
    assert served.missed == (B.name, C.name)
    letter = letter_missed_by(*served.missed)
    assert who_missed(letter, [A, B, C]) == [B, C]
    assert who_missed(letter, [A, C]) == [C]
    # Nobody of them is there any more, or nobody was named.
    assert who_missed(letter, [A]) == [A]
    assert who_missed(letter_missed_by(), [A, B]) == [A, B]
    assert who_missed(None, [A, B]) == [A, B]


def letter_missed_by(*names: str) -> Letter:
    return Letter(
        dc="dc1",
        subscription="a.b$c",
        incarnation=0,
        log_topic="a.b",
        partition=0,
        offset=1,
        timestamp_ms=1,
        key=None,
        value=b"m",
        headers=(),
        message_id="m-1",
        reason="expired",
        detail="",
        attempts=1,
        status=503,
        at_ms=2,
        missed=names,
    )
