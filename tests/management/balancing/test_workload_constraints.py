"""Workload constraints on Hermes' wire."""

import pytest

from hermes_actors.metadata.commands import put
from hermes_actors.model.workload import Constraints
from tests.management.callers import ADMIN

CONSTRAINTS = "/workload-constraints"


def of_topic(number=3, **fields):
    return {"topicName": "shop.orders", "constraints": {"consumersNumber": number, **fields}}


def of_subscription(number=1, **fields):
    name = "shop.orders$billing"
    return {"subscriptionName": name, "constraints": {"consumersNumber": number, **fields}}


async def test_a_constraint_is_new_then_changed_then_gone(api):
    path = f"{CONSTRAINTS}/topic"
    assert (await api.put(path, of_topic(), headers=ADMIN)).status_code == 201
    assert (await api.put(path, of_topic(4), headers=ADMIN)).status_code == 200
    assert (await api.put(path, of_topic(4), headers=ADMIN)).status_code == 200
    assert api.metadata.catalog.constraints == {"shop.orders": Constraints(consumers_number=4)}
    gone = await api.delete(f"{path}/shop.orders", headers=ADMIN)
    assert (gone.status_code, gone.content) == (200, b"")
    assert (await api.delete(f"{path}/shop.orders", headers=ADMIN)).status_code == 200
    assert api.metadata.catalog.constraints == {}


async def test_constraints_are_listed_by_what_they_are_for_and_without_nulls(api):
    body = of_subscription(reason="slow endpoint")
    created = await api.put(f"{CONSTRAINTS}/subscription", body, headers=ADMIN)
    assert created.status_code == 201
    await api.put(f"{CONSTRAINTS}/topic", of_topic(reason=None), headers=ADMIN)
    assert (await api.get(CONSTRAINTS)).json() == {
        "topicConstraints": {"shop.orders": {"consumersNumber": 3}},
        "subscriptionConstraints": {
            "shop.orders$billing": {"consumersNumber": 1, "reason": "slow endpoint"}
        },
    }
    path = f"{CONSTRAINTS}/subscription/shop.orders/billing"
    assert (await api.delete(path, headers=ADMIN)).status_code == 200
    assert (await api.get(CONSTRAINTS)).json()["subscriptionConstraints"] == {}


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("topic", of_topic(0), "consumersNumber"),
        ("topic", of_topic(-1), "consumersNumber"),
        ("topic", of_topic(None), "consumersNumber"),
        ("topic", of_topic("many"), "consumersNumber"),
        ("topic", of_topic(reason="x" * 1_025), "reason"),
        ("topic", {"constraints": {"consumersNumber": 1}}, "topicName"),
        ("topic", {"topicName": "shop.orders"}, "constraints"),
        ("topic", {**of_topic(), "topicName": "orders"}, "orders"),
        ("subscription", {**of_subscription(), "subscriptionName": "shop.orders"}, "shop.orders"),
        ("subscription", of_subscription(0), "consumersNumber"),
    ],
)
async def test_what_is_no_constraint_is_refused_by_name(api, path, body, word):
    answer = await api.put(f"{CONSTRAINTS}/{path}", body, headers=ADMIN)
    assert answer.status_code == 400
    assert word in api.message(answer)
    assert api.metadata.catalog.constraints == {}


async def test_the_longest_reason_is_kept(api):
    body = of_topic(reason="x" * 1_024)
    assert (await api.put(f"{CONSTRAINTS}/topic", body, headers=ADMIN)).status_code == 201
    assert len(api.metadata.catalog.constraints["shop.orders"].reason) == 1_024


async def test_a_constraint_that_no_version_can_read_can_be_set_and_removed(api):
    key = "constraint/shop/orders"
    await api.metadata.change(put(key, b"nonsense"))
    assert key in api.metadata.catalog.undecodable
    assert (await api.put(f"{CONSTRAINTS}/topic", of_topic(), headers=ADMIN)).status_code == 200
    assert api.metadata.catalog.undecodable == {}
    await api.metadata.change(put(key, b"nonsense"))
    answer = await api.delete(f"{CONSTRAINTS}/topic/shop.orders", headers=ADMIN)
    assert answer.status_code == 200
    assert key not in api.metadata.catalog.others
