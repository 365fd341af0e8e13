"""Names are read as they are written; what is not a name is refused with an example."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.metadata.keys import log_topic_of
from hermes_actors.metadata.redrives import redrive_group
from hermes_actors.model.dead_letter import DLQ_TOPIC
from hermes_actors.model.names import (
    GROUP_CHARACTERS_MAX,
    KAFKA_CHARACTERS_MAX,
    TOPIC_CHARACTERS_MAX,
    SubscriptionName,
    TopicName,
    group_problem,
    is_name_part,
    subscription_problem,
)

groups = st.from_regex(r"[a-zA-Z0-9]+(\.[a-zA-Z0-9]+){0,2}", fullmatch=True)
parts = st.from_regex(r"[a-zA-Z0-9_-]+", fullmatch=True)
topics = st.builds(TopicName, groups, parts)
subscriptions = st.builds(
    SubscriptionName, topics, st.from_regex(r"[a-zA-Z0-9_.-]+", fullmatch=True)
)


@given(topics)
def test_a_topic_name_is_read_as_it_was_written(name: TopicName) -> None:
    assert TopicName.parse(str(name)) == name


@given(subscriptions)
def test_a_subscription_name_is_read_as_it_was_written(name: SubscriptionName) -> None:
    assert SubscriptionName.parse(str(name)) == name


@pytest.mark.parametrize("text", ["", "orders", ".orders", "shop.", "."])
def test_what_is_no_topic_name_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Refused, match=r"expected <group>\.<topic>") as raised:
        TopicName.parse(text)
    assert raised.value.code is ErrorCode.FORMAT_ERROR


@pytest.mark.parametrize("text", ["", "shop.orders", "shop.orders$", "$mail", "shop$mail"])
def test_what_is_no_subscription_name_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="expected <group>") as raised:
        SubscriptionName.parse(text)
    assert raised.value.code is ErrorCode.FORMAT_ERROR


plain = st.from_regex(r"[a-zA-Z0-9.-]+", fullmatch=True)


@given(groups, plain, plain, groups, plain, plain)
def test_without_underscores_two_subscriptions_never_share_a_consumer_group(
    group: str, topic: str, name: str, group2: str, topic2: str, name2: str
) -> None:
    left = SubscriptionName(TopicName(group, topic), name)
    right = SubscriptionName(TopicName(group2, topic2), name2)
    assert (left.consumer_group() == right.consumer_group()) == (left == right)


@pytest.mark.parametrize(
    ("text", "namespace", "group"),
    [
        ("com.shop.orders$mail", "", "com.shop_orders_mail"),
        ("shop.new_orders$send_mail", "", "shop_new__orders_send__mail"),
        ("shop.orders$mail", "prod", "prod_shop_orders_mail"),
    ],
)
def test_a_consumer_group_joins_by_one_underscore_and_doubles_those_inside(
    text: str, namespace: str, group: str
) -> None:
    assert SubscriptionName.parse(text).consumer_group(namespace) == group


@pytest.mark.parametrize("text", ["", "a b", "a$b", "ä", "a/b", "a\n"])
def test_anything_else_makes_no_name(text: str) -> None:
    assert not is_name_part(text)


DEFAULT = "^[a-zA-Z0-9.]+$"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("com.shop1", DEFAULT),
        ("a" * GROUP_CHARACTERS_MAX, DEFAULT),
        ("com_shop", "[a-z_]+"),
        ("_hermesian", "[a-z_]+"),
    ],
)
def test_a_group_may_be_called_what_the_operator_and_kafka_allow(text: str, pattern: str) -> None:
    assert group_problem(text, pattern) == ""


@pytest.mark.parametrize(
    ("text", "pattern", "reason"),
    [
        ("", DEFAULT, "must match"),
        ("com_shop", DEFAULT, "must match"),
        ("shop\n", DEFAULT, "must match"),
        ("com_shop!", "[a-z_]+", "must match"),
        ("sh/op", ".*", "as topics of Kafka do"),
        ("żółw", ".*", "as topics of Kafka do"),
        (".", DEFAULT, "dots only"),
        ("..", DEFAULT, "dots only"),
        ("...", DEFAULT, "dots only"),
        ("a" * (GROUP_CHARACTERS_MAX + 1), DEFAULT, "199 characters; the maximum is 198"),
        ("a" * 1_000, DEFAULT, "1000 characters; the maximum is 198"),
        ("_hermes", ".*", "belongs to the broker"),
        ("_hermes.dlq", ".*", "belongs to the broker"),
    ],
)
def test_any_other_group_is_refused_with_its_reason(text: str, pattern: str, reason: str) -> None:
    assert reason in group_problem(text, pattern)


@given(
    st.from_regex(r"[a-zA-Z0-9.]{1,250}", fullmatch=True),
    st.from_regex(r"[a-zA-Z0-9_-]{1,120}", fullmatch=True),
    st.from_regex(r"[a-zA-Z0-9_.-]{1,200}", fullmatch=True),
)
def test_whatever_is_allowed_fits_into_the_logs_names(group: str, topic: str, name: str) -> None:
    if group_problem(group, DEFAULT):
        return
    of_topic = TopicName(group, topic)
    latest = log_topic_of(of_topic, 9_999_999_999_999)
    assert len(f"{DLQ_TOPIC}.{group}") <= KAFKA_CHARACTERS_MAX
    assert len(str(of_topic)) > TOPIC_CHARACTERS_MAX or len(latest) <= KAFKA_CHARACTERS_MAX
    subscription = SubscriptionName(of_topic, name)
    if not subscription_problem(subscription):
        assert len(redrive_group(subscription)) <= KAFKA_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("topic", "name", "reason"),
    [
        ("shop.orders", ".", "dots only"),
        ("shop.orders", "..", "dots only"),
        ("shop.orders", "a" * 230, "has 242 characters, and the maximum is 241"),
        ("shop.orders", "_" * 120, "(each _ counts twice) has 252 characters"),
        ("shop.orders", "a" * 229, ""),
    ],
)
def test_a_subscription_fits_into_a_consumer_group(topic: str, name: str, reason: str) -> None:
    problem = subscription_problem(SubscriptionName(TopicName.parse(topic), name))
    assert reason in problem
    assert bool(reason) == bool(problem)
