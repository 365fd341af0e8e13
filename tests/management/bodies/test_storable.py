"""Whatever a client sends is refused, or is stored so that every node reads the same."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.errors import Refused
from hermes_actors.management.bodies.constraints import (
    require_valid_subscription,
    require_valid_topic,
)
from hermes_actors.management.bodies.decoding import decode_subscription, decode_topic, merge
from hermes_actors.management.bodies.endpoint import require_valid_endpoint
from hermes_actors.management.bodies.views import subscription_view, topic_view
from hermes_actors.metadata import bodies
from hermes_actors.model.subscription import Subscription, SubscriptionState
from hermes_actors.model.topic import Topic
from tests.management.plain_bodies import SUBSCRIPTION, TOPIC

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5_000)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["AVRO", "JSON", "ALL", "BATCH", "GLOBAL", "header", "http://h/", "x.y"])
    | st.text(max_size=5)
)


def names_in(kind: Any) -> list[str]:
    """Every key that occurs anywhere in the JSON schema of a type."""
    found: dict[str, None] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, dict):
            for key, value in schema.items():
                if key == "properties":
                    found.update(dict.fromkeys(value))
                walk(value)
        elif isinstance(schema, list):
            for each in schema:
                walk(each)

    walk(msgspec.json.schema(kind))
    return list(found)


TOPIC_KEYS = st.sampled_from(names_in(Topic))
SUBSCRIPTION_KEYS = st.sampled_from(
    [
        *(field.encode_name for field in msgspec.structs.fields(Subscription)),
        *(
            name
            for field in msgspec.structs.fields(Subscription)
            if field.name != "subscription_policy"
            for name in names_in(field.type)
        ),
        "rate",
        "batchSize",
        "inflightSize",
        "backoffMultiplier",
    ]
)


def objects(keys):
    values = st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )
    return st.dictionaries(keys, values, max_size=6)


@given(objects(TOPIC_KEYS))
def test_a_topic_is_refused_or_read_back_equal(patch):
    try:
        topic = decode_topic(merge(TOPIC, patch))
        require_valid_topic(topic)
    except Refused as refused:
        assert refused.status == 400  # noqa: PT017 -- a topic that is accepted is fine too
        return
    assert bodies.decode_topic(bodies.topic_body(topic)) == topic
    assert decode_topic(topic_view(topic)) == topic


@given(objects(SUBSCRIPTION_KEYS))
def test_a_subscription_is_refused_or_read_back_equal(patch):
    try:
        subscription = decode_subscription(merge(SUBSCRIPTION, patch))
        require_valid_subscription(subscription)
        require_valid_endpoint(subscription.endpoint)
    except Refused as refused:
        assert refused.status == 400  # noqa: PT017 -- one that is accepted is fine too
        return
    stored = bodies.decode_subscription(bodies.subscription_body(subscription, 7))
    assert (stored.subscription, stored.topic_incarnation) == (subscription, 7)
    view = subscription_view(subscription, SubscriptionState.PENDING)
    assert msgspec.json.decode(msgspec.json.encode(view)) == view
