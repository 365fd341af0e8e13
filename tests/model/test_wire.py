"""Topics and subscriptions have the JSON shape and the defaults that Hermes' clients know."""

from typing import Any

import msgspec
import pytest
from msgspec import Struct

from hermes_actors.model.subscription import (
    BEYOND_HERMES,
    BatchBody,
    BatchPolicy,
    SerialPolicy,
    Subscription,
    TtlFrom,
)
from hermes_actors.model.topic import RetentionTime, RetentionUnit, Topic

TOPIC = {
    "name": "shop.orders",
    "description": "orders",
    "owner": {"source": "Plaintext", "id": "team"},
    "contentType": "JSON",
    "retentionTime": {"duration": 1},
}
SUBSCRIPTION = {
    "topicName": "shop.orders",
    "name": "mail",
    "endpoint": "http://localhost:1/",
    "description": "mail",
    "owner": {"source": "Plaintext", "id": "team"},
}


def test_a_topic_is_shown_with_every_default() -> None:
    assert as_hermes_knows_it(msgspec.convert(TOPIC, Topic)) == {
        **TOPIC,
        "retentionTime": {"duration": 1, "retentionUnit": "DAYS"},
        "ack": "LEADER",
        "maxMessageSize": 51_200,
        "jsonToAvroDryRun": False,
        "migratedFromJsonType": False,
        "trackingEnabled": False,
        "fallbackToRemoteDatacenterEnabled": False,
        "chaos": {"mode": "DISABLED", "globalPolicy": None, "datacenterPolicies": {}},
        "auth": {"publishers": [], "enabled": False, "unauthenticatedAccessEnabled": True},
        "subscribingRestricted": False,
        "offlineStorage": {"enabled": False, "retentionTime": {"duration": 0, "infinite": False}},
        "createdAt": 0.0,
        "modifiedAt": 0.0,
    }


def as_hermes_knows_it(value: Struct) -> dict[str, Any]:
    """The value's JSON object without the fields beyond Hermes, which must be among its own."""
    builtins: dict[str, Any] = msgspec.to_builtins(value)
    names = {each.name: each.encode_name for each in msgspec.structs.fields(value)}
    for beyond in next(
        BEYOND_HERMES[each] for each in type(value).__mro__ if each in BEYOND_HERMES
    ):
        del builtins[names[beyond]]
    return builtins


def test_a_subscription_is_shown_with_every_default() -> None:
    subscription = msgspec.convert(SUBSCRIPTION, _AsSerial)
    policy = as_hermes_knows_it(subscription.subscription_policy)
    assert {**as_hermes_knows_it(subscription), "subscriptionPolicy": policy} == {
        **SUBSCRIPTION,
        "state": "PENDING",
        "deliveryType": "SERIAL",
        "subscriptionPolicy": {
            "rate": 400,
            "messageTtl": 3_600,
            "messageBackoff": 100,
            "requestTimeout": 1_000,
            "socketTimeout": 0,
            "sendingDelay": 0,
            "backoffMultiplier": 1.0,
            "backoffMaxIntervalInSec": 600,
            "inflightSize": None,
            "retryClientErrors": False,
        },
        "mode": "ANYCAST",
        "contentType": "JSON",
        "trackingEnabled": False,
        "trackingMode": "trackingOff",
        "monitoringDetails": {"severity": "NON_IMPORTANT", "reaction": ""},
        "filters": [],
        "headers": [],
        "endpointAddressResolverMetadata": {},
        "oAuthPolicy": None,
        "http2Enabled": False,
        "profilingEnabled": False,
        "profilingThresholdMs": 0,
        "subscriptionIdentityHeadersEnabled": False,
        "autoDeleteWithTopicEnabled": False,
        "metricsConfig": {"messageProcessing": {"enabled": False, "thresholdsMilliseconds": []}},
        "createdAt": 0.0,
        "modifiedAt": 0.0,
    }


def test_what_is_beyond_hermes_is_used_by_nobody_who_does_not_ask_for_it() -> None:
    subscription = msgspec.convert(SUBSCRIPTION, _AsSerial)
    beyond = {
        name: getattr(value, name)
        for value, names in (
            (subscription, BEYOND_HERMES[Subscription]),
            (subscription.subscription_policy, BEYOND_HERMES[SerialPolicy]),
            (BatchPolicy(), BEYOND_HERMES[BatchPolicy]),
        )
        for name in names
    }
    assert beyond == {
        "dead_letters_enabled": True,
        "signing": None,
        "cloud_events_enabled": False,
        "tombstones": "deliver",
        "labels": {},
        "ordered": False,
        "ttl_from": TtlFrom.READING,
        "attempts_max": None,
        "retry_on": [],
        "discard_on": [],
        "message_rate": None,
        "ack_deadline_seconds": 30,
        "body": BatchBody.ENVELOPES,
        "backoff_multiplier": 1.0,
        "backoff_max_interval_in_sec": 600,
    }


def test_an_auth_object_that_is_there_means_false_for_what_it_leaves_out() -> None:
    topic = msgspec.convert({**TOPIC, "auth": {"enabled": True}}, Topic)
    assert not topic.auth.unauthenticated_access_enabled


@pytest.mark.parametrize(
    ("unit", "milliseconds"),
    [("SECONDS", 2_000), ("MINUTES", 120_000), ("HOURS", 7_200_000), ("DAYS", 172_800_000)],
)
def test_a_retention_time_is_known_in_milliseconds(unit: str, milliseconds: int) -> None:
    assert RetentionTime(2, RetentionUnit(unit)).milliseconds == milliseconds


# A subscription's policy depends on its delivery type, which is the reader's choice to make.
class _AsSerial(Subscription, frozen=True, rename="camel", kw_only=True):
    subscription_policy: SerialPolicy = msgspec.field(default_factory=SerialPolicy)
