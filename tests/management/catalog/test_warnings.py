"""What is stored as in Hermes, but will not do what its owner expects, is warned of."""

import base64

import pytest
from msgspec.structs import replace

from hermes_actors.config import Config, ConsumersConfig, ManagementConfig, RecipientsConfig
from hermes_actors.config.publishing import PropagationConfig
from hermes_actors.management.bodies.decoding import decode_subscription
from hermes_actors.management.catalog.warnings import filter_warnings, subscription_warnings
from hermes_actors.model.subscription import Filter, Subscription

PATH = "/topics/shop.orders/subscriptions"
BY_HEADER = {"type": "header", "header": "Channel", "matcher": "web"}
BATCH = {"deliveryType": "BATCH", "subscriptionPolicy": {}}
TOKENS = {"grantType": "clientCredentials", "providerName": "nobody"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ""),
        ({**BATCH, "mode": "BROADCAST"}, "mode BROADCAST does not go with deliveryType BATCH"),
        ({**BATCH, "endpoint": "https://a.example.com/{id}"}, "the endpoint's {field}"),
        ({"endpoint": "https://a.example.com/{id}"}, ""),
        ({"oAuthPolicy": TOKENS}, "there is no OAuth provider nobody"),
        ({"endpoint": "jms://user:secret@queue"}, "no sender in consumers.senders"),
        ({"filters": [BY_HEADER]}, "the filter by header Channel lets nothing pass"),
    ],
)
async def test_a_creation_warns_and_is_done(api, fields, said) -> None:
    await api.with_topic()
    answer = await api.post(PATH, api.subscription(**fields))
    assert answer.status_code == 201
    warning = answer.headers.get("hermes-warning", "")
    assert said in warning
    assert bool(warning) is bool(said)


async def test_an_update_warns_too_and_so_does_a_test_of_filters(api) -> None:
    await api.with_topic()
    await api.with_subscription()
    answer = await api.put(f"{PATH}/billing", {"filters": [BY_HEADER]})
    assert "frontend.propagation.enabled" in answer.headers["hermes-warning"]
    tried = {
        "filters": [BY_HEADER],
        "message": base64.b64encode(b"{}").decode(),
        "headers": {"Channel": "web"},
    }
    found = (await api.post("/filters/shop.orders", tried)).json()
    assert found["status"] == "MATCHED"
    assert "lets nothing pass" in found["warnings"][0]


@pytest.mark.parametrize(
    "fields",
    [
        {"oAuthPolicy": {**TOKENS, "providerName": "p" * 300_000}},
        {"filters": [{**BY_HEADER, "header": "h" * 300}] * 100},
    ],
)
async def test_warnings_are_no_longer_than_a_header_that_every_client_takes(api, fields) -> None:
    await api.with_topic()
    answer = await api.post(PATH, api.subscription(**fields))
    assert answer.status_code == 201
    warning = answer.headers["hermes-warning"]
    assert len(warning) <= 2_003
    assert warning.endswith("...")


def test_a_header_that_travels_is_not_warned_of() -> None:
    wanted = [Filter(type="header", header="Channel", matcher="web")]
    every = PropagationConfig(enabled=True)
    assert list(filter_warnings(wanted, every)) == []
    assert list(filter_warnings(wanted, replace(every, allowed=["channel"]))) == []
    (warning,) = filter_warnings(wanted, replace(every, allowed=["country"]))
    assert "frontend.propagation.allowed" in warning


def subscribed(endpoint: str) -> Subscription:
    body = {
        "topicName": "shop.orders",
        "name": "billing",
        "endpoint": endpoint,
        "description": "",
        "owner": {"source": "Plaintext", "id": "sales"},
    }
    return decode_subscription(body)


@pytest.mark.parametrize(
    ("field", "value", "is_told"),
    [
        ("senders", [], True),
        ("senders", ["other=a.b:c"], True),
        ("senders", ["jms=a.b:c"], False),
        ("recipients", RecipientsConfig(resolver="a.b:c"), False),
    ],
)
def test_a_scheme_is_warned_of_only_where_no_plug_in_delivers_to_it(field, value, is_told) -> None:
    config = replace(Config(), consumers=replace(ConsumersConfig(), **{field: value}))
    told = list(subscription_warnings(subscribed("jms://user:secret@queue"), (), config))
    assert bool(told) is is_told
    assert "secret" not in "".join(told)


def test_a_scheme_that_management_was_told_of_is_not_warned_of() -> None:
    management = replace(ManagementConfig(), additional_endpoint_protocols=["queue"])
    config = replace(Config(), management=management)
    assert list(subscription_warnings(subscribed("queue://orders"), (), config)) == []
