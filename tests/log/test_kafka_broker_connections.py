"""Who waits for whom on the way to one broker, with connections that answer when the test says."""

import asyncio  # noqa: TID251 -- the lanes live on the host loop
import io
from types import SimpleNamespace

import pytest
import trio
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceResponse_v7
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.log.kafka.broker_connections import (
    OVERDUE_S,
    SPREAD_S,
    BrokerConnections,
    Lost,
    NotSent,
    SentBatch,
)

SIZE = 4
TIMEOUT_S = 5.0


class Wire:
    """What lanes use of a Session."""

    def __init__(self):
        self.asked = 0
        self._request = None
        self._told = None
        self._is_open = True

    def version(self, api_key, lowest, highest):
        assert (api_key, lowest, highest) == (0, 3, 7)
        return highest

    def ask(self, api_key, version, body, told):
        assert self._told is None, "a request before the last one's answer"
        self._request, self._told = ProduceRequest_v7.decode(io.BytesIO(body)), told
        self.asked += 1

    def connected(self):
        return self._is_open

    def close(self, reason=None):
        self._is_open = False
        if self._told is not None:
            self.tell(ConnectionError("closed"))

    def tell(self, answer):
        told, self._told = self._told, None
        told(answer)

    @property
    def is_asked(self):
        return self._told is not None

    @property
    def places(self):
        """The partitions of the request under way."""
        if self._told is None:
            return []
        return [(topic, number) for topic, parts in self._request.topics for number, _ in parts]


class Broker:
    """Makes wires, and lets the test answer them."""

    def __init__(self):
        self.wires = []
        self.refuses = False
        self.now_s = 100.0
        self.settings = SimpleNamespace(producers_per_ack=SIZE)

    def monotonic_s(self):
        return self.now_s

    async def connect(self, host, port, purpose):
        await asyncio.sleep(0)
        if self.refuses:
            raise ConnectionRefusedError
        wire = Wire()
        self.wires.append(wire)
        return wire

    def explain(self, error, address=""):
        return f"{address}: refused"

    @property
    def busy(self):
        return [wire for wire in self.wires if wire.is_asked]

    def answer(self, wire, code=0):
        topics = {}
        for topic, partition in wire.places:
            topics.setdefault(topic, []).append((partition, code, 100 + partition, -1, 0))
        wire.tell(ProduceResponse_v7(topics=list(topics.items()), throttle_time_ms=0).encode())


class Fixture:
    def __init__(self):
        self.broker = Broker()
        self.failures = []
        self.lanes = BrokerConnections(
            self.broker,
            self.broker,
            ("kafka", 9092),
            acks=1,
            timeout_s=TIMEOUT_S,
            delay_s=lambda attempt: 0.1 * attempt,
            on_failure=self.failures.append,
        )

    def send(self, partition, *, is_suspect=False, size=10, deadline_s=1e9):
        sending = SentBatch("t", partition, bytearray(size), deadline_s, is_suspect)
        self.lanes.send(sending)
        return sending

    async def settle(self):
        for _ in range(6):
            await asyncio.sleep(0)

    async def fill(self, partitions, *, is_suspect=False):
        """Send to each, so that no one waits for another's answer."""
        sendings = []
        for partition in partitions:
            sendings.append(self.send(partition, is_suspect=is_suspect))
            await self.settle()
            await self.pass_time(SPREAD_S * 1.01)
        return sendings

    async def pass_time(self, seconds):
        self.broker.now_s += seconds
        self.lanes.sweep(self.broker.now_s)
        await self.settle()


def result_of(sending):
    """Code and offset that its publisher is told; raises what he is told instead."""
    assert sending.is_over, "nothing is told yet"
    return trio.run(sending.answer)


def error_of(sending):
    try:
        result_of(sending)
    except (NotSent, Lost) as error:
        return error
    return None


def on_host(test):
    """Run a coroutine test, which gets a fixture, on an asyncio loop."""

    def run():
        async def main():
            await test(Fixture())

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


@on_host
async def test_a_batch_goes_out_at_once_when_a_connection_is_free(at):
    at.lanes.warm()
    await at.settle()
    sending = at.send(3)
    (wire,) = at.broker.busy
    assert wire.places == [("t", 3)]
    at.broker.answer(wire)
    await at.settle()
    assert result_of(sending) == (0, 103)


@on_host
async def test_what_comes_while_an_answer_is_due_soon_waits_for_it(at):
    at.send(0)
    await at.settle()
    waiting = [at.send(partition) for partition in (1, 2)]
    await at.settle()
    (wire,) = at.broker.busy
    at.broker.answer(wire)
    await at.settle()
    assert len(at.broker.wires) == 1
    assert wire.places == [("t", each.partition) for each in waiting]


@on_host
async def test_nobody_waits_long_for_the_answer_of_others(at):
    at.send(0)
    await at.settle()
    at.send(1)
    await at.pass_time(SPREAD_S * 1.01)
    assert [wire.places for wire in at.broker.busy] == [[("t", 0)], [("t", 1)]]


@on_host
async def test_what_finds_no_free_connection_goes_out_together_on_the_next(at):
    await at.fill(range(SIZE))
    waiting = [at.send(partition) for partition in range(10, 15)]
    await at.settle()
    assert len(at.broker.wires) == SIZE
    first = at.broker.busy[0]
    at.broker.answer(first)
    await at.settle()
    assert first.places == [("t", each.partition) for each in waiting]


@on_host
async def test_overdue_answers_leave_room_for_other_partitions(at):
    await at.fill(range(SIZE))
    other = at.send(50)
    await at.settle()
    assert len(at.broker.busy) == SIZE
    await at.pass_time(OVERDUE_S + 0.01)
    (wire,) = [each for each in at.broker.busy if ("t", 50) in each.places]
    assert wire.places == [("t", 50)]
    at.broker.answer(wire)
    await at.settle()
    assert result_of(other) == (0, 150)
    assert not other.was_slow


@on_host
async def test_suspects_hold_half_of_the_connections_at_most_and_nobody_else(at):
    await at.fill(range(20), is_suspect=True)
    assert len(at.broker.busy) == SIZE // 2
    other = at.send(50)
    await at.settle()
    assert [("t", 50)] in [wire.places for wire in at.broker.busy]
    assert not other.is_over


@on_host
async def test_when_everything_is_slow_suspects_travel_together(at):
    sendings = [at.send(partition, is_suspect=True) for partition in range(20)]
    for _ in range(20):
        await at.settle()
        for wire in at.broker.busy:
            at.broker.answer(wire)
    await at.settle()
    assert all(result_of(sending)[0] == 0 for sending in sendings)
    assert sum(wire.asked for wire in at.broker.wires) < 15


@on_host
async def test_without_an_answer_the_connection_is_given_up_and_the_batch_lost(at):
    sending = at.send(0)
    await at.settle()
    await at.pass_time(TIMEOUT_S + 0.01)
    with pytest.raises(Lost, match="no answer within 5 s"):
        result_of(sending)
    assert at.lanes.lost == 1
    assert at.failures
    assert not at.broker.wires[0].connected()


@on_host
async def test_an_answer_that_cannot_be_read_loses_the_batch_and_the_connection(at):
    sending = at.send(1)
    await at.settle()
    (wire,) = at.broker.wires
    wire.tell(b"\x00\x00\x00\x01")
    with pytest.raises(Lost):
        result_of(sending)
    assert not wire.connected()
    assert at.lanes.is_idle


@on_host
async def test_a_broker_that_refuses_connections_is_left_alone_for_a_while(at):
    at.broker.refuses = True
    first = at.send(0)
    await at.settle()
    assert isinstance(error_of(first), NotSent)
    at.broker.refuses = False
    second = at.send(0)
    await at.settle()
    assert str(error_of(second)) == "kafka:9092: refused"
    assert not at.broker.wires
    await at.pass_time(0.2)
    third = at.send(0)
    await at.settle()
    at.broker.answer(at.broker.busy[0])
    await at.settle()
    assert result_of(third) == (0, 100)


@on_host
async def test_once_the_cluster_is_back_a_connection_is_tried_at_once(at):
    at.broker.refuses = True
    at.send(1)
    await at.settle()
    at.broker.refuses = False
    at.lanes.warm()
    await at.settle()
    assert at.lanes.connections == 0
    at.lanes.forgive()
    at.lanes.warm()
    await at.settle()
    assert at.lanes.connections == 1


@on_host
async def test_a_batch_that_was_given_up_while_it_waited_is_not_sent(at):
    await at.fill(range(SIZE))
    given_up, kept = at.send(50), at.send(51)
    given_up.is_given_up = True
    at.broker.answer(at.broker.busy[0])
    await at.settle()
    assert at.broker.wires[0].places == [("t", 51)]
    assert not kept.is_over


@on_host
async def test_lanes_to_an_address_that_was_left_finish_what_is_under_way(at):
    under_way = at.send(0)
    await at.settle()
    await at.fill(range(1, SIZE))
    waiting = at.send(50)
    at.lanes.retire("the broker has moved")
    assert str(error_of(waiting)) == "the broker has moved"
    (wire,) = [each for each in at.broker.busy if each.places == [("t", 0)]]
    at.broker.answer(wire)
    await at.settle()
    assert result_of(under_way) == (0, 100)
    assert not wire.connected()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 30), st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 15), st.just(False)),
        st.tuples(st.just("break"), st.integers(0, 15), st.just(False)),
        st.tuples(st.just("wait"), st.integers(1, 60), st.just(False)),
    ),
    max_size=80,
)


@settings(deadline=None)
@given(ACTIONS)
def test_each_batch_is_settled_once_and_the_bounds_hold(actions):
    async def main():
        at = Fixture()
        sendings = []
        open_places = {}
        for action, number, flag in actions:
            busy = at.broker.busy
            if action == "send":
                before = open_places.get(number)
                if before is None or before.is_over:
                    open_places[number] = at.send(number, is_suspect=flag)
                    sendings.append(open_places[number])
            elif action == "answer" and busy:
                at.broker.answer(busy[number % len(busy)])
            elif action == "break" and busy:
                busy[number % len(busy)].close()
            elif action == "wait":
                await at.pass_time(number / 20)
            await at.settle()
            places = [place for wire in at.broker.busy for place in wire.places]
            assert len(places) == len(set(places))
            assert len([wire for wire in at.broker.wires if wire.connected()]) <= SIZE * 4
        await at.lanes.close()
        await at.settle()
        for sending in sendings:
            assert sending.is_over
            error = error_of(sending)
            assert error is None or isinstance(error, NotSent | Lost)

    asyncio.run(main())
