import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.consumer.senders.http1.wire import HEAD_BYTES_MAX, Exchange
from hermes_actors.consumer.senders.sender import BODY_BYTES_KEPT, Failure, SendOutcome, Witness

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
    ("protocols switched unasked", b"HTTP/1.1 101 x\r\n\r\n", False, Failure.MALFORMED, False),
    ("another protocol offered", (b"HTTP/1.1 200 x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
     b"Content-Length: 0\r\n\r\n"), False, 200, True),
    ("not modified, with a length", b"HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n",
     False, 304, True),
    ("no content, with a body all the same", b"HTTP/1.1 204 x\r\nContent-Length: 3\r\n\r\nabc",
     False, 204, False),
    ("a length and chunks", (b"HTTP/1.1 200 x\r\nContent-Length: 3\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
     False, Failure.MALFORMED, False),
    ("a length that is none", b"HTTP/1.1 200 x\r\nContent-Length: -1\r\n\r\n",
     False, Failure.MALFORMED, False),
    ("a folded header", b"HTTP/1.1 200 x\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
     False, Failure.MALFORMED, False),
    ("too many headers", b"HTTP/1.1 200 x\r\n" + b"A: b\r\n" * 300 + b"\r\n",
     False, Failure.MALFORMED, False),
    ("as many headers as allowed", b"HTTP/1.1 200 x\r\nContent-Length: 0\r\n"
     + b"A: b\r\n" * 255 + b"\r\n", False, 200, True),
    ("a long head", b"HTTP/1.1 200 x\r\nContent-Length: 0\r\nA: " + b"b" * 60_000 + b"\r\n\r\n",
     False, 200, True),
    ("a head above the bound", b"HTTP/1.1 200 x\r\nContent-Length: 0\r\nA: " + b"b" * 66_000
     + b"\r\n\r\n", False, Failure.MALFORMED, False),
    ("a header of spaces", b"HTTP/1.1 200 x\r\nA:" + b" " * 70_000,
     False, Failure.MALFORMED, False),
    ("trailers without end", b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: "
     + b"b" * 70_000, False, 200, False),
    ("many trailers", b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
     + b"A: b\r\n" * 300 + b"\r\n", False, 200, False),
    ("a status of four digits", b"HTTP/1.1 2000 x\r\nContent-Length: 0\r\n\r\n",
     False, Failure.MALFORMED, False),
    ("HTTP/2 to an HTTP/1.1 client", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", False,
     Failure.MALFORMED, False),
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


@pytest.mark.parametrize(
    ("raw", "closes", "expected", "is_reusable"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_an_answer_has_one_outcome_however_it_is_split(raw, closes, expected, is_reusable):
    for step in (1, 977, 10**9):
        pieces = [raw[at : at + step] for at in range(0, len(raw), step)]
        exchange, (outcome,) = exchange_with(pieces, closes)
        assert (outcome.failure or outcome.status) == expected
        assert exchange.is_reusable == is_reusable
        assert not exchange.is_busy


def test_retry_after_is_taken_from_the_final_answer_only():
    interim = b"HTTP/1.1 103 x\r\nRetry-After: 1\r\n\r\n"
    final = b"HTTP/1.1 503 x\r\nretry-AFTER: 7\r\nContent-Length: 0\r\n\r\n"
    surplus = b"HTTP/1.1 503 x\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n"
    assert exchange_with([interim + final + surplus], False)[1] == [SendOutcome(503, "7")]
    assert exchange_with([interim + OK_EMPTY], False)[1] == [SendOutcome(200)]


def test_a_retry_after_that_nobody_could_mean_is_ignored():
    long = b"HTTP/1.1 503 x\r\nRetry-After: " + b"9" * 65 + b"\r\nContent-Length: 0\r\n\r\n"
    assert exchange_with([long], False)[1] == [SendOutcome(503)]


def test_a_retry_after_in_a_trailer_is_none():
    late = b"HTTP/1.1 503 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nRetry-After: 9\r\n\r\n"
    assert exchange_with([late], False)[1] == [SendOutcome(503)]


def test_many_requests_follow_one_another_on_one_connection():
    exchange = Exchange(1_000)
    for status in (200, 404, 503, 200):
        exchange.begin()
        answer = b"HTTP/1.1 %d x\r\nContent-Length: 600\r\n\r\n" % status + b"x" * 600
        assert exchange.receive(answer).status == status
    assert exchange.served == 4
    assert exchange.is_reusable


ENDED = (Failure.MALFORMED, Failure.RESET)
WHOLE = [raw for _, raw, closes, expected, _ in CASES if not closes and expected not in ENDED]


@given(st.data(), st.lists(st.sampled_from(WHOLE), min_size=1, max_size=4))
def test_an_answer_that_came_before_is_taken_as_if_it_were_the_first_time(data, kinds):
    at_once, in_pieces = Exchange(1_000), Exchange(1_000)
    for _ in range(12):
        raw = data.draw(st.sampled_from(kinds))
        cut = data.draw(st.integers(1, len(raw) - 1))
        at_once.begin()
        in_pieces.begin()
        outcome = at_once.receive(raw)
        # What comes in two pieces is parsed each time.
        pieces = [in_pieces.receive(raw[:cut]), in_pieces.receive(raw[cut:])]
        assert outcome is not None
        assert outcome in pieces
        assert at_once.is_answered
        assert not at_once.is_busy
        assert at_once.served == in_pieces.served
        assert at_once.is_reusable == in_pieces.is_reusable
        if not at_once.is_reusable:
            return


def test_an_answer_that_came_before_is_unasked_for_a_second_time():
    exchange = Exchange(1_000)
    for _ in range(4):
        exchange.begin()
        assert exchange.receive(OK_EMPTY) == SendOutcome(200)
    assert exchange.receive(OK_EMPTY) is None
    assert not exchange.is_reusable


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


token = st.text("abcXYZ-", min_size=1, max_size=8).map(str.encode)


@st.composite
def valid_answers(draw):
    """Bytes of a valid answer, its status, and whether it ends with the connection."""
    interims = draw(st.lists(st.sampled_from([100, 102, 103]), max_size=2))
    raw = b"".join(b"HTTP/1.1 %d x\r\nLink: </a>\r\n\r\n" % each for each in interims)
    status = draw(st.sampled_from([200, 201, 202, 204, 302, 304, 400, 429, 500, 503]))
    body = draw(st.binary(max_size=200))
    framing = draw(st.sampled_from(["length", "chunks", "close"]))
    headers = draw(st.lists(st.tuples(token, token), max_size=5))
    lines = [b"X%b: %b\r\n" % each for each in headers]
    if status in (204, 304):
        body, framing = b"", "none"
    if framing == "length":
        lines.append(b"Content-Length: %d\r\n" % len(body))
    elif framing == "chunks":
        lines.append(b"Transfer-Encoding: chunked\r\n")
        size = draw(st.integers(1, 50))
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n\r\n"
    draw(st.randoms(use_true_random=False)).shuffle(lines)
    raw += b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, draw(token), b"".join(lines), body)
    return raw, status, framing == "close"


def cut(raw, places):
    edges = [0, *sorted(place % (len(raw) + 1) for place in places), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges) if a < b]


@given(valid_answers(), st.lists(st.integers(0, 10_000), max_size=8))
def test_a_valid_answer_has_its_status_wherever_the_network_cuts_it(answer, places):
    raw, status, closes = answer
    whole, whole_outcomes = exchange_with([raw], closes)
    exchange, outcomes = exchange_with(cut(raw, places), closes)
    assert outcomes == whole_outcomes == [SendOutcome(status)]
    assert exchange.is_reusable == whole.is_reusable == (not closes)


@given(valid_answers(), st.integers(0, 10_000), st.binary(min_size=1, max_size=3), st.data())
def test_a_broken_answer_has_one_outcome_wherever_it_is_cut(answer, at, wrong, data):
    raw, _status, _closes = answer
    at %= len(raw)
    raw = raw[:at] + wrong + raw[at + len(wrong) :]
    places = data.draw(st.lists(st.integers(0, 10_000), max_size=8))
    _, whole = exchange_with([raw], True)
    _, outcomes = exchange_with(cut(raw, places), True)
    assert len(whole) == len(outcomes) == 1
    assert (whole[0].status, whole[0].failure) == (outcomes[0].status, outcomes[0].failure)


ANSWERED = (
    b"HTTP/1.1 103 x\r\nLink: early\r\n\r\n"
    b"HTTP/1.1 503 x\r\nA: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n2\r\nde\r\n0\r\nT: late\r\n\r\n"
)


@pytest.mark.parametrize("step", [1, 10**9])
def test_a_witness_sees_headers_and_body_of_the_final_answer(step):
    exchange, witness = Exchange(1_000), Witness()
    exchange.begin(witness)
    for at in range(0, len(ANSWERED), step):
        outcome = exchange.receive(ANSWERED[at : at + step])
    assert outcome == SendOutcome(503)
    assert witness.headers == [(b"A", b"1"), (b"Transfer-Encoding", b"chunked")]
    assert (witness.body, witness.body_bytes) == (b"abcde", 5)


def test_a_witness_sees_an_answer_that_is_known_already_and_keeps_its_beginning_only():
    exchange, witness = Exchange(100_000), Witness()
    answer = b"HTTP/1.1 200 x\r\nA: 1\r\nContent-Length: 2\r\n\r\nok"
    for _ in range(3):
        exchange.begin()
        assert exchange.receive(answer).status == 200
    exchange.begin(witness)
    assert exchange.receive(answer).status == 200
    assert (witness.headers[0], witness.body) == ((b"A", b"1"), b"ok")
    exchange.begin()
    assert exchange.receive(answer).status == 200
    exchange.begin(witness)
    exchange.receive(b"HTTP/1.1 200 x\r\nContent-Length: 50000\r\n\r\n" + b"x" * 50_000)
    assert len(witness.headers) == 1
    assert (len(witness.body), witness.body_bytes) == (BODY_BYTES_KEPT, 50_000)
