"""Connections to one host over many lanes: bounded together, and shared in turns."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.consumer.senders.http1.pool import Http1Sender, PoolLimits
from hermes_actors.consumer.senders.sender import Failure, Origin, Push, PushRoute

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
ORIGIN = Origin("http", "sink", 80)


class Wire:
    def __init__(self, net, connection):
        self.net = net
        self.connection = connection
        self.is_closed = False

    def write(self, data):
        assert not self.is_closed
        self.net.requests.append(self)

    def abort(self):
        if not self.is_closed:
            self.is_closed = True
            self.net.open -= 1

    def is_closing(self):
        return self.is_closed


class Host:
    """Connections are made at once when asked to; requests are answered when asked to."""

    def __init__(self):
        self.time_s = 0.0
        self.soon_calls = []
        self.dials = []
        self.requests = []
        self.open = 0
        self.open_high = 0
        self.dialed = 0
        self.sweep = None

    def now_s(self):
        return self.time_s

    def soon(self, callback):
        self.soon_calls.append(callback)

    def later(self, _delay_s, callback):
        self.sweep = callback

    def dial(self, connection, _origin):
        self.dials.append(connection)

    def connect_all(self):
        while self.dials:
            self.dialed += 1
            self.open += 1
            self.open_high = max(self.open_high, self.open)
            connection = self.dials.pop(0)
            connection.opened(Wire(self, connection))

    def answer(self, wire, *, closes=False):
        if closes:
            wire.connection.received(OK.replace(b"Content", b"Connection: close\r\nContent"))
        else:
            wire.connection.received(OK)


class Load:
    """`window` pushes of each lane under way, always."""

    def __init__(self, sender, host, lanes, window):
        self.sender = sender
        self.host = host
        self.done = dict.fromkeys(lanes, 0)
        for lane in lanes:
            for _ in range(window):
                self.push(lane)

    def push(self, lane, timeout_ms=10**9):
        route = PushRoute(lane, ORIGIN, "/", b"POST / HTTP/1.1\r\nHost: sink\r\n")

        def done(outcome):
            assert outcome.status == 200, outcome
            self.done[lane] += 1
            self.push(lane)

        self.sender.send(Push(route, b"", b"x", timeout_ms), done)

    def run(self, answers, *, closes=False):
        self.host.connect_all()
        for _ in range(answers):
            assert self.host.requests, "nobody is served any more"
            self.host.answer(self.host.requests.pop(0), closes=closes)
            self.host.connect_all()


@pytest.fixture
def host():
    return Host()


def sender_on(host, *, lane_max=100, host_max=10):
    return Http1Sender(
        host, PoolLimits(connections_max=lane_max, connections_per_host_max=host_max, idle_s=30)
    )


def test_a_thousand_lanes_open_no_more_than_their_host_bears(host):
    load = Load(sender_on(host, host_max=50), host, range(1_000), window=3)
    load.run(5_000)
    assert host.open_high == 50
    # Connections go from lane to lane and are not made anew.
    assert host.dialed == 50
    assert min(load.done.values()) >= 3
    assert max(load.done.values()) <= 7


@pytest.mark.parametrize("closes", [False, True])
def test_lanes_that_come_later_get_as_much_as_those_that_were_there(host, closes):
    sender = sender_on(host, lane_max=10, host_max=10)
    early = Load(sender, host, ["early"], window=10)
    early.run(100, closes=closes)
    late = Load(sender, host, ["a", "b", "c"], window=10)
    late.run(4_000, closes=closes)
    # A quarter each; what was under way when they came counts little.
    assert 800 <= early.done["early"] - 100 <= 1_300
    assert all(800 <= count <= 1_200 for count in late.done.values())
    assert host.open_high == 10


def test_a_connection_that_one_lane_has_no_use_for_is_anothers(host):
    sender = sender_on(host, lane_max=10, host_max=10)
    outcomes = []
    route = PushRoute("idle", ORIGIN, "/", b"")
    for _ in range(10):
        sender.send(Push(route, b"", b"", 1_000), outcomes.append)
    host.connect_all()
    while host.requests:
        host.answer(host.requests.pop())
    assert sender.statistics() == (0, 10, 0)
    Load(sender, host, ["busy"], window=4)
    assert host.dials == []
    assert sender.statistics() == (4, 6, 0)


def test_a_push_that_other_lanes_leave_no_connection_for_says_so(host):
    sender = sender_on(host, host_max=2)
    outcomes = []
    for lane in ("a", "b"):
        sender.send(Push(PushRoute(lane, ORIGIN, "/", b""), b"", b"", 9_000), outcomes.append)
    host.connect_all()
    sender.send(Push(PushRoute("c", ORIGIN, "/", b""), b"", b"", 100), outcomes.append)
    host.time_s = 0.2
    host.sweep()
    (outcome,) = outcomes
    assert outcome.is_local
    assert "all 2 to http://sink:80 are other subscriptions'" in outcome.reason()


def test_a_host_that_lets_nobody_in_is_to_blame_whoever_waits(host):
    sender = sender_on(host, host_max=2)
    outcomes = []
    for lane in ("a", "b"):
        sender.send(Push(PushRoute(lane, ORIGIN, "/", b""), b"", b"", 9_000), outcomes.append)
    sender.send(Push(PushRoute("c", ORIGIN, "/", b""), b"", b"", 100), outcomes.append)
    host.time_s = 0.2
    host.sweep()
    assert [outcome.failure for outcome in outcomes] == [Failure.TIMEOUT]


def test_places_of_connections_that_cannot_be_made_go_to_the_next_lane(host):
    sender = sender_on(host, host_max=1)
    outcomes = []
    for lane in range(5):
        sender.send(Push(PushRoute(str(lane), ORIGIN, "/", b""), b"", b"", 9_000), outcomes.append)
    for expected in range(1, 6):
        (connection,) = host.dials
        host.dials.clear()
        connection.dial_failed("refused")
        assert len(outcomes) == expected
    assert {outcome.failure for outcome in outcomes} == {Failure.CONNECT}


def test_another_host_is_not_held_up(host):
    sender = sender_on(host, host_max=1)
    outcomes = []
    for name in ("a", "b"):
        route = PushRoute("lane", Origin("http", name, 80), "/", b"")
        sender.send(Push(route, b"", b"", 9_000), outcomes.append)
    assert len(host.dials) == 2


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 6))
def test_whatever_happens_nobody_starves_and_no_bound_is_broken(
    rng: random.Random, host_max, lane_count
):
    host = Host()
    sender = sender_on(host, lane_max=3, host_max=host_max)
    ended = []
    sent = 0
    for _ in range(150):
        action = rng.randrange(6)
        if action < 2:
            sent += 1
            lane = str(rng.randrange(lane_count))
            push = Push(PushRoute(lane, ORIGIN, "/", b""), b"", b"", 10**9)
            sender.send(push, ended.append)
        elif action == 2 and host.dials:
            rng.shuffle(host.dials)
            if rng.random() < 0.3:
                host.dials.pop().dial_failed("refused")
            else:
                host.connect_all()
        elif action == 3 and host.requests:
            rng.shuffle(host.requests)
            host.answer(host.requests.pop(), closes=rng.random() < 0.3)
        elif action == 4 and host.requests:
            wire = host.requests.pop(rng.randrange(len(host.requests)))
            wire.abort()
            wire.connection.ended("gone")
        elif action == 5 and host.sweep is not None:
            host.time_s += rng.choice([0.01, 40])
            host.sweep()
        assert host.open + len(host.dials) <= host_max
    while host.dials or host.requests:
        host.connect_all()
        if host.requests:
            host.answer(host.requests.pop())
    assert len(ended) == sent
    host.time_s += 40
    host.sweep()
    assert host.open == 0
    assert sender.statistics() == (0, 0, 0)
