"""What the routes of tracking answer; what is found is in tests/test_node_tracked.py."""

from urllib.parse import quote

import pytest


@pytest.mark.parametrize("message_id", ["m1", "a/b ?#%", "€" * 85, "../x"])
async def test_a_message_is_looked_up_by_its_id_whatever_that_is(api, message_id):
    answer = await api.get(f"/tracking/{quote(message_id, safe='')}")
    assert answer.status_code == 200
    found = answer.json()
    assert found.pop("messageId") == message_id
    assert found == {
        "events": [],
        "ended": [],
        "gaps": [],
        "leftOut": 0,
        "troubles": [],
        "deadLetters": [],
        "spooled": [],
        "searched": ["the open dead letters of your subscriptions (0)"],
    }


async def test_a_trace_for_a_subscription_that_is_not_there_is_refused_as_hermes_does(api):
    answer = await api.get("/topics/shop.orders/subscriptions/nobody/events/m1/trace")
    assert api.refusal(answer) == (400, "SUBSCRIPTION_NOT_EXISTS")
