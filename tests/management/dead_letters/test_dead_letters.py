"""Dead letters through the management API: looked at, closed, and asked to be delivered again."""

import pytest

from hermes_actors.log.base import Commit, TopicSettings
from hermes_actors.log.memory import MemoryLog
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.administration import Administration
from hermes_actors.management.dead_letters.letters import Letters
from hermes_actors.management.dead_letters.undelivered import UndeliveredMessages
from hermes_actors.metadata.redrives import (
    RedriveProgress,
    progress_metadata,
    redrive_of,
)
from hermes_actors.model.dead_letter import (
    DiscardReason,
    Letter,
    Mark,
    MarkKind,
    dlq_topic,
    letter_record,
    mark_record,
    without_value,
)
from hermes_actors.model.names import SubscriptionName
from hermes_actors.model.partitioner import partition_of
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack
from hermes_actors.status.record import LastUndelivered

START_MS = 1_700_000_000_000
NAME = "shop.orders$billing"
PATH = "/topics/shop.orders/subscriptions/billing"
LETTERS = f"{PATH}/dead-letters"
TOPIC = dlq_topic("shop")
PARTITION = partition_of(NAME.encode(), 4)
GROUP = "shop_orders_billing.redrive"


class Desk:
    """The API with one subscription, and pens to write letters with into both datacentres."""

    def __init__(self, api, remote):
        self.api = api
        self.logs = {"dc1": api.log, "dc2": remote}
        self.remote = remote

    @property
    def live(self):
        return self.api.metadata.catalog.subscriptions[NAME]

    @property
    def requested_at_ms(self):
        live = self.live
        return redrive_of(self.api.metadata.catalog, live.name, live.incarnation).requested_at_ms

    def letter(self, offset, dc="dc1", **fields):
        given = {
            "dc": dc,
            "subscription": NAME,
            "incarnation": self.live.incarnation,
            "log_topic": "shop.orders",
            "partition": 0,
            "offset": offset,
            "timestamp_ms": START_MS - 5_000,
            "key": b"key",
            "value": b'{"n":%d}' % offset,
            "headers": (("id", b"m-%d" % offset), ("h-Trace", b"\xff")),
            "message_id": f"m-{offset}",
            "reason": "client-error",
            "detail": "HTTP 400",
            "attempts": 3,
            "status": 400,
            "at_ms": START_MS + offset,
            **fields,
        }
        return Letter(**given)

    async def write(self, *entries, dc="dc1"):
        log = self.logs[dc]
        settings = TopicSettings(partitions=4, log_append_time=True)
        await log.create_topic(TOPIC, settings)
        for entry in entries:
            record = (
                entry
                if isinstance(entry, Record)
                else letter_record(entry)
                if isinstance(entry, Letter)
                else mark_record(NAME, entry)
            )
            self.api.clock.ms += 1
            await log.append(TOPIC, PARTITION, [record], Ack.ALL)

    async def ids(self, **parameters):
        answer = await self.api.get(LETTERS, params=parameters)
        assert answer.status_code == 200, answer.text
        return [each["messageId"] for each in answer.json()["deadLetters"]]

    def id(self, offset, dc="dc1"):
        return f"{dc}:{self.live.incarnation}:0:{offset}"


@pytest.fixture
async def desk(api):
    remote = MemoryLog("dc2", api.clock)
    api.administration = Administration(
        api.metadata,
        api.log,
        api.config,
        api.clock,
        api.administration.security,
        remote_logs=(remote,),
    )
    api.client = api.rebuilt()
    await api.with_topic()
    await api.with_subscription()
    return Desk(api, remote)


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


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"since": "yesterday"}, "since"),
        ({"status": "bad"}, "status"),
        ({"limit": "0"}, "limit"),
        ({"before": "%%%"}, "before"),
    ],
)
async def test_a_bad_parameter_is_named(desk, parameters, named):
    answer = await desk.api.get(LETTERS, params=parameters)
    assert answer.status_code == 400
    assert desk.api.message(answer).startswith(named)


async def test_a_datacentre_that_does_not_answer_is_named_and_the_others_are_shown(desk):
    await desk.write(desk.letter(1))
    desk.remote.faults.reads_failing = True
    answer = (await desk.api.get(LETTERS)).json()
    assert [each["messageId"] for each in answer["deadLetters"]] == ["m-1"]
    assert [each["datacenter"] for each in answer["unreachable"]] == ["dc2"]


async def test_only_owners_and_administrators_see_dead_letters(desk):
    for path in (
        LETTERS,
        f"{LETTERS}/dc1:0:0:1",
        f"{PATH}/undelivered",
        f"{PATH}/undelivered/last",
    ):
        answer = await desk.api.get(path, headers={"x-user": "mallory", "x-teams": "others"})
        assert answer.status_code == 403, path
    answer = await desk.api.get(LETTERS, headers={"x-user": "fay", "x-teams": "finance"})
    assert answer.status_code == 200
    for verb in ("expire", "redrive"):
        answer = await desk.api.post(
            f"{LETTERS}/{verb}", {"all": True}, headers={"x-user": "mallory", "x-teams": "o"}
        )
        assert answer.status_code == 403


async def test_of_a_subscription_that_does_not_exist_there_are_none(desk):
    answer = await desk.api.get("/topics/shop.orders/subscriptions/none/dead-letters")
    assert desk.api.refusal(answer) == (400, "SUBSCRIPTION_NOT_EXISTS")


# Undelivered messages, as in Hermes.


async def test_the_last_undelivered_message_has_hermes_shape(desk):
    answer = await desk.api.get(f"{PATH}/undelivered/last")
    assert desk.api.refusal(answer) == (404, "OTHER")
    await desk.write(desk.letter(1), desk.letter(2))
    await desk.write(desk.letter(3, "dc2", reason="expired", detail="HTTP 503"), dc="dc2")
    assert (await desk.api.get(f"{PATH}/undelivered/last")).json() == {
        "timestamp": START_MS + 3,
        "subscription": "billing",
        "topicName": "shop.orders",
        "status": "DISCARDED",
        "reason": "expired: HTTP 503",
        "message": '{"n":3}',
        "partition": 0,
        "offset": 3,
        "cluster": "dc2",
    }


class Told:
    """What consumers have told of the last message that was given up."""

    def __init__(self, last):
        self._last = last

    def last_undelivered(self, _name):
        return self._last


async def test_without_dead_letters_the_last_undelivered_message_is_what_consumers_tell(desk):
    original = Record(None, b"lost", (("id", b"m-0"), ("dc", b"dc1")), START_MS)
    await desk.api.log.append("shop.orders", 3, [original], Ack.ALL)
    letters = Letters(desk.api.metadata, desk.api.administration.subscriptions, desk.logs.values())
    last = LastUndelivered(START_MS + 9, 3, 0, "expired: HTTP 503")
    undelivered = UndeliveredMessages(desk.api.metadata, letters, Told(("dc1", last)))
    trace = await undelivered.last(Anonymous(), "shop.orders", "billing")
    assert (trace["message"], trace["reason"]) == ("lost", "expired: HTTP 503")
    assert (trace["partition"], trace["offset"], trace["cluster"]) == (3, 0, "dc1")
    await desk.write(desk.letter(1))
    assert (await undelivered.last(Anonymous(), "shop.orders", "billing"))["message"] == "lost"
    await desk.write(desk.letter(10))
    trace = await undelivered.last(Anonymous(), "shop.orders", "billing")
    assert trace["message"] == '{"n":10}'
    gone = Told(("dc3", last))
    undelivered = UndeliveredMessages(desk.api.metadata, letters, gone)
    await desk.api.post(f"{LETTERS}/expire", {"all": True})
    assert (await undelivered.last(Anonymous(), "shop.orders", "billing"))["message"] == ""


async def test_the_newest_hundred_undelivered_messages_are_listed(desk):
    await desk.write(*[desk.letter(n) for n in range(120)])
    traces = (await desk.api.get(f"{PATH}/undelivered")).json()
    assert [trace["offset"] for trace in traces] == list(range(119, 19, -1))
    assert traces[0]["messageId"] == "m-119"


# Expiring.


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
        ({}, "Say which"),
        ({"all": True, "reason": "expired"}, "Say which"),
        ({"ids": []}, "ids"),
        ({"ids": ["nonsense"]}, "'nonsense'"),
        ({"untill": "2023"}, "untill"),
        ({"until": "soon"}, "until"),
        ({"all": "yes"}, "all"),
        ({"all": True, "dryRun": 1}, "dryRun"),
        ({"ids": ["dc1:0:0:1"] * 1_001}, "ids"),
    ],
)
async def test_what_is_to_be_expired_must_be_said_and_understood(desk, body, named):
    for verb in ("expire", "redrive"):
        answer = await desk.api.post(f"{LETTERS}/{verb}", body)
        assert answer.status_code == 400
        assert desk.api.message(answer).startswith(named)


async def test_a_log_that_takes_no_mark_is_told_of(desk):
    await desk.write(desk.letter(1))
    desk.api.log.faults.unavailable_rate = 1.0
    answer = (await desk.api.post(f"{LETTERS}/expire", {"all": True})).json()
    assert answer["unreachable"][0]["datacenter"] == "dc1"
    assert answer["isComplete"] is False


# Asking for a re-drive.


async def test_a_redrive_is_written_down_for_the_datacentres_that_have_letters(desk):
    await desk.write(desk.letter(1), desk.letter(2, reason="expired"))
    await desk.write(desk.letter(3, "dc2"), dc="dc2")
    dry = (await desk.api.post(f"{LETTERS}/redrive", {"all": True, "dryRun": True})).json()
    assert (dry["matching"], dry["dryRun"]) == (3, True)
    assert redrive_of(desk.api.metadata.catalog, desk.live.name, desk.live.incarnation) is None
    answer = await desk.api.post(f"{LETTERS}/redrive", {"reason": "expired", "ratePerSecond": 7})
    assert answer.status_code == 202
    assert answer.json()["datacenters"] == [{"datacenter": "dc1", "matching": 1}]
    redrive = redrive_of(desk.api.metadata.catalog, desk.live.name, desk.live.incarnation)
    assert (redrive.number, redrive.rate_per_s, redrive.letters.reasons) == (1, 7, ("expired",))
    assert {dc: (each.start, each.end) for dc, each in redrive.ranges.items()} == {"dc1": (0, 2)}


async def test_the_progress_of_a_redrive_is_what_the_consumers_committed(desk):
    assert (await desk.api.get(f"{LETTERS}/redrive")).status_code == 404
    await desk.write(desk.letter(1))
    await desk.write(desk.letter(3, "dc2"), dc="dc2")
    await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    progress = RedriveProgress(1, desk.requested_at_ms, total=5, redriven=2, failed=1)
    await desk.api.log.commit(GROUP, TOPIC, {PARTITION: Commit(0, progress_metadata(progress))})
    shown = (await desk.api.get(f"{LETTERS}/redrive")).json()
    assert [each["state"] for each in shown["datacenters"]] == ["RUNNING", "WAITING"]
    assert (shown["total"], shown["redriven"], shown["failed"]) == (5, 2, 1)
    assert shown["isDone"] is False
    desk.remote.faults.reads_failing = True
    shown = (await desk.api.get(f"{LETTERS}/redrive")).json()
    assert [each["state"] for each in shown["datacenters"]] == ["RUNNING", "UNKNOWN"]


async def test_one_redrive_at_a_time_and_a_cancelled_one_makes_room(desk):
    await desk.write(desk.letter(1))
    assert (await desk.api.post(f"{LETTERS}/redrive", {"all": True})).status_code == 202
    second = await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    assert desk.api.refusal(second) == (409, "OTHER")
    assert (await desk.api.delete(f"{LETTERS}/redrive")).status_code == 200
    assert (await desk.api.delete(f"{LETTERS}/redrive")).status_code == 404
    assert (await desk.api.post(f"{LETTERS}/redrive", {"all": True})).status_code == 202


async def test_a_cancelled_redrive_still_tells_how_far_it_came_and_who_ended_it(desk):
    await desk.write(desk.letter(1))
    await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    requested_at_ms = desk.requested_at_ms
    progress = RedriveProgress(1, requested_at_ms, total=3, redriven=1, failed=1)
    await desk.api.log.commit(GROUP, TOPIC, {PARTITION: Commit(1, progress_metadata(progress))})
    await desk.api.delete(f"{LETTERS}/redrive")
    shown = (await desk.api.get(f"{LETTERS}/redrive")).json()
    assert (shown["total"], shown["redriven"], shown["failed"]) == (3, 1, 1)
    assert shown["isDone"] is False
    assert shown["cancelledAt"].endswith("Z")
    (there,) = shown["datacenters"]
    assert (there["datacenter"], there["state"]) == ("dc1", "CANCELLED")
    assert there["reason"].startswith("cancelled by ")
    # Nobody carries it out, and the next one has a number of its own.
    name = SubscriptionName.parse("shop.orders$billing")
    assert redrive_of(desk.api.metadata.catalog, name, 0).ranges == {}
    assert (await desk.api.post(f"{LETTERS}/redrive", {"all": True})).json()["number"] == 2


@pytest.mark.parametrize("where", ["why", "lag"])
async def test_who_asks_what_ails_a_subscription_hears_of_its_dead_letters(desk, where):
    path = f"/topics/shop.orders/subscriptions/billing/{where}"
    none = (await desk.api.get(path)).json()["deadLetters"]
    assert none == {"open": 0, "isComplete": True}
    await desk.write(desk.letter(1), desk.letter(2, reason="expired", detail="HTTP 503"))
    found = (await desk.api.get(path)).json()["deadLetters"]
    assert (found["open"], found["isComplete"]) == (2, True)
    assert (found["newest"]["reason"], found["newest"]["detail"]) == ("expired", "HTTP 503")


async def test_a_redrive_that_waits_says_what_for(desk):
    await desk.write(desk.letter(1))
    await desk.api.put("/topics/shop.orders/subscriptions/billing/state", "SUSPENDED")
    await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    (there,) = (await desk.api.get(f"{LETTERS}/redrive")).json()["datacenters"]
    assert (there["state"], there["reason"]) == ("WAITING", "the subscription is suspended")


@pytest.mark.parametrize("where", ["list", "expire"])
async def test_a_reason_that_there_is_none_of_is_refused_with_all_that_there_are(desk, where):
    if where == "list":
        answer = await desk.api.get(f"{LETTERS}?reason=expired,typo")
    else:
        answer = await desk.api.post(f"{LETTERS}/expire", {"reason": "typo"})
    assert answer.status_code == 400
    message = desk.api.message(answer)
    assert "no 'typo'" in message
    assert all(reason in message for reason in DiscardReason)


async def test_a_redrive_that_is_done_makes_room_and_numbers_go_up(desk):
    await desk.write(desk.letter(1))
    await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    progress = RedriveProgress(1, desk.requested_at_ms, is_done=True)
    await desk.api.log.commit(GROUP, TOPIC, {PARTITION: Commit(1, progress_metadata(progress))})
    assert (await desk.api.get(f"{LETTERS}/redrive")).json()["isDone"] is True
    second = await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    assert second.json()["number"] == 2


async def test_a_redrive_of_nothing_is_refused(desk):
    answer = await desk.api.post(f"{LETTERS}/redrive", {"all": True})
    assert desk.api.refusal(answer) == (404, "OTHER")


@pytest.mark.parametrize("rate", [0, -1, 10_001, "fast", True])
async def test_the_rate_of_a_redrive_is_a_number_in_range(desk, rate):
    answer = await desk.api.post(f"{LETTERS}/redrive", {"all": True, "ratePerSecond": rate})
    assert desk.api.message(answer).startswith("ratePerSecond")


async def test_the_routes_are_described(desk):
    described = (await desk.api.get("/openapi.json")).json()["paths"]
    path = "/topics/{topic}/subscriptions/{name}/dead-letters"
    assert described[path]["get"]["summary"].startswith("Open dead letters")
    assert f"{path}/redrive" in described
