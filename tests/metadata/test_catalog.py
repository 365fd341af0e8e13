"""The catalog: the same registers make the same catalog, whatever their order."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.log.commits import LastRead
from hermes_actors.metadata.bodies import (
    UndecodableBody,
    activation_body,
    decode_subscription,
    group_body,
    readiness_body,
    subscription_body,
    topic_body,
)
from hermes_actors.metadata.catalog import Catalog, SubscriptionChanged, TopicChanged
from hermes_actors.metadata.creation import Creation
from hermes_actors.metadata.keys import (
    activation_key,
    group_key,
    parse_log_topic,
    readiness_key,
    seek_key,
    subscription_key,
    subscriptions_below,
    topic_key,
    topics_below,
)
from hermes_actors.metadata.seek import Seek, SeekBody, seek_body
from hermes_actors.metadata.state import Register
from hermes_actors.model.group import Group
from hermes_actors.model.names import SubscriptionName, TopicName
from hermes_actors.model.subscription import (
    SubscriptionState,
)
from tests.values import a_subscription, a_topic

NAME = TopicName("shop", "orders")
SUBSCRIPTION = SubscriptionName(NAME, "billing")
TOPIC = a_topic(str(NAME))
BILLING = a_subscription("billing", topic=str(NAME), endpoint="http://localhost/")


def register(key, body, incarnation=0, stamp=10):
    return Register(key, incarnation, stamp, "dc1", body)


def topic(incarnation=0, stamp=10):
    return register(topic_key(NAME), topic_body(TOPIC), incarnation, stamp)


def subscription(topic_incarnation=0, incarnation=0, stamp=11, value=BILLING):
    body = subscription_body(value, topic_incarnation)
    return register(subscription_key(SUBSCRIPTION), body, incarnation, stamp)


def activation(dc, incarnation=0):
    return register(activation_key(SUBSCRIPTION, dc), activation_body(incarnation))


def seek(stamp, positions, incarnation=0, topic_incarnation=0):
    body = SeekBody(incarnation, topic_incarnation, {"dc1": positions}, 5)
    return register(seek_key(SUBSCRIPTION, incarnation), seek_body(body), 0, stamp)


def test_a_subscription_shows_its_last_retransmission_whatever_came_first():
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        catalog = Catalog()
        for at in order:
            catalog.apply((topic(), subscription(), seek(30, {0: 7}))[at])
        live = catalog.subscriptions[str(SUBSCRIPTION)]
        assert live.seek == Seek(30, SeekBody(0, 0, {"dc1": {0: 7}}, 5))
        assert live.stamp == 11
    (change,) = catalog.apply(seek(31, {0: 8}))
    assert change == SubscriptionChanged(
        str(SUBSCRIPTION),
        msgspec.structs.replace(live, seek=Seek(31, change.subscription.seek.body)),
    )
    assert change.subscription.seek.body.positions == {"dc1": {0: 8}}


def test_a_retransmission_that_cannot_be_read_is_shown_and_left_out():
    catalog = Catalog()
    for each in (topic(), subscription(), seek(30, {0: 7})):
        catalog.apply(each)
    catalog.apply(register(seek_key(SUBSCRIPTION), b'{"positions": {"dc1": {"x": 1}}}', 0, 31))
    assert catalog.subscriptions[str(SUBSCRIPTION)].seek is None
    assert list(catalog.undecodable) == [seek_key(SUBSCRIPTION)]


@pytest.mark.parametrize(
    ("positions", "time_ms", "moved"),
    [
        ({"dc1": {0: 7}}, 5, [True, False, True]),
        ({"dc1": {0: 7}}, None, [True, False, False]),
        ({"dc1": {}}, 5, [False, False, True]),
        ({}, None, [False, False, False]),
    ],
)
def test_positions_of_a_datacentre_count_before_the_time(positions, time_ms, moved):
    seek = Seek(1, SeekBody(0, 0, positions, time_ms))
    assert [seek.moves("dc1", 0), seek.moves("dc1", 1), seek.moves("dc2", 0)] == moved


def test_a_subscription_before_its_topic_is_an_orphan_until_the_topic_comes():
    catalog = Catalog()
    assert catalog.apply(subscription()) == []
    assert [orphan.is_final for orphan in catalog.orphans.values()] == [False]
    changes = catalog.apply(topic())
    assert [type(change) for change in changes] == [TopicChanged, SubscriptionChanged]
    assert catalog.orphans == {}
    assert [each.name for each in catalog.subscriptions_of(NAME)] == [SUBSCRIPTION]


def test_a_subscription_of_an_earlier_life_is_a_final_orphan():
    catalog = Catalog()
    catalog.apply(topic())
    catalog.apply(subscription())
    gone = catalog.apply(register(topic_key(NAME), None, 20, 20))
    assert gone == [
        TopicChanged("shop.orders", None),
        SubscriptionChanged("shop.orders$billing", None),
    ]
    catalog.apply(topic(20, 21))
    assert catalog.subscriptions == {}
    assert catalog.orphans["shop.orders$billing"].is_final
    assert catalog.topics["shop.orders"].log_topic == "shop.orders_.20"
    catalog.apply(subscription(topic_incarnation=20, stamp=22))
    assert list(catalog.subscriptions) == ["shop.orders$billing"]


def test_a_subscription_is_active_once_this_life_of_it_is_consumed_anywhere():
    catalog = Catalog()
    catalog.apply(topic())
    catalog.apply(activation("dc2", incarnation=0))
    catalog.apply(subscription(incarnation=30, stamp=31))
    live = catalog.subscriptions["shop.orders$billing"]
    assert (live.active_in, live.state) == ((), SubscriptionState.PENDING)
    catalog.apply(activation("dc3", incarnation=30))
    catalog.apply(activation("dc1", incarnation=30))
    live = catalog.subscriptions["shop.orders$billing"]
    assert (live.active_in, live.state) == (("dc1", "dc3"), SubscriptionState.ACTIVE)
    suspended = msgspec.structs.replace(BILLING, state=SubscriptionState.SUSPENDED)
    catalog.apply(subscription(incarnation=30, stamp=32, value=suspended))
    live = catalog.subscriptions["shop.orders$billing"]
    assert live.state is SubscriptionState.SUSPENDED


def test_an_undecodable_body_is_left_out_and_shown_with_its_reason():
    catalog = Catalog()
    catalog.apply(topic())
    catalog.apply(subscription())
    catalog.apply(register(topic_key(NAME), b'{"name": 1}', stamp=20))
    assert catalog.topics == {}
    assert catalog.subscriptions == {}
    assert "name" in catalog.undecodable[topic_key(NAME)]
    catalog.apply(register(group_key("shop"), b"\xff"))
    assert len(catalog.undecodable) == 2
    catalog.apply(topic(stamp=21))
    catalog.apply(register(group_key("shop"), None, 30, 30))
    assert catalog.undecodable == {}
    assert list(catalog.subscriptions) == ["shop.orders$billing"]


def test_a_subscription_keeps_the_ends_of_its_creation_and_an_older_one_has_none():
    creation = Creation("dc1", {0: 7, 1: 0}, {0: LastRead(6, 1_700_000_000_000, 0xFFFFFFFF)})
    body = subscription_body(BILLING, 0, creation=creation)
    for order in ((0, 1), (1, 0)):
        catalog = Catalog()
        for at in order:
            catalog.apply((topic(), register(subscription_key(SUBSCRIPTION), body, 0, 11))[at])
        assert catalog.subscriptions[str(SUBSCRIPTION)].creation == creation
    catalog.apply(subscription(stamp=12))
    assert catalog.subscriptions[str(SUBSCRIPTION)].creation is None
    with pytest.raises(UndecodableBody, match="endpoint"):
        decode_subscription(b'{"subscription":{"topicName":"a.b","name":"c"},"topicIncarnation":0}')


REGISTERS = [
    topic(0, 10),
    register(topic_key(NAME), None, 20, 20),
    topic(20, 21),
    register(topic_key(NAME), b"nonsense", 20, 22),
    subscription(0, 0, 11),
    subscription(20, 0, 23),
    register(subscription_key(SUBSCRIPTION), None, 24, 24),
    subscription(20, 24, 25),
    activation("dc1", 0),
    activation("dc2", 24),
    register(activation_key(SUBSCRIPTION, "dc1"), None, 26, 26),
    register(group_key("shop"), group_body(Group("shop"))),
    register("readiness/dc1", b"{}"),
    register("readiness/dc1", None, 12, 12),
    register("topic/odd", b"{}"),
]


def shown(catalog):
    return (
        catalog.groups,
        catalog.topics,
        catalog.subscriptions,
        catalog.orphans,
        catalog.others,
        catalog.undecodable,
    )


@given(st.lists(st.sampled_from(REGISTERS), max_size=20), st.randoms(use_true_random=False))
def test_the_catalog_depends_on_the_registers_and_not_on_their_order(history, rng):
    stepwise = Catalog()
    last = {}
    for each in history:
        stepwise.apply(each)
        last[each.key] = each
    final = list(last.values())
    rng.shuffle(final)
    at_once = Catalog()
    for each in final:
        at_once.apply(each)
    assert shown(stepwise) == shown(at_once)
    for key in last:
        at_once.forget(key)
    assert shown(at_once) == shown(Catalog())


@given(st.lists(st.sampled_from(REGISTERS), max_size=20))
def test_the_changes_told_rebuild_the_subscriptions_and_say_each_thing_once(history):
    catalog, told = Catalog(), {}
    for each in history:
        for change in catalog.apply(each):
            if isinstance(change, SubscriptionChanged):
                assert told.get(change.name) != change.subscription
                told[change.name] = change.subscription
    assert {name: value for name, value in told.items() if value} == catalog.subscriptions


def test_a_group_whose_name_begins_like_another_is_not_below_it():
    assert not topic_key(TopicName("shop.eu", "orders")).startswith(topics_below("shop"))
    assert subscription_key(SUBSCRIPTION).startswith(subscriptions_below(NAME))


def test_other_log_topics_are_not_taken_for_ours():
    assert parse_log_topic("plain") is None
    assert parse_log_topic("shop.orders", "test") is None
    assert parse_log_topic("shop.orders_.012") == (TopicName("shop.orders_", "012"), 0)


def test_a_datacentre_is_ready_unless_it_is_marked():
    catalog = Catalog()
    assert catalog.is_ready("dc1")
    for stamp, is_ready in enumerate((False, True, False), start=1):
        catalog.apply(register(readiness_key("dc1"), readiness_body(is_ready), stamp=stamp))
        assert catalog.is_ready("dc1") is is_ready
        assert catalog.is_ready("dc2")
        assert catalog.marked_datacenters() == ["dc1"]
    catalog.apply(register(readiness_key("dc1"), b"nonsense"))
    assert catalog.is_ready("dc1")
    assert readiness_key("dc1") in catalog.undecodable
    catalog.forget(readiness_key("dc1"))
    assert catalog.is_ready("dc1")
    assert catalog.marked_datacenters() == []
