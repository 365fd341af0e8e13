"""Tasks of offline retransmission: Hermes' checks and format, and whose tasks they are."""

import pytest

from tests.management.callers import ADMIN, FINANCE, SALES

TASKS = "/offline-retransmission/tasks"
RANGE = (
    "Must contain both startTimestamp and endTimestamp for topic retransmission. "
    "StartTimestamp must be lower than endTimestamp"
)
VALID = {
    "type": "topic",
    "sourceTopic": "shop.orders",
    "targetTopic": "shop.again",
    "startTimestamp": "2026-01-01T10:00:00.500Z",
    "endTimestamp": "2026-01-01T11:00Z",
}
VIEW = {"type": "view", "sourceViewPath": "a.b", "targetTopic": "shop.again"}


@pytest.fixture
async def tasks(api):
    await api.with_topic("shop.orders")
    await api.with_topic("shop.again")
    await api.with_topic("shop.kept", offlineStorage={"enabled": True})
    return api


async def test_tasks_are_listed_in_hermes_format_and_deleted(tasks):
    assert (await tasks.get(TASKS)).json() == []
    assert (await tasks.post(TASKS, VALID, headers=SALES)).status_code == 201
    tasks.clock.ms += 1
    view = await tasks.post(TASKS, VIEW | {"startTimestamp": "2026-01-01T11:00Z"}, headers=SALES)
    assert (view.status_code, view.content) == (201, b"")
    first, second = (await tasks.get(TASKS)).json()
    assert first == {
        "type": "TOPIC",
        "taskId": first["taskId"],
        "sourceTopic": "shop.orders",
        "targetTopic": "shop.again",
        "startTimestamp": "2026-01-01T10:00:00.500Z",
        "endTimestamp": "2026-01-01T11:00:00.000Z",
        "createdAt": "2023-11-14T22:13:20.000Z",
    }
    assert second == {
        "type": "VIEW",
        "taskId": second["taskId"],
        "sourceViewPath": "a.b",
        "targetTopic": "shop.again",
        "createdAt": "2023-11-14T22:13:20.001Z",
    }
    links = {"logsUrl": "", "metricsUrl": "", "jobDetailsUrl": ""}
    for topic, found in (("orders", [first]), ("again", [first, second]), ("kept", [])):
        answer = await tasks.get(f"/offline-retransmission/topics/shop.{topic}/tasks")
        assert answer.json() == [
            {"type": each["type"], "taskId": each["taskId"], **links} for each in found
        ]

    path = f"{TASKS}/{first['taskId']}"
    assert tasks.refusal(await tasks.delete(path, headers=FINANCE)) == (403, "OTHER")
    assert (await tasks.delete(path, headers=SALES)).status_code == 200
    assert (await tasks.get(TASKS)).json() == [second]
    gone = await tasks.delete(path)
    assert tasks.refusal(gone) == (400, "VALIDATION_ERROR")
    said = f"Retransmission task with id {first['taskId']} does not exist."
    assert tasks.message(gone) == said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sourceTopic": "", "targetTopic": "", "startTimestamp": None}, RANGE),
        ({"endTimestamp": None}, RANGE),
        ({"endTimestamp": "soon"}, RANGE),
        ({"startTimestamp": "2026-01-01T11:00:00Z"}, RANGE),
        ({"type": "view", "targetTopic": None}, "targetTopic must not be empty"),
        ({"targetTopic": ""}, "targetTopic must not be empty"),
        ({"sourceTopic": "shop.none"}, "Source topic does not exist"),
        ({"targetTopic": "shop.none"}, "Target topic does not exist"),
        ({"type": "view", "targetTopic": "none"}, "Target topic does not exist"),
        ({"targetTopic": "shop.kept"}, "Target topic must not be stored offline"),
        ({"type": "other"}, "OfflineRetransmission.type"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_hermes_words(tasks, changed, said):
    answer = await tasks.post(TASKS, VALID | changed)
    assert answer.status_code == 400
    assert said in tasks.message(answer)
    assert (await tasks.get(TASKS)).json() == []


async def test_the_topics_owners_are_needed(tasks):
    await tasks.with_topic("shop.foreign", owner={"source": "Plaintext", "id": "finance"})
    for body, topics in (
        (VALID | {"sourceTopic": "shop.foreign"}, "source and target topics"),
        (VIEW | {"targetTopic": "shop.foreign"}, "target topic"),
    ):
        answer = await tasks.post(TASKS, body, headers=SALES)
        assert tasks.refusal(answer) == (403, "PERMISSION_DENIED")
        assert tasks.message(answer) == f"User needs permissions to {topics}."
        assert (await tasks.post(TASKS, body, headers=ADMIN)).status_code == 201
    # Without its target a task is the administrators'.
    await tasks.delete("/topics/shop.foreign")
    orphan = (await tasks.get(TASKS)).json()[1]
    path = f"{TASKS}/{orphan['taskId']}"
    assert (await tasks.delete(path, headers=FINANCE)).status_code == 403
    assert (await tasks.delete(path, headers=ADMIN)).status_code == 200
