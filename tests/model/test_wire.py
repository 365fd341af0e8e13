"""Topics and subscriptions have the JSON shape and the defaults that Hermes' clients know."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.subscription import BatchPolicy, SerialPolicy, Subscription
from hermes_actors.model.topic import Ack, RetentionTime, RetentionUnit, Topic

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
    assert msgspec.to_builtins(msgspec.convert(TOPIC, Topic)) == {
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


def test_a_subscription_is_shown_with_every_default() -> None:
    assert msgspec.to_builtins(msgspec.convert(SUBSCRIPTION, _AsSerial)) == {
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


def test_a_batch_policy_is_shown_with_every_default() -> None:
    assert msgspec.to_builtins(BatchPolicy()) == {
        "messageTtl": 60,
        "messageBackoff": 500,
        "requestTimeout": 30_000,
        "batchSize": 100,
        "batchTime": 30_000,
        "batchVolume": 64_000,
        "retryClientErrors": False,
    }


def test_an_auth_object_that_is_there_means_false_for_what_it_leaves_out() -> None:
    topic = msgspec.convert({**TOPIC, "auth": {"enabled": True}}, Topic)
    assert not topic.auth.unauthenticated_access_enabled


@given(ack=st.sampled_from(Ack), size=st.integers(1, 2**31), tracked=st.booleans())
def test_a_topic_survives_json(ack: Ack, size: int, tracked: bool) -> None:
    topic = msgspec.convert(TOPIC, Topic)
    topic = msgspec.structs.replace(topic, ack=ack, max_message_size=size, tracking_enabled=tracked)
    assert msgspec.json.decode(msgspec.json.encode(topic), type=Topic) == topic


@pytest.mark.parametrize(
    ("unit", "milliseconds"),
    [("SECONDS", 2_000), ("MINUTES", 120_000), ("HOURS", 7_200_000), ("DAYS", 172_800_000)],
)
def test_a_retention_time_is_known_in_milliseconds(unit: str, milliseconds: int) -> None:
    assert RetentionTime(2, RetentionUnit(unit)).milliseconds == milliseconds


# A subscription's policy depends on its delivery type, which is the reader's choice to make.
class _AsSerial(Subscription, frozen=True, rename="camel", kw_only=True):
    subscription_policy: SerialPolicy = msgspec.field(default_factory=SerialPolicy)
