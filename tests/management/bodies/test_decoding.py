"""What a client sends, and what becomes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import ErrorCode, Refused
from hermes_actors.filters.work import problems
from hermes_actors.management.bodies.constraints import subscription_violations, topic_violations
from hermes_actors.management.bodies.decoding import (
    decode_subscription,
    decode_topic,
    json_object,
)
from hermes_actors.model.subscription import BatchPolicy, SerialPolicy, TrackingMode
from hermes_actors.model.topic import ContentType, PublishingAuth
from tests.management.plain_bodies import SUBSCRIPTION, TOPIC


def violations(subscription):
    return subscription_violations(subscription, tuple(problems(tuple(subscription.filters))))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"1", b"null", b"\xff"])
def test_a_body_that_is_no_json_object_is_a_format_error(body):
    with pytest.raises(Refused) as refused:
        json_object(body)
    assert refused.value.code is ErrorCode.FORMAT_ERROR


@pytest.mark.parametrize("depth", [64, 100, 900, 5_000])
@pytest.mark.parametrize(("opening", "close"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_a_body_that_nests_too_deep_is_a_format_error(depth, opening, close):
    with pytest.raises(Refused, match="nests deeper than 64") as refused:
        json_object(b'{"a":' + opening * depth + b"1" + close * depth + b"}")
    assert refused.value.code is ErrorCode.FORMAT_ERROR


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_a_format_error(body):
    try:
        assert isinstance(json_object(body), dict)
    except Refused as refused:
        assert refused.code is ErrorCode.FORMAT_ERROR  # noqa: PT017 -- an object is fine too


@pytest.mark.parametrize("field", sorted(TOPIC))
def test_each_required_field_of_a_topic_is_missed_by_name(field):
    for body in ({**TOPIC, field: None}, {k: v for k, v in TOPIC.items() if k != field}):
        with pytest.raises(Refused, match=rf"^Topic\.{field} must not be null$"):
            decode_topic(body)


@pytest.mark.parametrize("field", sorted(SUBSCRIPTION))
def test_each_required_field_of_a_subscription_is_missed_by_name(field):
    for body in (
        {**SUBSCRIPTION, field: None},
        {k: v for k, v in SUBSCRIPTION.items() if k != field},
    ):
        with pytest.raises(Refused, match=rf"^Subscription\.{field} must not be null$"):
            decode_subscription(body)


def test_missing_fields_are_named_at_once_and_nested_ones_with_their_place():
    with pytest.raises(Refused, match=r"^Topic\.owner must not be null; Topic\.contentType"):
        decode_topic({**TOPIC, "owner": None, "contentType": None})
    with pytest.raises(Refused) as refused:
        decode_subscription({**SUBSCRIPTION, "headers": [{"name": "X"}]})
    expected = "Subscription.headers[0]: Object missing required field `value`"
    assert refused.value.message == expected


def test_nulls_get_the_default_as_if_absent():
    names = [
        "ack",
        "maxMessageSize",
        "trackingEnabled",
        "chaos",
        "auth",
        "offlineStorage",
        "fallbackToRemoteDatacenterEnabled",
    ]
    assert decode_topic({**TOPIC, **dict.fromkeys(names)}) == decode_topic(TOPIC)


def test_flags_missing_in_an_auth_that_is_there_are_false():
    assert decode_topic({**TOPIC, "auth": {}}).auth == PublishingAuth([], False, False)
    assert decode_topic(TOPIC).auth == PublishingAuth([], False, True)


def test_a_missing_duration_is_zero_and_whole_decimals_are_integers():
    assert decode_topic({**TOPIC, "retentionTime": {}}).retention_time.duration == 0
    assert decode_topic({**TOPIC, "maxMessageSize": 2048.0}).max_message_size == 2048


def test_unknown_and_read_only_fields_are_ignored():
    body = {**TOPIC, "labels": [1], "createdAt": "yesterday", "modifiedAt": 5, "schema": "x"}
    assert decode_topic(body) == decode_topic(TOPIC)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("contentType", "XML"),
        ("ack", "SOME"),
        ("maxMessageSize", "big"),
        ("maxMessageSize", 1024.5),
        ("retentionTime", {"duration": -1e300}),
        ("owner", "sales"),
        ("retentionTime", {"duration": 1, "retentionUnit": "WEEKS"}),
        ("chaos", {"mode": "SOMETIMES"}),
        ("auth", {"publishers": "me"}),
    ],
)
def test_a_value_of_the_wrong_type_is_a_format_error_that_names_the_field(field, value):
    with pytest.raises(Refused, match=rf"^Topic\.{field}") as refused:
        decode_topic({**TOPIC, field: value})
    assert refused.value.code is ErrorCode.FORMAT_ERROR


def test_the_delivery_type_decides_which_policy_is_read():
    serial = decode_subscription({**SUBSCRIPTION, "subscriptionPolicy": {"rate": 5}})
    assert serial.subscription_policy == SerialPolicy(rate=5)
    batch = decode_subscription(
        {**SUBSCRIPTION, "deliveryType": "BATCH", "subscriptionPolicy": {"rate": 5, "batchSize": 7}}
    )
    assert batch.subscription_policy == BatchPolicy(batch_size=7)
    assert decode_subscription(SUBSCRIPTION).subscription_policy == SerialPolicy()


@pytest.mark.parametrize(
    ("sent", "mode"),
    [
        ({}, TrackingMode.OFF),
        ({"trackingEnabled": True}, TrackingMode.ALL),
        ({"trackingEnabled": False}, TrackingMode.OFF),
        ({"trackingMode": "discardedOnly"}, TrackingMode.DISCARDED_ONLY),
        ({"trackingMode": "trackingOff", "trackingEnabled": True}, TrackingMode.OFF),
        ({"trackingMode": "everything"}, TrackingMode.OFF),
    ],
)
def test_tracking_mode_follows_the_flag_unless_it_is_given(sent, mode):
    subscription = decode_subscription({**SUBSCRIPTION, **sent})
    assert subscription.tracking_mode is mode
    assert subscription.tracking_enabled is (mode is not TrackingMode.OFF)


def test_a_free_map_keeps_its_nulls_and_its_decimals():
    free = {"a": None, "b": 1.0, "c": {"d": None}}
    subscription = decode_subscription({**SUBSCRIPTION, "endpointAddressResolverMetadata": free})
    assert subscription.endpoint_address_resolver_metadata == free


@pytest.mark.parametrize(
    ("fields", "violation"),
    [
        (
            {"retentionTime": {"duration": 10**30}},
            "Topic.retentionTime.duration must be less than or equal to 2147483647",
        ),
        ({"maxMessageSize": 1023}, "Topic.maxMessageSize must be greater than or equal to 1024"),
        (
            {"maxMessageSize": 2097153},
            "Topic.maxMessageSize must be less than or equal to 2097152",
        ),
        (
            {"retentionTime": {"duration": -1}},
            (
                "Topic.retentionTime.duration must be greater than or equal to 1, in retentionUnit "
                "SECONDS, MINUTES, HOURS or DAYS: with less the topic would keep no acknowledged "
                "message"
            ),
        ),
        ({"name": "shop.or$ders"}, 'Topic.name must match "[a-zA-Z0-9_.-]+"'),
        (
            {"chaos": {"mode": "GLOBAL", "globalPolicy": {"probability": 101}}},
            "Topic.chaos.globalPolicy.probability must be less than or equal to 100",
        ),
        (
            {"chaos": {"mode": "DATACENTER", "datacenterPolicies": {"dc1": {"probability": -1}}}},
            "Topic.chaos.datacenterPolicies[dc1].probability must be greater than or equal to 0",
        ),
        *(
            (
                {"chaos": {"mode": "GLOBAL", "globalPolicy": policy}},
                (
                    "Invalid chaos policy: 'delayFrom' and 'delayTo' must be >= 0, "
                    "and 'delayFrom' <= 'delayTo'."
                ),
            )
            for policy in (
                {"delayFrom": -1},
                {"delayFrom": -2, "delayTo": -1},
                {"delayFrom": 2, "delayTo": 1},
            )
        ),
    ],
)
def test_a_topic_out_of_range_is_told_the_field_and_the_bound(fields, violation):
    assert list(topic_violations(decode_topic({**TOPIC, **fields}))) == [violation]


@pytest.mark.parametrize("size", [1024, 2097152])
def test_the_bounds_of_a_topic_are_inclusive(size):
    topic = decode_topic({**TOPIC, "maxMessageSize": size})
    assert list(topic_violations(topic)) == []
    assert topic.content_type is ContentType.JSON


POLICY = "Subscription.subscriptionPolicy"
MOST = 2**31 - 1
RANGES = {
    "SERIAL": {
        "rate": (1, MOST),
        "messageTtl": (0, 7_200),
        "messageBackoff": (0, MOST),
        "requestTimeout": (100, 300_000),
        "socketTimeout": (0, 300_000),
        "sendingDelay": (0, 5_000),
        "backoffMultiplier": (1, 10),
        "backoffMaxIntervalInSec": (1, 600),
        "inflightSize": (1, MOST),
        "attemptsMax": (1, MOST),
    },
    "BATCH": {
        "messageTtl": (0, MOST),
        "messageBackoff": (0, MOST),
        "requestTimeout": (1, 300_000),
        "batchSize": (1, 10_000),
        "batchTime": (1, 3_600_000),
        "batchVolume": (1, 16_777_216),
    },
}


@pytest.mark.parametrize(
    ("delivery", "field", "low", "high"),
    [(kind, field, *ends) for kind, each in RANGES.items() for field, ends in each.items()],
)
def test_a_number_of_a_policy_keeps_its_bounds_or_is_told_them(delivery, field, low, high):
    def said(number):
        policy = {"deliveryType": delivery, "subscriptionPolicy": {field: number}}
        return list(violations(decode_subscription({**SUBSCRIPTION, **policy})))

    assert said(low) == said(high) == []
    assert said(low - 1) == [f"{POLICY}.{field} must be greater than or equal to {low}"]
    assert said(high + 1) == [f"{POLICY}.{field} must be less than or equal to {high}"]


METRICS = "Subscription.metricsConfig.messageProcessing.thresholdsMilliseconds"


@pytest.mark.parametrize(
    ("fields", "violation"),
    [
        ({"name": "bill$ing"}, 'Subscription.name must match "[a-zA-Z0-9_.-]+"'),
        (
            {"deliveryType": "BATCH", "contentType": "AVRO"},
            "Subscription.contentType must be JSON, because deliveryType is BATCH",
        ),
        (
            {"monitoringDetails": {"severity": "DIRE"}},
            (
                "Subscription.monitoringDetails.severity must be one of "
                "CRITICAL, IMPORTANT, NON_IMPORTANT"
            ),
        ),
        (
            {"oAuthPolicy": {"grantType": "hope", "providerName": "p"}},
            "Subscription.oAuthPolicy.grantType must be one of clientCredentials, password",
        ),
        (
            {"headers": [{"name": "a b", "value": "c"}]},
            "Subscription.headers[0].name must be an HTTP header name",
        ),
        (
            {"headers": [{"name": "a", "value": "c\r\nd: e"}]},
            "Subscription.headers[0].value must not hold line breaks or control codes",
        ),
        (
            {"filters": [{"type": "jsonpath", "matcher": "x"}]},
            "Subscription.filters[0].path must not be null",
        ),
        (
            {"filters": [{"type": "header", "matcher": "x"}]},
            "Subscription.filters[0].header must not be null",
        ),
        (
            {
                "filters": [
                    {"type": "header", "header": "h", "matcher": "x", "matchingStrategy": "most"}
                ]
            },
            "Subscription.filters[0].matchingStrategy must be all or any",
        ),
        (
            {"metricsConfig": {"messageProcessing": {"thresholdsMilliseconds": [-1]}}},
            f"{METRICS}[0].<list element> must be greater than 0",
        ),
        (
            {"metricsConfig": {"messageProcessing": {"thresholdsMilliseconds": [1] * 11}}},
            f"{METRICS} size must be between 0 and 10",
        ),
    ],
)
def test_a_subscription_out_of_range_is_told_the_field_and_the_rule(fields, violation):
    subscription = decode_subscription({**SUBSCRIPTION, **fields})
    assert list(violations(subscription)) == [violation]


def test_a_filter_whose_regular_expression_does_not_compile_is_refused():
    filters = [{"type": "header", "header": "h", "matcher": "("}]
    subscription = decode_subscription({**SUBSCRIPTION, "filters": filters})
    (violation,) = violations(subscription)
    assert violation.startswith("Subscription.filters[0].matcher must be a regular expression: ")


def test_the_key_of_a_map_within_a_topic_is_named():
    policies = {"dc1": {"probability": 1}, "dc2": {"probability": "often"}}
    with pytest.raises(Refused) as refused:
        decode_topic({**TOPIC, "chaos": {"datacenterPolicies": policies}})
    assert refused.value.message == (
        "Topic.chaos.datacenterPolicies[dc2].probability: Expected `int`, got `str`"
    )


@pytest.mark.parametrize(
    ("decode", "fields", "place", "words"),
    [
        (decode_topic, {**TOPIC, "ack": "NO"}, "Topic.ack", "NONE, LEADER, ALL"),
        (
            decode_topic,
            {**TOPIC, "retentionTime": {"duration": 1, "retentionUnit": "NO"}},
            "Topic.retentionTime.retentionUnit",
            "SECONDS, MINUTES, HOURS, DAYS",
        ),
        (
            decode_subscription,
            {**SUBSCRIPTION, "subscriptionPolicy": {"ttlFrom": "NO"}},
            "Subscription.subscriptionPolicy.ttlFrom",
            "READING, PUBLICATION",
        ),
    ],
)
def test_a_word_that_a_field_may_not_hold_is_refused_with_those_it_may(
    decode, fields, place, words
):
    with pytest.raises(Refused) as refused:
        decode(fields)
    assert refused.value.message == f"{place}: Invalid enum value 'NO'; it is one of {words}"
