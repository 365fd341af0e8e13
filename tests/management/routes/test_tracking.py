"""What the routes of tracking answer; what is found is in tests/test_node_tracked.py."""

from urllib.parse import quote

import pytest

from hermes_actors.status.fold import StatusFold
from tests.management.statuses_scene import Nodes


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
        "searched": ["the open dead letters of your subscriptions (0)"],
    }


async def test_a_trace_for_a_subscription_that_is_not_there_is_refused_as_hermes_does(api):
    answer = await api.get("/topics/shop.orders/subscriptions/nobody/events/m1/trace")
    assert api.refusal(answer) == (400, "SUBSCRIPTION_NOT_EXISTS")


async def test_the_nodes_whose_spools_hold_messages_are_named(api):
    fold = StatusFold()
    api.administered_with(status=fold)
    nodes = Nodes(fold, api.clock)
    nodes.tell("dc1", "one", spooled=2)
    nodes.tell("dc1", "two")
    troubles = (await api.get("/tracking/m1")).json()["troubles"]
    assert troubles == ["2 messages wait in the spool of node one of dc1"]
