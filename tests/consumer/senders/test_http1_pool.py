"""The pools over a network of the test's own: no loop, no sockets, time moved by hand."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_actors.consumer.senders.http1.pool import Http1Sender, PoolLimits
from hermes_actors.consumer.senders.sender import Failure
from tests.consumer.hand_net import OK, HandNet, push


@pytest.fixture
def net():
    return HandNet()


@pytest.fixture
def sender(net):
    return Http1Sender(net, PoolLimits(connections_max=2, waiting_max=3, idle_s=30))


def test_a_push_is_written_once_connected_and_its_answer_reported(net, sender):
    outcomes = []
    sender.send(push(b"hello"), outcomes.append)
    wire = net.connect()
    assert wire.written == [
        b"POST / HTTP/1.1\r\nHost: sink\r\nA: b\r\nContent-Length: 5\r\n\r\nhello"
    ]
    wire.connection.received(OK)
    assert [outcome.status for outcome in outcomes] == [200]
    assert sender.statistics() == (0, 1, 0)


def test_a_connection_is_used_again_and_no_more_than_allowed_are_opened(net, sender):
    outcomes = []
    for n in range(3):
        sender.send(push(b"%d" % n), outcomes.append)
    assert len(net.dials) == 2
    first, second = net.connect(), net.connect()
    for n in range(2):
        sender.send(push(b"%d" % n), outcomes.append)
    for wire in (first, second, first, second, first):
        wire.connection.received(OK)
    assert len(outcomes) == 5
    assert [len(first.written), len(second.written)] == [3, 2]


def test_too_many_waiting_pushes_are_refused_later_and_not_inside_send(net, sender):
    outcomes = []
    for _ in range(4):
        sender.send(push(), outcomes.append)
    assert outcomes == []
    net.pass_time(0)
    assert [outcome.failure for outcome in outcomes] == [Failure.OVERLOADED]


def test_lanes_do_not_share_connections(net, sender):
    outcomes = []
    for _ in range(3):
        sender.send(push(lane="slow"), outcomes.append)
    sender.send(push(lane="quick"), outcomes.append)
    assert len(net.dials) == 3
    quick = net.connect(2)
    assert len(quick.written) == 1


def test_a_failed_dial_ends_the_push_that_waited_longest_and_the_next_is_tried(net, sender):
    outcomes = []
    for _ in range(3):
        sender.send(push(), outcomes.append)
    for expected in (1, 2, 3):
        net.dials.pop(0)[0].dial_failed("refused")
        assert len(outcomes) == expected
    assert {outcome.failure for outcome in outcomes} == {Failure.CONNECT}
    assert net.dials == []


def test_a_forgotten_lanes_pushes_end_with_their_connections_and_no_others(net, sender):
    forgotten, kept = [], []
    sender.send(push(b"sent"), forgotten.append)
    wire = net.connect()
    for n in range(3):
        sender.send(push(b"%d" % n), forgotten.append)
        sender.send(push(b"%d" % n, lane="b"), kept.append)
    assert sender.statistics() == (1, 0, 6)
    sender.forget("a")
    assert [outcome.failure for outcome in forgotten] == [Failure.CLOSED] * 4
    assert kept == []
    assert wire.is_closed
    assert sender.statistics() == (0, 0, 3)
    # The lane goes on, and each push has ended once, also when its time is over.
    sender.send(push(b"later"), kept.append)
    net.pass_time(2)
    assert len(forgotten) == 4
    assert len(kept) == 4


def test_a_push_times_out_wherever_it_is(net, sender):
    outcomes = []
    sender.send(push(timeout_ms=100), outcomes.append)
    wire = net.connect()
    sender.send(push(timeout_ms=200), outcomes.append)
    sender.send(push(timeout_ms=5_000), outcomes.append)
    net.pass_time(0.13)
    assert [outcome.failure for outcome in outcomes] == [Failure.TIMEOUT]
    assert wire.is_closed
    net.pass_time(0.1)
    assert [outcome.failure for outcome in outcomes] == [Failure.TIMEOUT] * 2
    net.pass_time(4)
    assert len(outcomes) == 2
    # A late answer on the closed connection is not heard.
    wire.connection.received(OK)
    wire.connection.ended()
    assert len(outcomes) == 2


def test_a_push_that_finds_no_free_connection_fails_here_and_not_at_the_endpoint(net, sender):
    outcomes = []
    for _ in range(2):
        sender.send(push(timeout_ms=1_000), outcomes.append)
        net.connect()
    sender.send(push(timeout_ms=100), outcomes.append)
    net.pass_time(0.13)
    (outcome,) = outcomes
    assert outcome.is_local
    assert outcome.reason() == (
        "overloaded: no connection was free in time, all 2 wait for answers"
    )


def test_a_push_whose_connection_is_not_opened_in_time_fails_by_the_endpoint(net, sender):
    outcomes = []
    sender.send(push(timeout_ms=100), outcomes.append)
    net.pass_time(0.13)
    (outcome,) = outcomes
    assert not outcome.is_local
    assert outcome.reason() == "timeout: no connection was opened in time"


def test_silence_on_the_connection_ends_a_push_before_its_time(net, sender):
    outcomes = []
    sender.send(push(timeout_ms=60_000, socket_timeout_ms=1_000), outcomes.append)
    wire = net.connect()
    for _ in range(5):
        net.pass_time(0.9)
        wire.connection.received(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert outcomes == []
    net.pass_time(1.1)
    assert [outcome.failure for outcome in outcomes] == [Failure.IDLE]


def test_a_stale_connection_is_replaced_once_when_nothing_was_answered(net, sender):
    outcomes = []
    sender.send(push(), outcomes.append)
    wire = net.connect()
    wire.connection.received(OK)
    sender.send(push(b"again"), outcomes.append)
    wire.connection.ended()
    assert len(outcomes) == 1
    fresh = net.connect()
    assert fresh.written[0].endswith(b"again")
    fresh.connection.ended()
    assert outcomes[1].failure is Failure.RESET
    assert net.dials == []


def test_a_push_that_finds_a_second_connection_stale_is_a_failure(net, sender):
    outcomes = []
    sender.send(push(b"1"), outcomes.append)
    sender.send(push(b"2"), outcomes.append)
    first, second = net.connect(), net.connect()
    first.connection.received(OK)
    sender.send(push(b"3"), outcomes.append)
    first.connection.ended()
    # The second connection ends its push before the new one is made, and takes the third over.
    second.connection.received(OK)
    assert second.written[-1].endswith(b"3")
    second.connection.ended()
    assert [outcome.failure for outcome in outcomes] == [None, None, Failure.RESET]


GOODBYE = b"HTTP/1.1 408 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def test_a_goodbye_that_crosses_a_push_is_not_its_answer(net, sender):
    outcomes = []
    sender.send(push(), outcomes.append)
    wire = net.connect()
    wire.connection.received(OK)
    sender.send(push(b"again"), outcomes.append)
    wire.connection.received(GOODBYE)
    assert wire.is_closed
    fresh = net.connect()
    assert fresh.written[0].endswith(b"again")
    # On a connection of its own it is the answer.
    fresh.connection.received(GOODBYE)
    assert [outcome.status for outcome in outcomes] == [200, 408]


def test_a_push_that_meets_two_goodbyes_is_answered_by_the_second(net, sender):
    outcomes = []
    sender.send(push(b"1"), outcomes.append)
    sender.send(push(b"2"), outcomes.append)
    first, second = net.connect(), net.connect()
    first.connection.received(OK)
    sender.send(push(b"3"), outcomes.append)
    first.connection.received(GOODBYE)
    second.connection.received(OK)
    assert second.written[-1].endswith(b"3")
    second.connection.received(GOODBYE)
    assert [outcome.status for outcome in outcomes] == [200, 200, 408]


def test_a_408_that_keeps_the_connection_is_an_answer(net, sender):
    outcomes = []
    sender.send(push(), outcomes.append)
    wire = net.connect()
    wire.connection.received(OK)
    sender.send(push(), outcomes.append)
    wire.connection.received(b"HTTP/1.1 408 x\r\nContent-Length: 0\r\n\r\n")
    assert [outcome.status for outcome in outcomes] == [200, 408]


def test_a_reset_after_the_first_byte_or_on_a_new_connection_is_a_failure(net, sender):
    outcomes = []
    sender.send(push(), outcomes.append)
    wire = net.connect()
    wire.connection.received(OK)
    sender.send(push(), outcomes.append)
    wire.connection.received(b"HTTP/1.1 2")
    wire.connection.ended()
    assert outcomes[1].failure is Failure.RESET
    sender.send(push(), outcomes.append)
    net.connect().connection.ended("broken pipe")
    assert outcomes[2].failure is Failure.RESET
    assert outcomes[2].detail == "broken pipe"


def test_a_second_answer_never_becomes_the_next_pushs_answer(net, sender):
    outcomes = []
    sender.send(push(b"1"), outcomes.append)
    sender.send(push(b"2"), outcomes.append)
    sender.send(push(b"3"), outcomes.append)
    wire = net.connect()
    net.connect()
    wire.connection.received(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n" + OK)
    assert [outcome.status for outcome in outcomes] == [500]
    assert wire.is_closed
    assert net.connect().written[0].endswith(b"3")


def test_an_idle_connection_is_closed_after_its_time_and_the_pool_forgotten(net, sender):
    sender.send(push(), lambda _outcome: None)
    wire = net.connect()
    wire.connection.received(OK)
    net.pass_time(31)
    assert wire.is_closed
    assert sender.statistics() == (0, 0, 0)
    assert net.calls == []


def test_closing_ends_every_push_exactly_once(net, sender):
    outcomes = []
    for _ in range(4):
        sender.send(push(), outcomes.append)
    net.connect()
    sender.close()
    sender.send(push(), outcomes.append)
    net.pass_time(60)
    assert [outcome.failure for outcome in outcomes].count(Failure.CLOSED) == 4
    assert len(outcomes) == 5
    # A connection that is made too late is closed at once.
    assert net.connect().is_closed


def test_who_sends_again_from_its_callback_finds_the_connection_free(net, sender):
    outcomes = []

    def done(outcome):
        outcomes.append(outcome)
        if len(outcomes) < 50:
            sender.send(push(), done)

    sender.send(push(), done)
    wire = net.connect()
    while len(outcomes) < 50:
        wire.connection.received(OK)
    assert net.dials == []


def test_an_outcome_that_brings_no_push_leaves_its_connection_idle(net, sender):
    outcomes = []
    sender.send(push(), outcomes.append)
    wire = net.connect()
    wire.connection.received(OK)
    assert sender.statistics() == (0, 1, 0)
    net.pass_time(31)
    assert wire.is_closed


def test_an_outcome_that_closes_the_sender_closes_its_connection_too(net, sender):
    outcomes = []

    def done(outcome):
        outcomes.append(outcome)
        sender.close()
        sender.send(push(), outcomes.append)

    sender.send(push(), done)
    wire = net.connect()
    wire.connection.received(OK)
    net.pass_time(1)
    assert wire.is_closed
    assert [outcome.failure for outcome in outcomes] == [None, Failure.CLOSED]


def test_an_outcome_that_raises_leaves_its_connection_usable(net, sender):
    def broken(_outcome):
        raise RuntimeError("broken")

    outcomes = []
    sender.send(push(), broken)
    wire = net.connect()
    with pytest.raises(RuntimeError):
        wire.connection.received(OK)
    assert sender.statistics() == (0, 1, 0)
    sender.send(push(), outcomes.append)
    wire.connection.received(OK)
    assert [outcome.status for outcome in outcomes] == [200]


def test_the_connection_of_the_outcome_will_do_for_a_probe_where_no_other_is_allowed(net):
    sender = Http1Sender(net, PoolLimits(connections_max=1))
    probed = []

    def done(_outcome):
        sender.probe(push().route, probed.append)

    sender.send(push(), done)
    net.connect().connection.received(OK)
    net.pass_time(0)
    assert probed == [None]


def test_an_outcome_that_brings_two_pushes_has_a_connection_for_one_of_them(net, sender):
    outcomes = []

    def done(_outcome):
        sender.send(push(b"1"), outcomes.append)
        sender.send(push(b"2"), outcomes.append)

    sender.send(push(b"0"), done)
    wire = net.connect()
    wire.connection.received(OK)
    assert [written[-1:] for written in wire.written] == [b"0", b"1"]
    assert len(net.dials) == 1
    other = net.connect()
    assert [written[-1:] for written in other.written] == [b"2"]


class Pools(RuleBasedStateMachine):
    """Any order of events: each push has at most one outcome, and in the end exactly one."""

    def __init__(self):
        super().__init__()
        self.net = HandNet()
        self.sender = Http1Sender(self.net, PoolLimits(connections_max=3, waiting_max=4, idle_s=1))
        self.counts = []

    @rule(timeout_ms=st.sampled_from([100, 1_000]), resend=st.booleans())
    def send(self, timeout_ms, resend):
        number = len(self.counts)
        self.counts.append(0)

        def done(_outcome):
            self.counts[number] += 1
            if resend:
                self.send(timeout_ms, False)

        self.sender.send(push(timeout_ms=timeout_ms), done)
        assert self.counts[number] == 0, "called from inside send"

    @rule()
    def probe(self):
        number = len(self.counts)
        self.counts.append(0)

        def done(_outcome):
            self.counts[number] += 1

        self.sender.probe(push().route, done)
        assert self.counts[number] == 0, "called from inside probe"

    @rule(at=st.integers(0, 5))
    def connect(self, at):
        if self.net.dials:
            self.net.connect(at % len(self.net.dials))

    @rule(at=st.integers(0, 5))
    def refuse(self, at):
        if self.net.dials:
            self.net.dials.pop(at % len(self.net.dials))[0].dial_failed("no")

    @rule(
        at=st.integers(0, 20),
        data=st.sampled_from([OK, OK, OK[:9], OK[9:], b"rubbish", OK * 2, GOODBYE]),
    )
    def hear(self, at, data):
        if self.net.wires:
            self.net.wires[at % len(self.net.wires)].connection.received(data)

    @rule(at=st.integers(0, 20))
    def end(self, at):
        if self.net.wires:
            wire = self.net.wires[at % len(self.net.wires)]
            wire.is_closed = True
            wire.connection.ended()

    @rule(delay_s=st.sampled_from([0.0, 0.05, 0.5, 2.0]))
    def pass_time(self, delay_s):
        self.net.pass_time(delay_s)

    @invariant()
    def no_push_has_two_outcomes_and_no_bound_is_broken(self):
        assert max(self.counts, default=0) <= 1
        busy, idle, waiting = self.sender.statistics()
        assert busy + idle <= 3
        # One more: a push that a stale connection gave back waits beside the full queue.
        assert waiting <= 4 + 3

    def teardown(self):
        self.net.pass_time(5)
        self.sender.close()
        self.net.pass_time(5)
        assert all(count == 1 for count in self.counts)


TestPools = Pools.TestCase
TestPools.settings = settings(stateful_step_count=40, deadline=None)
