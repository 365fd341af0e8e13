"""Dead letters are closed: those that are said, and no others."""

import pytest

from hermes_actors.model.dead_letter import DiscardReason
from tests.management.dead_letters_scene import LETTERS, START_MS


async def test_letters_are_expired_by_id_and_by_time(desk):
    await desk.write(*[desk.letter(n) for n in range(5)])
    await desk.write(desk.letter(9, "dc2"), dc="dc2")
    answer = await desk.api.post(f"{LETTERS}/expire", {"ids": [desk.id(3), desk.id(9, "dc2")]})
    assert answer.json()["expired"] == 2
    answer = await desk.api.post(f"{LETTERS}/expire", {"until": str(START_MS + 2), "dryRun": True})
    assert (answer.json()["expired"], answer.json()["dryRun"]) == (2, True)
    assert await desk.ids() == ["m-4", "m-2", "m-1", "m-0"]
    answer = await desk.api.post(f"{LETTERS}/expire", {"until": str(START_MS + 2)})
    assert answer.json()["datacenters"][0] == {"datacenter": "dc1", "expired": 2}
    assert await desk.ids() == ["m-4", "m-2"]
    await desk.api.post(f"{LETTERS}/expire", {"all": True})
    assert await desk.ids() == []


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "Choose the dead letters"),
        ({"all": True, "reason": "expired"}, "Choose the dead letters"),
        ({"ids": []}, "ids"),
        ({"ids": ["nonsense"]}, "'nonsense'"),
        ({"untill": "2023"}, "The body: Object contains unknown field `untill`"),
        ({"until": "soon"}, "until"),
        ({"all": "yes"}, "all"),
        ({"all": True, "dryRun": "maybe"}, "dryRun"),
        ({"ids": ["dc1:0:0:1"] * 1_001}, "ids"),
    ],
)
async def test_what_is_to_be_expired_must_be_said_and_understood(desk, body, named):
    for verb in ("expire", "redrive"):
        answer = await desk.api.post(f"{LETTERS}/{verb}", body)
        assert answer.status_code == 400
        assert desk.api.message(answer).startswith(named)


async def test_a_log_that_takes_no_mark_is_told_of(desk):
    await desk.write(desk.letter(1, "dc2"), dc="dc2")
    desk.remote.faults.unavailable_rate = 1.0
    answer = (await desk.api.post(f"{LETTERS}/expire", {"all": True})).json()
    assert answer["unreachable"][0]["datacenter"] == "dc2"
    assert answer["isComplete"] is False


@pytest.mark.parametrize("where", ["list", "expire"])
async def test_a_reason_that_there_is_none_of_is_refused_with_all_that_there_are(desk, where):
    if where == "list":
        answer = await desk.api.get(f"{LETTERS}?reason=expired,typo")
    else:
        answer = await desk.api.post(f"{LETTERS}/expire", {"reason": "typo"})
    assert answer.status_code == 400
    message = desk.api.message(answer)
    assert message.startswith("reason[")
    assert "'typo'" in message
    assert all(reason in message for reason in DiscardReason)
