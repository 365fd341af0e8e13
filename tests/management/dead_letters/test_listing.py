"""A subscription's dead letters are listed and shown, to those who may see them."""

import pytest
from msgspec.structs import replace

from hermes_actors.log.base import TopicSettings
from hermes_actors.model.dead_letter import Mark, MarkKind, letter_record, without_value
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from tests.management.dead_letters_scene import LETTERS, NAME, PATH, START_MS, TOPIC


async def test_without_a_dead_letter_topic_there_are_none(desk):
    answer = await desk.api.get(LETTERS)
    assert answer.json() == {"deadLetters": [], "next": None, "isComplete": True}
    assert (await desk.api.get(f"{PATH}/undelivered")).json() == []


async def test_letters_of_all_datacentres_come_newest_first(desk):
    await desk.write(desk.letter(1))
    await desk.write(desk.letter(7, "dc2"), dc="dc2")
    await desk.write(desk.letter(2))
    assert await desk.ids() == ["m-2", "m-7", "m-1"]


async def test_a_letter_is_listed_with_all_but_its_message(desk):
    await desk.write(desk.letter(1))
    (letter,) = (await desk.api.get(LETTERS)).json()["deadLetters"]
    assert letter == {
        "id": desk.id(1),
        "messageId": "m-1",
        "topicName": "shop.orders",
        "subscription": "billing",
        "discardedAt": "2023-11-14T22:13:20.001Z",
        "reason": "client-error",
        "detail": "HTTP 400",
        "status": 400,
        "attempts": 3,
        "redrives": 0,
        "partition": 0,
        "offset": 1,
        "cluster": "dc1",
        "storedAt": "2023-11-14T22:13:15.000Z",
        "sizeBytes": 7,
        "isTruncated": False,
    }


async def test_a_letter_is_shown_with_its_message_key_and_headers(desk):
    await desk.write(desk.letter(1), desk.letter(2, value=b"\xff"))
    shown = (await desk.api.get(f"{LETTERS}/{desk.id(1)}")).json()
    assert shown["message"] == '{"n":1}'
    assert shown["key"] == "key"
    assert shown["headers"] == {"id": "m-1", "h-Trace": "\ufffd"}
    assert (await desk.api.get(f"{LETTERS}/{desk.id(2)}")).json()["messageBase64"] == "/w=="


async def test_a_tombstone_is_shown_as_one_without_a_message(desk):
    await desk.write(replace(desk.letter(1), value=b"", is_tombstone=True))
    shown = (await desk.api.get(f"{LETTERS}/{desk.id(1)}")).json()
    assert (shown["isTombstone"], shown["message"], shown["key"]) == (True, None, "key")


async def test_a_message_too_large_to_be_kept_is_shown_from_its_topic(desk):
    original = Record(None, b"large", (("id", b"m-0"), ("dc", b"dc1")), START_MS)
    await desk.api.log.append("shop.orders", 0, [original], Ack.ALL)
    await desk.write(without_value(desk.letter(0)), without_value(desk.letter(9)))
    shown = (await desk.api.get(f"{LETTERS}/{desk.id(0)}")).json()
    assert (shown["message"], shown["isTruncated"], shown["sizeBytes"]) == ("large", True, 7)
    gone = (await desk.api.get(f"{LETTERS}/{desk.id(9)}")).json()
    assert gone["message"] is None


async def test_a_double_is_listed_once_and_a_marked_letter_not_at_all(desk):
    again = desk.letter(1, detail="again")
    await desk.write(desk.letter(1), desk.letter(2), again)
    await desk.write(Mark(MarkKind.REDRIVEN, (desk.id(2),), START_MS))
    assert await desk.ids() == ["m-1"]
    shown = (await desk.api.get(LETTERS)).json()["deadLetters"]
    assert shown[0]["detail"] == "again"
    answer = await desk.api.get(f"{LETTERS}/{desk.id(2)}")
    assert desk.api.refusal(answer) == (404, "OTHER")


async def test_letters_of_others_and_of_an_earlier_life_are_not_shown(desk):
    await desk.write(
        desk.letter(1, incarnation=desk.live.incarnation + 1),
        desk.letter(2, subscription="shop.orders$other"),
        Record(NAME.encode(), b"no letter", (), START_MS),
        desk.letter(3),
    )
    assert await desk.ids() == ["m-3"]


async def test_pages_follow_each_other_without_gap_or_double_while_letters_come(desk):
    for n in range(1, 8):
        await desk.write(desk.letter(n))
        await desk.write(desk.letter(100 + n, "dc2"), dc="dc2")
    seen, before = [], None
    while True:
        parameters = {"limit": 3} | ({"before": before} if before else {})
        page = (await desk.api.get(LETTERS, params=parameters)).json()
        seen += [each["offset"] for each in page["deadLetters"]]
        before = page["next"]
        await desk.write(desk.letter(1_000 + len(seen)))
        if before is None:
            break
    assert seen == [n for pair in range(7, 0, -1) for n in (100 + pair, pair)]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"reason": "expired"}, ["m-2"]),
        ({"reason": "expired,client-error"}, ["m-3", "m-2", "m-1"]),
        ({"status": "503"}, ["m-2"]),
        ({"messageId": "m-3"}, ["m-3"]),
        ({"since": str(START_MS + 2)}, ["m-3", "m-2"]),
        ({"until": "2023-11-14T22:13:20.002Z"}, ["m-1"]),
        ({"limit": "1"}, ["m-3"]),
    ],
)
async def test_a_list_is_narrowed_down(desk, parameters, expected):
    await desk.write(desk.letter(1), desk.letter(2, reason="expired", status=503), desk.letter(3))
    assert await desk.ids(**parameters) == expected


async def test_a_datacentre_that_does_not_answer_is_named_and_the_others_are_shown(desk):
    await desk.write(desk.letter(1))
    desk.remote.faults.reads_failing = True
    answer = (await desk.api.get(LETTERS)).json()
    assert [each["messageId"] for each in answer["deadLetters"]] == ["m-1"]
    assert [each["datacenter"] for each in answer["unreachable"]] == ["dc2"]


async def test_the_letters_of_all_subscriptions_are_listed_to_who_manages_them(desk):
    await desk.api.with_subscription("audit", owner={"source": "Plaintext", "id": "law"})
    await desk.api.with_topic("shop.returns")
    await desk.api.with_subscription("billing", "shop.returns")
    await desk.write(desk.letter(2, incarnation=desk.live.incarnation + 1))
    # Ids are the same for letters of several subscriptions about one message.
    other = {"subscription": "shop.orders$audit", "reason": "expired"}
    await desk.write(
        desk.letter(0, **other), desk.letter(0), desk.letter(1), desk.letter(1, **other)
    )
    await desk.write(desk.letter(9, subscription="shop.gone$x"))
    await desk.write(Mark(MarkKind.EXPIRED, (desk.id(0),), START_MS + 9))
    returned = letter_record(desk.letter(4, "dc2", subscription="shop.returns$billing"))
    await desk.remote.topics.create(TOPIC, TopicSettings(partitions=4))
    await desk.remote.append(TOPIC, 0, [returned], Ack.ALL)

    async def listed(user="admin", teams="", **parameters):
        headers = {"x-user": user, "x-teams": teams}
        answer = await desk.api.get("/dead-letters", params=parameters, headers=headers)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return [
            (each["topicName"], each["subscription"], each["offset"])
            for each in found["deadLetters"]
        ], found["isComplete"]

    ours = ("shop.orders", "billing", 1)
    audits = [("shop.orders", "audit", 1), ("shop.orders", "audit", 0)]
    theirs = ("shop.returns", "billing", 4)
    found, is_complete = await listed()
    assert sorted(found) == sorted([ours, *audits, theirs])
    assert is_complete
    assert (await listed(limit="1"))[1] is False
    assert await listed(reason="expired") == (audits, True)
    assert await listed(messageId="m-4") == ([theirs], True)
    assert await listed(topicName="shop.returns") == ([theirs], True)
    assert (await listed("lee", "law"))[0] == audits
    assert (await listed("mallory", "others"))[0] == []
    desk.remote.faults.reads_failing = True
    answer = (await desk.api.get("/dead-letters")).json()
    assert [each["datacenter"] for each in answer["unreachable"]] == ["dc2"]
    assert len(answer["deadLetters"]) == 3
