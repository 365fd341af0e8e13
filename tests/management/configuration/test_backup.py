"""What a restore refuses, before it writes anything."""

import json

import pytest

from hermes_actors.metadata.commands import put
from tests.management.callers import ADMIN

GOOD = {
    "key": "group/a",
    "incarnation": 0,
    "stamp": 1,
    "dc": "dc1",
    "body": {"groupName": "a"},
}


@pytest.mark.parametrize(
    "forged",
    [
        {"stamp": 4_611_686_018_427_387_903},
        {"key": "topic/_hermes/metadata", "body": {"name": "_hermes.metadata"}},
        {"key": "group/_hermes"},
        {"key": "group/bad1", "body": [1, 2]},
        {"key": "x{/a"},
        {"key": "note/a"},
        {"key": "group/a/b"},
        {"key": "group/%61"},
        {"key": "topic/a/b.c"},
        {"key": "subscription/a/b/%2F"},
        {"key": "drain/dc1/node1", "body": {}},
        {"key": "seek/a/b/c", "body": {}},
    ],
    ids=str,
)
async def test_a_forged_register_is_refused_by_line_and_key_and_nothing_is_written(api, forged):
    lines = "\n".join(json.dumps(each) for each in (GOOD, GOOD | forged))
    before = api.metadata.state.position
    answer = await api.client.post("/metadata/restore", content=lines, headers=ADMIN)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(f"Line 2, {(GOOD | forged)['key']}, ")
    assert api.metadata.state.position == before


async def test_each_line_of_a_backup_is_taken(api):
    await api.with_topic()
    await api.with_subscription()
    lines = await api.client.get("/metadata/backup", headers=ADMIN)
    answer = await api.client.post("/metadata/restore", content=lines.content, headers=ADMIN)
    assert answer.json() == {"restored": 0, "kept": len(lines.content.splitlines())}, lines.text


async def test_any_key_in_the_log_can_be_searched(api):
    await api.metadata.change(put("x{/a", b"1"))
    found = (await api.client.get("/audit")).json()["changes"]
    assert [each["resource"] for each in found] == ["x{/a"]
