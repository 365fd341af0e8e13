"""Names are read as they are written; what is not a name is refused with an example."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.model.names import (
    SubscriptionName,
    TopicName,
    is_group_name,
    is_name_part,
    log_topic,
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


def test_the_topic_is_what_follows_the_last_dot() -> None:
    assert TopicName.parse("com.shop.orders") == TopicName("com.shop", "orders")


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


def test_a_log_topic_carries_the_namespace_in_front() -> None:
    name = TopicName("shop", "orders")
    assert log_topic(name) == "shop.orders"
    assert log_topic(name, "prod") == "prod_shop.orders"
    assert log_topic(name, "prod", "-") == "prod-shop.orders"


@pytest.mark.parametrize("text", ["a", "A-1_b.c"])
def test_letters_digits_and_three_marks_make_a_name(text: str) -> None:
    assert is_name_part(text)


@pytest.mark.parametrize("text", ["", "a b", "a$b", "ä", "a/b", "a\n"])
def test_anything_else_makes_no_name(text: str) -> None:
    assert not is_name_part(text)


def test_a_group_has_letters_digits_and_dots_unless_the_operator_says_otherwise() -> None:
    assert is_group_name("com.shop1")
    assert not is_group_name("com_shop")
    assert not is_group_name("shop\n")
    assert is_group_name("com_shop", "[a-z_]+")
    assert not is_group_name("com_shop!", "[a-z_]+")
