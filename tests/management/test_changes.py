"""The changes of the metadata: searched over HTTP, and as a stream of events."""

import json
import random

import pytest
import trio
import trio.testing

from hermes_actors.config import ManagementConfig
from hermes_actors.errors import Refused
from hermes_actors.management.audit import AuditTrail
from hermes_actors.metadata.commands import put
from hermes_actors.metadata.registry import Metadata, Registry
from hermes_actors.model.moments import iso_ms
from hermes_actors.runtime.clock import seeded_ids
from tests.management.conftest import START_MS
from tests.management.dead_letters_scene import Desk
from tests.management.test_audit import SECRETS, audited, steps

BILLING = "topics/shop.orders/subscriptions/billing"


@pytest.fixture
def settings():
    return ManagementConfig(allow_removal=True, allow_schema_removal=True)


@pytest.fixture
async def made(api, monkeypatch):
    """All kinds of changes, a second apart, by two people with the path as reason."""
    monkeypatch.setattr("hermes_actors.management.offsets.retransmission.TAKEN_UP_WITHIN_S", 0.01)
    for count, (route, path, body) in enumerate(steps(api)):
        if "redrive" in path and body is not None:
            await Desk(api, api.log).write(Desk(api, None).letter(1))
        api.clock.ms += 1_000
        who = {"x-user": "admin", "Hermes-Change-Reason": path}
        if count % 3 == 2:
            who |= {"x-user": "eve", "x-teams": "sales,finance"}
        verb = route.partition(" ")[0] or "POST"
        await api.client.request(verb, path, json=body, headers=who)
    return api


async def changes(api, **params):
    answer = await api.get("/audit", params=params, headers={"x-user": "guest"})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_all_changes_are_found_newest_first_page_by_page_without_secrets(made):
    found = (await changes(made, limit=1_000))["changes"]
    assert len(found) == len(await audited(made))
    times = [each["time"] for each in found]
    assert times == sorted(times, reverse=True)
    assert not [each for each in SECRETS if each in json.dumps(found)]
    paged, cursor = [], ""
    while cursor is not None:
        page = await changes(made, limit=7, before=cursor)
        paged, cursor = paged + page["changes"], page["next"]
    assert paged == found
    for each in found:
        # The reason is the path of the request.
        kind = each["resource"].split("/")[0].removesuffix("-registry")
        several = ("/apply", "/metadata/restore", "/offline-retransmission")
        assert kind in each["reason"] or each["reason"].startswith(several), each


@pytest.mark.parametrize(
    ("resource", "also"),
    [
        ("topics/shop.orders", ("workload-constraints",)),
        ("/topics/shop.orders/", ("workload-constraints",)),
        (BILLING, ()),
        ("topics/shop", None),
        ("groups/shop", ()),
        ("schema-registry/subjects/other", ()),
    ],
)
async def test_a_resource_is_searched_with_everything_below_it(made, resource, also):
    wanted = resource.strip("/")
    found = [each["resource"] for each in (await changes(made, resource=resource))["changes"]]
    if also is None:
        assert found == []
        return
    assert found
    for each in found:
        assert f"{each}/".startswith((f"{wanted}/", *also, "schema-registry"))
    assert (f"{BILLING}/dead-letters/redrive" in found) == (wanted.startswith("topics"))


async def test_a_change_shows_the_fields_that_differ(api):
    await api.with_topic()
    await api.with_subscription()
    headers = {"x-user": "admin", "Hermes-Change-Reason": "CHG-1"}
    await api.put(f"/{BILLING}", {"endpoint": "https://b.example.com/x"}, headers=headers)
    found = await changes(api, limit=1)
    assert found["changes"] == [
        {
            "id": "dc1:4",
            "time": iso_ms(START_MS + 3),
            "datacenter": "dc1",
            "resource": BILLING,
            "action": "changed",
            "by": "admin",
            "address": "127.0.0.1",
            "reason": "CHG-1",
            "before": {"endpoint": "https://billing.example.com/orders"},
            "after": {"endpoint": "https://b.example.com/x"},
        }
    ]
    assert (found["next"], found["isComplete"]) == ("dc1:4", True)


@pytest.fixture
async def forgetful(made, nursery):
    """The changes of the same log on a node that has only the last five in memory."""
    rng = random.Random(2)
    metadata = Metadata(
        made.log, clock=made.clock, ids=seeded_ids(rng), rng=rng, entries_max=5, node="b"
    )
    nursery.start_soon(Registry(metadata).run, trio.Event())
    await metadata.wait_current()
    return AuditTrail(metadata, made.clock)


async def test_a_search_says_from_when_on_memory_has_all_changes(made, forgetful):
    whole = await made.administration.audit.changes(None)
    found = await forgetful.changes(None)
    assert found["changes"] == whole["changes"][:5]
    assert found["isComplete"] is False
    since = max(each["time"] for each in whole["changes"][5:])
    assert found["searchedSince"] == since
    # Nothing older is asked for.
    since = await forgetful.changes(None, since=since.replace(".001Z", ".002Z"))
    assert since["isComplete"] is True


@pytest.mark.parametrize(
    "asked",
    [
        {"limit": 0},
        {"limit": 1_001},
        {"since": "yesterday"},
        {"until": "soon"},
        {"before": "x"},
        {"resource": "topcs"},
        {"resource": "news.flash"},
        {"before": "dc2:1"},
    ],
)
async def test_bad_parameters_are_refused_by_name(api, asked):
    answer = await api.get("/audit", params=asked)
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")
    assert next(iter(asked)) in api.message(answer)


def parsed(chunk):
    """The events of a chunk: id, kind and data."""
    events = []
    for block in chunk.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "id" in fields:
            events.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return events


async def test_a_stream_gives_each_change_as_the_search_does_and_goes_on_by_its_id(
    api, autojump_clock
):
    trail = api.administration.audit
    stream = await trail.stream(None, "", "", "")
    begun_s = trio.current_time()
    assert parsed(await stream.next_chunk()) == []
    assert trio.current_time() - begun_s == pytest.approx(15)
    await api.with_topic()
    events = parsed(await stream.next_chunk())
    assert [(kind, data["resource"]) for _, kind, data in events] == [
        ("created", "groups/shop"),
        ("created", "topics/shop.orders"),
    ]
    found = (await changes(api))["changes"]
    assert [data for *_, data in reversed(events)] == found
    assert [each for each, *_ in events] == ["dc1:1", "dc1:2"]
    again = await trail.stream(None, "topics", "", "dc1:1")
    assert parsed(await again.next_chunk()) == events[1:]
    since = await trail.stream(None, "", found[0]["time"], "")
    assert parsed(await since.next_chunk()) == events[1:]


async def test_a_slow_reader_is_disconnected_and_reads_the_rest_by_search(made, forgetful):
    stream = await forgetful.stream(None, "", "", "dc1:35")
    for number in range(20):
        await made.metadata.change(put("group/g", b"%d" % number))
    await trio.testing.wait_all_tasks_blocked()
    assert await stream.next_chunk() == b""
    with pytest.raises(Refused, match="GET /audit"):
        await forgetful.stream(None, "", "", "dc1:35")
