import msgspec
import pytest

from hermes_actors.consumer.push_consumer import ConsumerFactory
from hermes_actors.model.subscription import (
    BatchPolicy,
    DeliveryMode,
    DeliveryType,
    Filter,
)
from hermes_actors.model.topic import ContentType
from hermes_actors.status.reasons import Code, because
from tests.values import a_live_topic, a_topic


def live_topic(content_type=ContentType.JSON):
    return a_live_topic(a_topic(content_type=content_type))


def changed(live, **fields):
    body = msgspec.structs.replace(live.subscription, **fields)
    return msgspec.structs.replace(live, subscription=body)


BATCH = {"delivery_type": DeliveryType.BATCH, "subscription_policy": BatchPolicy()}
REFUSED = [
    ({"delivery_type": DeliveryType.BATCH}, "deliveryType"),
    ({"subscription_policy": BatchPolicy()}, "deliveryType"),
    ({**BATCH, "endpoint": "http://host/{id}"}, "{field}"),
    ({**BATCH, "endpoint": "http://a/;http://b/", "mode": DeliveryMode.BROADCAST}, "BROADCAST"),
    ({"content_type": ContentType.AVRO, "endpoint": "http://host/{id}"}, "{field}"),
    ({"filters": [Filter(type="jsonpath", matcher="x")]}, "filters"),
    ({"endpoint": "jms://host/x"}, "scheme"),
    ({"endpoint": "http://user:secret@host:port"}, "endpoint"),
]


@pytest.mark.parametrize(("fields", "word"), REFUSED)
async def test_what_this_version_cannot_push_is_refused_by_name(world, fields, word):
    reason = ConsumerFactory(world.parts).refusal(changed(world.live(), **fields), live_topic())
    assert word in reason
    assert "secret" not in reason


@pytest.mark.parametrize("taken", ContentType)
async def test_an_avro_topic_is_delivered_as_either(world, taken):
    live = changed(world.live(), content_type=taken)
    assert ConsumerFactory(world.parts).refusal(live, live_topic(ContentType.AVRO)) == ""


async def test_a_batch_subscription_of_either_mode_is_taken(world):
    factory = ConsumerFactory(world.parts)
    for mode in DeliveryMode:
        live = changed(world.live(), mode=mode, **BATCH)
        assert factory.refusal(live, live_topic()) == ""


async def test_a_serial_subscription_of_either_mode_is_taken(world):
    factory = ConsumerFactory(world.parts)
    assert factory.refusal(world.live(), live_topic()) == ""
    broadcast = changed(world.live(), mode=DeliveryMode.BROADCAST)
    assert factory.refusal(broadcast, live_topic()) == ""
    assert factory.make(world.live(), live_topic()).figures().reasons == (because(Code.STARTING),)
