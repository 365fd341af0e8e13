"""The breaker opens on silence, late acknowledgements and errors, and good probes close it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.breaker import Breaker, Opened, Sent

CAP_S, DELAY_S, PROBE_S = 0.250, 0.050, 1.0


def make() -> Breaker:
    config = FallbackConfig(speculative_send_delay_ms=250, probe_interval_ms=1_000)
    return Breaker(config, random.Random(3))


def send(breaker: Breaker, now_s: float, count: int = 1) -> Sent:
    sent = Sent(count, now_s)
    breaker.add(sent)
    return sent


def opened(now_s: float = 0.0) -> Breaker:
    breaker = make()
    for _ in range(5):
        breaker.failed(send(breaker, now_s), now_s)
    assert breaker.is_open
    return breaker


def probe(breaker: Breaker, now_s: float) -> tuple[Sent, float]:
    """The next probe, and when it went out."""
    while not breaker.take_probe(now_s):
        now_s += 0.01
    return send(breaker, now_s), now_s


def test_silence_for_one_delay_with_eight_messages_in_two_appends_opens_it() -> None:
    breaker = make()
    send(breaker, 0.0, 4)
    send(breaker, 0.01, 4)
    assert not breaker.check(DELAY_S, 0.059)
    assert breaker.check(DELAY_S, 0.061)
    assert breaker.is_open
    assert breaker.cause is Opened.SILENCE
    assert not breaker.check(DELAY_S, 0.070), "it opens once"


def test_one_append_alone_must_be_silent_for_twice_the_delay() -> None:
    breaker = make()
    send(breaker, 0.0, 8)
    assert not breaker.check(DELAY_S, 0.099)
    assert breaker.check(DELAY_S, 0.100)


def test_an_append_that_was_overdue_at_the_last_sign_of_life_is_no_silence() -> None:
    breaker = make()
    for _ in range(20):
        send(breaker, 0.0, 10)  # one partition is dead
    breaker.acknowledged(send(breaker, 1.0), 1.001)
    assert not breaker.check(DELAY_S, 5.0), "nobody publishes, so nothing is heard"
    send(breaker, 5.0, 4)
    send(breaker, 5.0, 4)
    assert breaker.check(DELAY_S, 5.1)


def test_three_late_acknowledgements_in_a_row_open_it_and_a_timely_one_between_starts_again() -> (
    None
):
    breaker = make()
    for start_s in (0.0, 1.0):
        breaker.acknowledged(send(breaker, start_s), start_s + 0.3)
    breaker.acknowledged(send(breaker, 2.0), 2.25)
    for start_s in (3.0, 4.0):
        assert not breaker.acknowledged(send(breaker, start_s), start_s + 0.3)
    assert breaker.acknowledged(send(breaker, 5.0), 5.3)
    assert breaker.cause is Opened.LATE


def test_five_errors_in_a_row_open_it() -> None:
    breaker = make()
    for _ in range(4):
        assert not breaker.failed(send(breaker, 0.0), 0.0)
    assert breaker.failed(send(breaker, 0.0), 0.0)
    assert breaker.cause is Opened.ERRORS


def test_a_probe_that_is_acknowledged_in_time_closes_it_and_no_other_does() -> None:
    breaker, now_s = opened(), 0.0
    sent, now_s = probe(breaker, now_s)
    breaker.acknowledged(sent, now_s + CAP_S + 0.01)
    sent, now_s = probe(breaker, now_s)
    breaker.failed(sent, now_s + 0.1)
    assert breaker.is_open
    sent, now_s = probe(breaker, now_s)
    breaker.acknowledged(sent, now_s + CAP_S)
    assert not breaker.is_open


def test_what_outlived_the_opening_does_not_close_it_but_brings_the_next_probe_forward() -> None:
    breaker = make()
    stuck = [send(breaker, 0.0, 10) for _ in range(3)]
    assert breaker.check(DELAY_S, 0.06)
    assert not breaker.take_probe(0.07)
    breaker.acknowledged(stuck[0], 0.08)
    assert breaker.is_open
    assert breaker.take_probe(0.08)


def test_what_outlived_the_closing_does_not_open_it_again() -> None:
    breaker = make()
    stuck = [send(breaker, 0.0, 10) for _ in range(20)]
    breaker.check(DELAY_S, 0.06)
    sent, now_s = probe(breaker, 0.06)
    breaker.acknowledged(sent, now_s + 0.01)
    assert not breaker.is_open
    for each in stuck[:10]:
        assert not breaker.acknowledged(each, now_s + 4.0)
    for each in stuck[10:]:
        assert not breaker.failed(each, now_s + 5.0)
    assert not breaker.check(DELAY_S, now_s + 9.0)


def test_probes_come_soon_at_first_and_then_once_an_interval_give_or_take_a_quarter() -> None:
    breaker, now_s, gaps_s = opened(), 0.0, []
    for _ in range(12):
        _, at_s = probe(breaker, now_s)
        gaps_s.append(at_s - now_s)
        now_s = at_s
    for gap_s, share in zip(gaps_s, [1 / 8, 1 / 4, 1 / 2, *[1] * 9], strict=True):
        assert share * 0.75 - 0.01 <= gap_s <= share * 1.25 + 0.02


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "ack", "fail", "answer", "check", "probe"]),
        st.floats(0, 0.5),
        st.integers(1, 20),
    ),
    max_size=150,
)


@given(STEPS)
def test_whatever_happens_a_log_that_answers_in_time_again_is_used_again(steps) -> None:
    breaker, now_s = make(), 0.0
    outstanding: list[Sent] = []
    for step, pause_s, count in steps:
        now_s += pause_s
        was_open = breaker.is_open
        has_opened = False
        if step == "send":
            outstanding.append(send(breaker, now_s, count))
        elif step == "check":
            has_opened = breaker.check(DELAY_S, now_s)
        elif step == "probe" and breaker.take_probe(now_s):
            outstanding.append(send(breaker, now_s))
        elif outstanding and step in ("ack", "fail", "answer"):
            sent = outstanding.pop(count % len(outstanding))
            if step == "ack":
                has_opened = breaker.acknowledged(sent, now_s)
            elif step == "fail":
                has_opened = breaker.failed(sent, now_s)
            else:
                breaker.answered(sent, now_s)
        assert has_opened == (breaker.is_open and not was_open)
    if breaker.is_open:
        sent, now_s = probe(breaker, now_s)
        assert breaker.acknowledged(sent, now_s + 0.001) is False
    assert not breaker.is_open
