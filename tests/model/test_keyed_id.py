"""Ids from keys are the same everywhere."""

from hermes_actors.model.keyed_id import keyed_id


def test_an_id_is_for_ever() -> None:
    # Other nodes, also of other versions, must come to the same one.
    assert keyed_id("shop.orders", "order-17") == "8e3179bf-28c4-5f8a-bd1a-64a956d1badd"
    assert keyed_id("shop.audit", "order-17") != keyed_id("shop.orders", "order-17")
