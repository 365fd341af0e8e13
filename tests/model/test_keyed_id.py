"""Ids from keys are UUIDs version 5, the same everywhere."""

import uuid  # noqa: TID251 -- the standard library's own is what ours must equal

from hypothesis import given
from hypothesis import strategies as st

from hermes_actors.model.keyed_id import keyed_id

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:hermes_actors:message")


@given(st.text(), st.text())
def test_an_id_is_the_uuid5_of_the_key_in_the_topics_namespace(topic: str, key: str) -> None:
    assert keyed_id(topic, key) == str(uuid.uuid5(uuid.uuid5(NAMESPACE, topic), key))


def test_an_id_is_for_ever() -> None:
    # Other nodes, also of other versions, must come to the same one.
    assert keyed_id("shop.orders", "order-17") == "8e3179bf-28c4-5f8a-bd1a-64a956d1badd"
    assert keyed_id("shop.audit", "order-17") != keyed_id("shop.orders", "order-17")
