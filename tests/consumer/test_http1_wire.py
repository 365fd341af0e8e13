import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.http1_wire import HEAD_BYTES_MAX, Exchange
from hermes_actors.consumer.sender import Failure, SendOutcome

OK_EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

# (what, bytes, closes after them, status or failure, reusable)
CASES = [
    ("a plain answer", OK_EMPTY, False, 200, True),
    ("an answer with a body", b"HTTP/1.1 201 x\r\nContent-Length: 3\r\n\r\nabc", False, 201, True),
    ("no content", b"HTTP/1.1 204 x\r\n\r\n", False, 204, True),
    ("chunks", b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
     False, 200, True),
    ("chunks with a trailer",
     b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n",
     False, 200, True),
    ("ended by closing", b"HTTP/1.1 200 x\r\n\r\nabc", True, 200, False),
    ("asked to close", b"HTTP/1.1 200 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
     False, 200, False),
    ("HTTP/1.0", b"HTTP/1.0 200 x\r\nContent-Length: 0\r\n\r\n", False, 200, False),
    ("HTTP/1.0 kept alive",
     b"HTTP/1.0 200 x\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", False, 200, True),
    ("a continue first", b"HTTP/1.1 100 Continue\r\n\r\n" + OK_EMPTY, False, 200, True),
    ("early hints first", b"HTTP/1.1 103 x\r\nLink: </a>\r\n\r\n" + OK_EMPTY, False, 200, True),
    ("two answers to one request", OK_EMPTY + OK_EMPTY, False, 200, False),
    ("rubbish after the answer", OK_EMPTY + b"rubbish", False, 200, False),
    ("a body cut short", b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nabc", True, 200, False),
    ("a broken chunk", b"HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
     False, 503, False),
    ("a body above the bound", b"HTTP/1.1 200 x\r\nContent-Length: 5000\r\n\r\n" + b"x" * 2_000,
     False, 200, False),
    ("rubbish", b"rubbish\r\n", False, Failure.MALFORMED, False),
    ("a status of no digits", b"HTTP/1.1 abc x\r\n\r\n", False, Failure.MALFORMED, False),
    ("a status that is none", b"HTTP/1.1 000 x\r\nContent-Length: 0\r\n\r\n",
     False, Failure.MALFORMED, False),
    ("two lengths", b"HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
     False, Failure.MALFORMED, False),
    ("another protocol", b"HTTP/1.1 101 x\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\n",
     False, Failure.MALFORMED, False),
    ("a head without end", b"HTTP/1.1 200 x\r\n" + b"A: bbbbbbbb\r\n" * 6_000,
     False, Failure.MALFORMED, False),
    ("endless interim answers", b"HTTP/1.1 100 x\r\n\r\n" * 200, False, Failure.MALFORMED, False),
    ("nothing at all", b"", True, Failure.RESET, False),
    ("a head cut short", b"HTTP/1.1 200 x\r\nContent-Le", True, Failure.RESET, False),
    ("only an interim answer", b"HTTP/1.1 100 x\r\n\r\n", True, Failure.RESET, False),
]  # fmt: skip


def exchange_with(pieces, closes):
    exchange = Exchange(body_bytes_max=1_000)
    exchange.begin()
    outcomes = [outcome for piece in pieces if (outcome := exchange.receive(piece)) is not None]
    if closes and (outcome := exchange.end_of_stream()) is not None:
        outcomes.append(outcome)
    return exchange, outcomes


@pytest.mark.parametrize("step", [1, 7, 10**9])
@pytest.mark.parametrize(
    ("raw", "closes", "expected", "is_reusable"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_an_answer_has_one_outcome_however_it_is_split(raw, closes, expected, is_reusable, step):
    pieces = [raw[at : at + step] for at in range(0, len(raw), step)]
    exchange, outcomes = exchange_with(pieces, closes)
    assert len(outcomes) == 1
    outcome = outcomes[0]
    assert (outcome.failure or outcome.status) == expected
    assert exchange.is_reusable == is_reusable
    assert not exchange.is_busy


def test_retry_after_is_taken_from_the_final_answer_only():
    interim = b"HTTP/1.1 103 x\r\nRetry-After: 1\r\n\r\n"
    final = b"HTTP/1.1 503 x\r\nretry-AFTER: 7\r\nContent-Length: 0\r\n\r\n"
    surplus = b"HTTP/1.1 503 x\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n"
    assert exchange_with([interim + final + surplus], False)[1] == [SendOutcome(503, "7")]
    assert exchange_with([interim + OK_EMPTY], False)[1] == [SendOutcome(200)]


def test_many_requests_follow_one_another_on_one_connection():
    exchange = Exchange(1_000)
    for status in (200, 404, 503, 200):
        exchange.begin()
        answer = b"HTTP/1.1 %d x\r\nContent-Length: 600\r\n\r\n" % status + b"x" * 600
        assert exchange.receive(answer).status == status
    assert exchange.served == 4
    assert exchange.is_reusable


def test_bytes_that_nobody_asked_for_end_the_connection_and_answer_nothing():
    exchange = Exchange(1_000)
    exchange.begin()
    exchange.receive(OK_EMPTY)
    assert exchange.receive(OK_EMPTY) is None
    assert not exchange.is_reusable


def test_giving_up_reports_the_status_when_the_head_was_there():
    exchange = Exchange(1_000)
    exchange.begin()
    assert exchange.receive(b"HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nabc") is None
    assert exchange.give_up(Failure.TIMEOUT, "late") == SendOutcome(200)
    exchange = Exchange(1_000)
    exchange.begin()
    assert exchange.give_up(Failure.TIMEOUT, "late").failure is Failure.TIMEOUT
    assert exchange.give_up(Failure.TIMEOUT, "late") is None


fragments = st.sampled_from(
    [
        b"HTTP/1.1 ",
        b"200 OK",
        b"100 Continue",
        b"\r\n",
        b"\r\n\r\n",
        b"Content-Length: ",
        b"5",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Retry-After: 3\r\n",
        b"a\r\n",
        b"\x00",
        b"HTTP/9.9 999",
        OK_EMPTY,
    ]
)


@given(st.lists(fragments | st.binary(max_size=30), max_size=30), st.booleans())
def test_no_bytes_break_the_promise_of_at_most_one_outcome(pieces, closes):
    exchange, outcomes = exchange_with(pieces, closes)
    assert len(outcomes) <= 1
    assert bool(outcomes) == (not exchange.is_busy)
    if closes:
        assert len(outcomes) == 1
        assert not exchange.is_reusable
    for outcome in outcomes:
        assert (outcome.status >= 100) != (outcome.failure is not None)
    if exchange.is_busy:
        # Nothing is kept without bound while waiting.
        assert sum(map(len, pieces)) <= HEAD_BYTES_MAX + 2_000
