"""Who loses a race is told what the rule says of the state that won."""

import pytest

from hermes_actors.metadata.bodies import subscription_body
from hermes_actors.metadata.commands import delete, put
from hermes_actors.metadata.keys import subscription_key
from hermes_actors.metadata.registry import OutcomeUnknown
from hermes_actors.model.names import SubscriptionName

SUBSCRIPTIONS = "/topics/shop.orders/subscriptions"
NAME = SubscriptionName.parse("shop.orders$billing")


def beaten_by(api, rival, times=1):
    """Let a rival make his changes between the next check and its change, so many times."""
    real = api.metadata.change
    left = times

    async def change(wanted, **kwargs):
        nonlocal left
        if left:
            left -= 1
            api.metadata.change = real
            await rival()
            api.metadata.change = change
        return await real(wanted, **kwargs)

    api.metadata.change = change


async def log_topics(api):
    return [name for name in await api.log.topics.names() if not name.startswith("_hermes")]


async def test_two_create_one_group(api):
    beaten_by(api, lambda: api.post("/groups", {"groupName": "shop"}))
    answer = await api.post("/groups", {"groupName": "shop"})
    assert api.refusal(answer) == (400, "GROUP_ALREADY_EXISTS")


async def test_two_create_one_topic_and_its_log_topic_stays(api):
    await api.post("/groups", {"groupName": "shop"})
    beaten_by(api, lambda: api.post("/topics", api.topic(description="the winner's")))
    answer = await api.post("/topics", api.topic())
    assert api.refusal(answer) == (400, "TOPIC_ALREADY_EXISTS")
    assert (await api.get("/topics/shop.orders")).json()["description"] == "the winner's"
    assert await log_topics(api) == ["shop.orders"]


async def test_a_group_goes_while_its_first_topic_comes(api):
    await api.post("/groups", {"groupName": "shop"})
    beaten_by(api, lambda: api.delete("/groups/shop"))
    answer = await api.post("/topics", api.topic())
    assert api.refusal(answer) == (404, "GROUP_NOT_EXISTS")
    # Empty, and used by the next topic of this name.
    assert await log_topics(api) == ["shop.orders"]
    await api.with_topic()


async def test_a_topic_comes_while_its_group_goes(api):
    await api.post("/groups", {"groupName": "shop"})
    beaten_by(api, api.with_topic)
    answer = await api.delete("/groups/shop")
    assert api.refusal(answer) == (403, "GROUP_NOT_EMPTY")


async def test_two_patches_of_different_fields_both_hold(api):
    await api.with_topic()
    beaten_by(api, lambda: api.put("/topics/shop.orders", {"ack": "ALL"}))
    assert (await api.put("/topics/shop.orders", {"maxMessageSize": 2048})).status_code == 200
    after = (await api.get("/topics/shop.orders")).json()
    assert (after["ack"], after["maxMessageSize"]) == ("ALL", 2048)


async def test_a_topic_goes_while_it_is_patched(api):
    await api.with_topic()
    beaten_by(api, lambda: api.delete("/topics/shop.orders"))
    answer = await api.put("/topics/shop.orders", {"ack": "ALL"})
    assert api.refusal(answer) == (404, "TOPIC_NOT_EXISTS")


async def test_a_subscription_comes_while_its_topic_goes(api):
    await api.with_topic()
    beaten_by(api, api.with_subscription)
    answer = await api.delete("/topics/shop.orders")
    assert api.refusal(answer) == (403, "TOPIC_NOT_EMPTY")
    assert (await api.get(SUBSCRIPTIONS)).json() == ["billing"]


async def test_a_topic_goes_while_its_subscription_comes(api):
    await api.with_topic()
    beaten_by(api, lambda: api.delete("/topics/shop.orders"))
    answer = await api.post(SUBSCRIPTIONS, api.subscription())
    assert api.refusal(answer) == (404, "TOPIC_NOT_EXISTS")


async def test_two_create_one_subscription(api):
    await api.with_topic()
    beaten_by(api, lambda: api.with_subscription(description="the winner's"))
    answer = await api.post(SUBSCRIPTIONS, api.subscription())
    assert api.refusal(answer) == (400, "SUBSCRIPTION_ALREADY_EXISTS")
    shown = (await api.get(f"{SUBSCRIPTIONS}/billing")).json()
    assert shown["description"] == "the winner's"


async def test_a_subscription_is_removed_and_created_anew_while_it_is_removed(api):
    await api.with_topic()
    await api.with_subscription()

    async def replaced():
        await api.delete(f"{SUBSCRIPTIONS}/billing")
        await api.with_subscription(description="the new one")

    beaten_by(api, replaced)
    # The one that was asked for is gone already; asked again, the new one goes.
    assert (await api.delete(f"{SUBSCRIPTIONS}/billing")).status_code == 200
    assert (await api.get(SUBSCRIPTIONS)).json() == []


async def test_who_loses_every_race_is_told_to_try_again(api):
    await api.with_topic()
    count = 0

    async def rival():
        nonlocal count
        count += 1
        await api.put("/topics/shop.orders", {"description": str(count)})

    beaten_by(api, rival, times=100)
    answer = await api.put("/topics/shop.orders", {"ack": "ALL"})
    assert api.refusal(answer) == (503, "OTHER")
    assert count == 10


async def test_an_unknown_outcome_is_503_and_leaves_the_log_topic(api):
    await api.post("/groups", {"groupName": "shop"})

    async def no_answer():
        raise OutcomeUnknown("nobody knows", "id")

    beaten_by(api, no_answer)
    answer = await api.post("/topics", api.topic())
    assert api.refusal(answer) == (503, "OTHER")
    assert await log_topics(api) == ["shop.orders"]


async def orphan(api, topic_incarnation):
    """A subscription of another life of the topic, as a copy from another datacentre brings it."""
    await api.with_subscription()
    live = api.metadata.catalog.subscriptions["shop.orders$billing"]
    body = subscription_body(live.subscription, topic_incarnation)
    await api.metadata.change(put(subscription_key(NAME), body))
    assert list(api.metadata.catalog.orphans) == ["shop.orders$billing"]


@pytest.fixture
async def reborn(api):
    await api.with_topic()
    await api.delete("/topics/shop.orders")
    await api.with_topic()
    return api


async def test_a_subscription_of_another_life_keeps_its_name_until_it_is_removed(reborn):
    later = reborn.metadata.catalog.topics["shop.orders"].incarnation + 1
    for life in (0, later):
        await orphan(reborn, life)
        answer = await reborn.get(f"{SUBSCRIPTIONS}/billing")
        assert reborn.refusal(answer) == (400, "SUBSCRIPTION_NOT_EXISTS")
        answer = await reborn.post(SUBSCRIPTIONS, reborn.subscription())
        assert reborn.refusal(answer) == (503, "OTHER")
        assert "is being removed" in reborn.message(answer)
        await reborn.metadata.change(delete(subscription_key(NAME)))
    await reborn.with_subscription()


SCHEMAS = "/topics/shop.orders/schema"


async def test_a_topic_goes_while_its_schema_comes(api):
    await api.with_topic()
    # The schema's text is stored first, and then its version.
    await api.with_topic("shop.other")
    await api.post("/topics/shop.other/schema", {"type": "object"})
    beaten_by(api, lambda: api.delete("/topics/shop.orders"))
    answer = await api.post(SCHEMAS, {"type": "object"})
    assert api.refusal(answer) == (404, "TOPIC_NOT_EXISTS")
    await api.with_topic()


async def test_a_schema_comes_while_its_topic_goes(api):
    await api.with_topic(schema='{"type": "object"}')
    beaten_by(api, lambda: api.post(SCHEMAS, {"type": "object", "title": "late"}))
    assert (await api.delete("/topics/shop.orders")).status_code == 200
    # Nothing of it keeps its name from the next one.
    await api.with_topic()
    assert (await api.get(SCHEMAS)).status_code == 204
