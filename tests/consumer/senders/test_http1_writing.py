"""Writing to peers that read slowly or not at all, and probes that write nothing."""

import pytest

from hermes_actors.consumer.senders.http1.connection import PIECE_BYTES
from hermes_actors.consumer.senders.http1.pool import Http1Sender, PoolLimits
from hermes_actors.consumer.senders.sender import Failure
from tests.consumer.hand_net import OK, HandNet, HandWire, push


@pytest.fixture
def net():
    return HandNet()


@pytest.fixture
def sender(net):
    return Http1Sender(net, PoolLimits(connections_max=2, waiting_max=3, idle_s=30))


BIG = b"b" * (PIECE_BYTES * 5 + 7)


def test_a_long_request_is_written_as_fast_as_the_peer_takes_it(net, sender):
    outcomes = []
    sender.send(push(BIG, timeout_ms=60_000), outcomes.append)
    connection, _ = net.dials.pop()
    wire = HandWire(connection)
    wire.room = 1
    connection.opened(wire)
    head = b"POST / HTTP/1.1\r\nHost: sink\r\nA: b\r\nContent-Length: %d\r\n\r\n" % len(BIG)
    while sum(map(len, wire.written)) < len(head + BIG):
        buffered = -wire.room
        assert buffered <= PIECE_BYTES + 100
        assert not connection.is_usable()
        wire.read(buffered + 1)
    assert b"".join(wire.written) == head + BIG
    connection.received(OK)
    assert [outcome.status for outcome in outcomes] == [200]
    # What has been written is not all taken yet: the next request would wait behind it.
    assert wire.is_closed


def test_a_peer_that_does_not_read_is_a_timeout_that_says_so(net, sender):
    outcomes = []
    sender.send(push(BIG, timeout_ms=500), outcomes.append)
    connection, _ = net.dials.pop()
    wire = HandWire(connection)
    wire.room = 1_000
    connection.opened(wire)
    net.pass_time(1)
    assert [outcome.reason() for outcome in outcomes] == [
        "timeout: the endpoint had not taken the whole request within 500 ms"
    ]
    assert wire.is_closed
    written = len(wire.written)
    wire.read(10**9)
    assert len(wire.written) == written


def test_a_peer_that_reads_slowly_is_not_silent(net, sender):
    outcomes = []
    sender.send(push(BIG, timeout_ms=60_000, socket_timeout_ms=1_000), outcomes.append)
    connection, _ = net.dials.pop()
    wire = HandWire(connection)
    wire.room = 1
    connection.opened(wire)
    for _ in range(4):
        net.pass_time(0.9)
        wire.read(1 - wire.room)
    assert outcomes == []
    net.pass_time(1.1)
    assert [outcome.failure for outcome in outcomes] == [Failure.IDLE]


def test_an_answer_before_the_request_is_out_counts_and_ends_the_connection(net, sender):
    outcomes = []
    sender.send(push(BIG), outcomes.append)
    connection, _ = net.dials.pop()
    wire = HandWire(connection)
    wire.room = 1_000
    connection.opened(wire)
    connection.received(b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")
    assert [outcome.status for outcome in outcomes] == [413]
    assert wire.is_closed
    sender.send(push(b"next"), outcomes.append)
    assert net.connect().written[0].endswith(b"next")


def test_a_refused_address_ends_the_push_as_such(net, sender):
    outcomes = []
    sender.send(push(), outcomes.append)
    net.dials.pop()[0].dial_failed("127.0.0.1 is a loopback address", Failure.FORBIDDEN)
    (outcome,) = outcomes
    assert outcome.reason() == "forbidden: 127.0.0.1 is a loopback address"
    assert not outcome.is_local


def test_a_probe_leaves_its_connection_to_the_next_push(net, sender):
    outcomes = []
    sender.probe(push().route, outcomes.append)
    assert outcomes == []
    wire = net.connect()
    assert outcomes == [None]
    assert wire.written == []
    sender.send(push(b"next"), outcomes.append)
    assert net.dials == []
    assert wire.written[0].endswith(b"next")


def test_a_probe_that_finds_nobody_ends_no_push(net, sender):
    outcomes, probed = [], []
    sender.probe(push().route, probed.append)
    sender.send(push(), outcomes.append)
    net.dials.pop(0)[0].dial_failed("refused")
    assert probed == [Failure.CONNECT]
    assert outcomes == []
    net.connect().connection.received(OK)
    assert [outcome.status for outcome in outcomes] == [200]


def test_a_probe_ends_with_the_sender(net, sender):
    outcomes = []
    sender.probe(push().route, outcomes.append)
    sender.close()
    sender.probe(push().route, outcomes.append)
    net.pass_time(1)
    assert outcomes == [Failure.CLOSED] * 2
    assert net.connect().is_closed


def test_a_probe_that_nobody_answers_ends_in_time(net, sender):
    probed = []
    sender.probe(push().route, probed.append)
    net.pass_time(4.9)
    assert probed == []
    net.pass_time(0.2)
    assert probed == [Failure.TIMEOUT]
    net.connect()
    assert probed == [Failure.TIMEOUT]


def test_a_probe_opens_no_connection_beyond_the_bound(net, sender):
    outcomes, probed = [], []
    for _ in range(2):
        sender.send(push(), outcomes.append)
        net.connect()
    sender.probe(push().route, probed.append)
    net.pass_time(0)
    assert probed.pop() is Failure.OVERLOADED
    net.wires[0].connection.received(OK)
    sender.probe(push().route, probed.append)
    net.pass_time(0)
    assert probed == [None]
    assert net.dials == []
