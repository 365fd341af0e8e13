"""Activations of lives that are over go, those of lives that go on stay, in whatever order the
datacentres hear of what happened.
"""

import random

import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from hermes_actors.config import Config
from hermes_actors.metadata import reconciler as reconciler_module
from hermes_actors.metadata.bodies import (
    activation_body,
    decode_activation,
    subscription_body,
    topic_body,
)
from hermes_actors.metadata.catalog import Catalog
from hermes_actors.metadata.commands import (
    NOTHING_SEEN,
    Alive,
    Copy,
    Delete,
    LogCreated,
    Put,
    delete,
    encode,
    put,
)
from hermes_actors.metadata.keys import activation_key, subscription_key, topic_key
from hermes_actors.metadata.lives import stale_activations
from hermes_actors.metadata.reconciler import TopicReconciler
from hermes_actors.metadata.state import MetadataState
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.record import StoredRecord

NAME = SubscriptionName.parse("shop.orders$push")
PARENT = subscription_key(NAME)
DCS = ("dc1", "dc2")


class Place:
    """One datacentre's log as it is folded, and what was accepted there."""

    def __init__(self, dc):
        self.dc = dc
        self.state = MetadataState()
        self.catalog = Catalog()
        self.accepted = []
        self.fold(LogCreated(f"log-{dc}", dc), 0)

    def fold(self, command, time_ms):
        offset = self.state.position
        value = encode(command, 0).value
        folded = self.state.fold(StoredRecord(0, offset, time_ms, None, value, ()))
        if folded.changed is not None:
            self.catalog.apply(folded.changed)
        if folded.is_accepted_here:
            self.accepted.append((offset, folded.changed))
        return folded

    def make(self, change, time_ms):
        name = f"{self.dc}-{self.state.position}"
        if change.body is None:
            command = Delete(name, change.key, change.preconditions, NOTHING_SEEN)
        else:
            command = Put(name, change.key, change.body, change.preconditions, NOTHING_SEEN)
        return self.fold(command, time_ms).is_accepted_here

    def stale(self):
        return stale_activations(self.catalog, self.state.registers.get, self.dc, 10)


class Datacentres(RuleBasedStateMachine):
    """Lives of one subscription begin and end everywhere; consumers start; sweeps look, and delete
    later; copies run ahead, lag and repeat.
    """

    def __init__(self):
        super().__init__()
        self.places = {dc: Place(dc) for dc in DCS}
        self.copied_up_to = {(a, b): 0 for a in DCS for b in DCS if a != b}
        self.started = {}
        self.on_their_way = []

    @rule(dc=st.sampled_from(DCS), is_anew=st.booleans(), time_ms=st.integers(0, 400))
    def change(self, dc, is_anew, time_ms):
        place = self.places[dc]
        if not place.make(delete(PARENT), time_ms) or is_anew:
            place.make(put(PARENT, b"{}"), time_ms)

    @rule(dc=st.sampled_from(DCS), time_ms=st.integers(0, 400))
    def start(self, dc, time_ms):
        place = self.places[dc]
        register = place.state.registers.get(PARENT)
        if register is None or not register.is_alive:
            return
        incarnation = register.incarnation
        change = put(
            activation_key(NAME, dc), activation_body(incarnation), Alive(PARENT, incarnation)
        )
        assert place.make(change, time_ms)
        self.started[dc] = incarnation

    @rule(dc=st.sampled_from(DCS))
    def look(self, dc):
        self.on_their_way += [(dc, change) for change in self.places[dc].stale()]

    @precondition(lambda self: self.on_their_way)
    @rule(time_ms=st.integers(0, 400))
    def sweep(self, time_ms):
        dc, change = self.on_their_way.pop(0)
        self.places[dc].make(change, time_ms)

    @rule(source=st.sampled_from(DCS), to=st.sampled_from(DCS), count=st.integers(1, 5))
    def copy_on(self, source, to, count):
        if source == to:
            return
        done = self.copied_up_to[source, to]
        for at in range(done, min(done + count, len(self.places[source].accepted))):
            self.copy(source, to, at)
            self.copied_up_to[source, to] = at + 1

    def copy(self, source, to, at):
        offset, register = self.places[source].accepted[at]
        command = Copy(
            "copy",
            register.key,
            register.body,
            register.incarnation,
            register.stamp,
            register.dc,
            source,
            f"log-{source}",
            offset,
        )
        self.places[to].fold(command, 0)

    def copy_all(self):
        for source, to in self.copied_up_to:
            for at in range(len(self.places[source].accepted)):
                self.copy(source, to, at)

    def teardown(self):
        self.copy_all()
        for place in self.places.values():
            for change in place.stale():
                assert place.make(change, 500)
        self.copy_all()
        for place in self.places.values():
            parent = place.state.registers.get(PARENT)
            for dc in DCS:
                register = place.state.registers.get(activation_key(NAME, dc))
                shown = None
                if register is not None and register.is_alive:
                    shown = decode_activation(register.body)
                is_going_on = parent is not None and self.started.get(dc) == parent.incarnation
                if is_going_on and parent.is_alive:
                    assert shown == parent.incarnation
                elif shown is not None:
                    assert parent is None or parent.incarnation <= shown


Datacentres.TestCase.settings = settings(stateful_step_count=25, deadline=None)
TestDatacentres = Datacentres.TestCase


async def test_sweeps_delete_activations_of_deleted_subscriptions_a_few_at_a_time(
    autojump_clock, open_site, clock, topic, subscription, monkeypatch
):
    monkeypatch.setattr(reconciler_module, "_DELETED_MAX", 2)
    async with open_site() as site:
        site.supervisor.start_task(
            "reconciler",
            lambda stop: TopicReconciler(
                site.metadata, {}, Config(), clock=clock, rng=random.Random(2)
            ).run(stop),
        )
        change, register = site.metadata.change, site.metadata.register
        await change(put(topic_key(NAME.topic), topic_body(topic("shop.orders"))))
        names = [SubscriptionName.parse(f"shop.orders$n{n}") for n in range(4)]
        for name in names:
            body = subscription_body(subscription("shop.orders", name.name), 0)
            await change(put(subscription_key(name), body))
            for dc in ("dc1", "dc2"):
                await change(put(activation_key(name, dc), activation_body(0)))
        await trio.sleep(200)

        def left(dc):
            keys = (activation_key(name, dc) for name in names)
            return [key for key in keys if register(key).is_alive]

        assert len(left("dc1")) == 4
        for name in names[:3]:
            await change(delete(subscription_key(name)))
        await trio.sleep(60)
        assert len(left("dc1")) == 2
        await trio.sleep(60)
        assert left("dc1") == [activation_key(names[3], "dc1")]
        # Another datacentre's are that one's.
        assert len(left("dc2")) == 4
        assert site.metadata.catalog.subscriptions[str(names[3])].active_in == ("dc1", "dc2")


def test_a_consumer_of_a_newer_life_that_starts_meanwhile_keeps_its_activation():
    place = Place("dc1")
    own = activation_key(NAME, "dc1")
    place.make(put(PARENT, b"{}"), 1)
    place.make(put(own, activation_body(0)), 2)
    place.make(delete(PARENT), 3)
    place.make(put(PARENT, b"{}"), 4)
    (change,) = place.stale()
    newer = place.state.registers[PARENT].incarnation
    place.make(put(own, activation_body(newer), Alive(PARENT, newer)), 5)
    assert not place.make(change, 6)
    assert decode_activation(place.state.registers[own].body) == newer
    assert place.stale() == []
