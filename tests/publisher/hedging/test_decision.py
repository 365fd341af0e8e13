"""What is decided for a batch, whatever its logs do and whenever it is looked at. No loop runs."""

import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_actors.config.fallback import FallbackConfig
from hermes_actors.fallback.budget import Cause
from hermes_actors.fallback.node import Datacentre, Path
from hermes_actors.log.base import Stored, UnavailableRecord, UnknownRecord
from hermes_actors.log.memory import MemoryLog
from hermes_actors.model.topic import Ack
from hermes_actors.publisher.hedging.decision import Decision, Told
from hermes_actors.publisher.hedging.flight import Flight
from hermes_actors.telemetry.metrics import Metrics
from hermes_chaos.sim.environment.clock import SimulatedClock

LIMIT_S = 0.5
OUTCOMES = [Stored(1), UnavailableRecord("away"), UnknownRecord("silent")]


class Message:
    keys = None
    route = SimpleNamespace(spool=None)

    def __init__(self, world, number, key, count, now_s):
        self.world = world
        self.number = number
        self.key = key
        self.count = count
        self.body_bytes = 10 * count
        self.started_s = now_s
        self.is_done = False
        self.told = []
        self.sent = []

    def keep(self):
        self.is_done = self.world.keeps
        return self.is_done


class Append:
    def __init__(self, path, flight, some, sent):
        self.path, self.flight, self.some, self.sent = path, flight, some, sent

    @property
    def items(self):
        return self.flight.pendings if self.some is None else [each.pending for each in self.some]


class World:
    """Follows the orders, and looks at each whether it may be given."""

    def __init__(self, dcs=3, **settings):
        config = FallbackConfig(**settings)
        metrics = Metrics("hermes_frontend")
        self.metrics = metrics
        self.ready = {f"dc{n}": True for n in range(1, dcs + 1)}
        paths = [
            Path(
                Datacentre(
                    MemoryLog(dc, SimulatedClock()),
                    config,
                    random.Random(1),
                    metrics,
                    lambda dc: self.ready[dc],
                ),
                Ack.LEADER,
            )
            for dc in self.ready
        ]
        self.keeps = False
        self.decision = Decision(
            paths[0],
            paths[1:],
            "shop.orders",
            LIMIT_S,
        )
        for path in paths:
            path.partitions = 1
            path.on_open = lambda path, now_s: self.follow(self.decision.opened(path, now_s))
        self.paths = paths
        self.now_s = 100.0
        self.messages = []
        self.flights = []
        self.appends = []
        self.orders = []

    def follow(self, orders):
        for order in orders:
            self.orders.append(order)
            if isinstance(order, Told):
                for each in order.some:
                    pending: Any = each.pending
                    pending.told.append(each.verdict())
                    pending.is_done = True
                continue
            name = order.path.name
            append = Append(order.path, order.flight, order.some, None)
            for item in append.items:
                assert not item.is_done, "nothing is begun for what is done"
                assert self.now_s < item.started_s + LIMIT_S, "nothing is begun after the limit"
                assert name not in item.sent, "nothing is sent twice to one datacentre"
                item.sent.append(name)
            for each in order.some or ():
                each.began(name)
            append.sent = order.path.send(sum(item.count for item in append.items), self.now_s)
            self.appends.append(append)

    def publish(self, *keys, count=1):
        items = [
            Message(self, len(self.messages) + n, key, count, self.now_s)
            for n, key in enumerate(keys)
        ]
        self.messages += items
        flight = Flight(items, 0, self.now_s)
        self.flights.append(flight)
        self.follow(self.decision.begin(flight))
        return items

    def end(self, append, outcomes):
        self.appends.remove(append)
        flight, some = append.flight, append.some
        is_whole = some is None and all(type(each) is Stored for each in outcomes)
        if is_whole and self.decision.stored(flight):
            for item in flight.pendings:
                item.told.append([Stored(1)] * item.count)
                item.is_done = True
            append.path.ended(append.sent, outcomes, self.now_s)
            return
        some = some if some is not None else self.decision.attempts(flight)
        self.follow(self.decision.ended(append.path, some, outcomes, self.now_s, 0.0))
        append.path.ended(append.sent, outcomes, self.now_s)

    def end_all(self, outcome):
        for append in list(self.appends):
            self.end(append, [outcome] * sum(item.count for item in append.items))

    def pass_time(self, seconds):
        self.now_s += seconds
        for flight in self.flights:
            if not flight.is_over and self.now_s >= flight.wake_s:
                for path in self.paths:
                    path.check(self.now_s)
                self.follow(self.decision.look(flight, self.now_s))
        for item in self.messages:
            # The publisher's timer.
            item.is_done = item.is_done or self.now_s >= item.started_s + LIMIT_S
        for flight in [each for each in self.flights if each.is_over]:
            self.flights.remove(flight)
            self.follow(self.decision.leave(flight))

    def counted(self, cause):
        return sum(
            self.metrics.counter("fallback_messages", cause=cause.value, dc=path.name).value
            for path in self.paths
        )


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"),
            st.lists(st.sampled_from([b"a", b"b", None]), min_size=1, max_size=6),
            st.integers(1, 3),
        ),
        st.tuples(st.just("pass"), st.sampled_from([0.001, 0.02, 0.1, 0.3, 0.6])),
        st.tuples(st.just("end"), st.integers(0, 9), st.lists(st.sampled_from(OUTCOMES))),
        st.tuples(st.just("ready"), st.sampled_from(["dc2", "dc3"]), st.booleans()),
        st.tuples(st.just("known"), st.sampled_from(["own", "dc2"]), st.booleans()),
        st.tuples(st.just("keeps"), st.booleans()),
    ),
    max_size=40,
)


def live(world, steps):
    for what, *values in steps:
        if what == "publish":
            world.publish(*values[0], count=values[1])
        elif what == "pass":
            world.pass_time(values[0])
        elif what == "ready":
            world.ready[values[0]] = values[1]
        elif what == "known" and values[0] == "own":
            world.decision.is_own_known = values[1]
        elif what == "known":
            world.paths[1].partitions = 1 if values[1] else None
        elif what == "keeps":
            world.keeps = values[0]
        elif world.appends:
            append = world.appends[values[0] % len(world.appends)]
            count = sum(item.count for item in append.items)
            found = (values[1] or OUTCOMES[:1]) * count
            world.end(append, found[:count])
    world.keeps = False


@settings(deadline=None)
@given(STEPS)
def test_each_message_is_told_of_once_and_only_what_ran_at_its_limit_later(steps):
    world = World()
    live(world, steps)
    world.pass_time(LIMIT_S)
    for item in world.messages:
        assert item.is_done
    while world.appends:
        world.end_all(UnknownRecord("given up"))
    assert not world.flights
    assert not world.decision._flights
    for item in world.messages:
        assert len(item.told) == 1, item.number
        (verdict,) = item.told
        assert len(verdict) == item.count


@settings(deadline=None)
@given(STEPS, st.integers(0, 20), st.integers(0, 10))
def test_however_slow_the_logs_are_the_budget_holds(steps, percent, burst):
    world = World(hedge_budget_percent=percent, hedge_burst_max=burst)
    live(world, steps)
    world.pass_time(0.26)
    published = sum(item.count for item in world.messages)
    assert world.counted(Cause.HEDGE) <= burst + percent * published / 100


@settings(deadline=None)
@given(STEPS)
def test_of_a_key_each_datacentre_is_sent_first_what_came_first(steps):
    world = World()
    singles = [
        (what, *values[:-1], 1) if what == "publish" else (what, *values) for what, *values in steps
    ]
    live(world, singles)
    sent = defaultdict(list)
    for order in world.orders:
        if isinstance(order, Told):
            continue
        items = (
            order.flight.pendings if order.some is None else [each.pending for each in order.some]
        )
        for item in items:
            if item.key is not None:
                sent[order.path.name, item.key, id(order.flight)].append(item.number)
    for numbers in sent.values():
        assert numbers == sorted(numbers)


def test_what_could_be_sent_nowhere_is_told_to_be_certainly_not_stored():
    world = World()
    world.decision.is_own_known = world.ready["dc2"] = world.ready["dc3"] = False
    (message,) = world.publish(b"k")
    world.pass_time(LIMIT_S)
    assert message.sent == []
    assert message.told == [[UnavailableRecord("not sent")]]


@pytest.mark.parametrize("is_usable", [True, False])
def test_a_breaker_that_opens_when_the_limit_is_over_begins_nothing(is_usable):
    world = World()
    (message,) = world.publish(b"k")
    world.ready["dc2"] = world.ready["dc3"] = is_usable
    world.now_s += LIMIT_S
    world.paths[0].dc.breaker._open("silence", world.now_s)
    world.follow(world.decision.opened(world.paths[0], world.now_s))
    world.end_all(UnavailableRecord("away"))
    assert message.sent == ["dc1"]
    assert [type(each) for each in message.told[0]] == [UnavailableRecord]


def test_what_has_failed_too_late_goes_nowhere_else():
    world = World()
    world.ready["dc2"] = world.ready["dc3"] = False
    (message,) = world.publish(b"k")
    flight = world.flights[0]
    world.now_s += LIMIT_S
    world.follow(world.decision.look(flight, world.now_s))
    assert message.told == [], "its timer says so"
    world.ready["dc2"] = True
    world.end_all(UnavailableRecord("away"))
    assert message.sent == ["dc1"]


def test_for_a_flight_whose_producer_has_gone_nothing_more_is_begun():
    world = World()
    world.paths[0].dc.breaker._open("silence", world.now_s)
    (message,) = world.publish(b"k")
    world.follow(world.decision.leave(world.flights.pop()))
    world.end_all(UnavailableRecord("away"))
    assert message.sent == ["dc2"]
    assert [type(each) for each in message.told[0]] == [UnavailableRecord]
