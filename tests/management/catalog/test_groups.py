"""Groups over HTTP."""

import pytest


async def test_a_group_is_created_shown_listed_and_removed(api):
    created = await api.post("/groups", {"groupName": "shop.eu", "supportTeam": "ignored"})
    assert (created.status_code, created.content) == (201, b"")
    assert (await api.get("/groups")).json() == ["shop.eu"]
    assert (await api.get("/groups/shop.eu")).json() == {"groupName": "shop.eu"}
    removed = await api.delete("/groups/shop.eu")
    assert (removed.status_code, removed.content) == (200, b"")
    assert (await api.get("/groups")).json() == []


@pytest.mark.parametrize("name", ["sh$op", "sh_op", "sh/op", "", "sh op", "żółw"])
async def test_a_name_outside_the_pattern_is_refused(api, name):
    answer = await api.post("/groups", {"groupName": name})
    assert api.refusal(answer) == (400, "GROUP_NAME_IS_INVALID")
    assert f"'{name}'" in api.message(answer)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", "must not consist of dots only"),
        ("..", "must not consist of dots only"),
        ("a" * 1_000, "it has 1000 characters; the maximum is 198"),
    ],
)
async def test_a_name_that_no_log_could_hold_is_refused_by_its_reason(api, name, reason):
    answer = await api.post("/groups", {"groupName": name})
    assert api.refusal(answer) == (400, "GROUP_NAME_IS_INVALID")
    assert api.message(answer).startswith("Group.groupName '")
    assert reason in api.message(answer)
    assert len(api.message(answer)) < 400


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_an_unknown_group_is_not_found(api, method):
    body = {"json": {}} if method == "PUT" else {}
    answer = await api.client.request(method, "/groups/nobody", **body)
    assert api.refusal(answer) == (404, "GROUP_NOT_EXISTS")


async def test_an_update_changes_nothing_and_cannot_rename(api):
    await api.post("/groups", {"groupName": "shop"})
    answer = await api.put("/groups/shop", {"groupName": "shop", "supportTeam": "x"})
    assert (answer.status_code, answer.content) == (204, b"")
    answer = await api.put("/groups/shop", {"groupName": "store"})
    assert api.refusal(answer) == (400, "VALIDATION_ERROR")


async def test_a_group_with_topics_is_not_removed(api):
    await api.with_topic("shop.orders")
    answer = await api.delete("/groups/shop")
    assert api.refusal(answer) == (403, "GROUP_NOT_EMPTY")
    assert "it has 1 topic, for example shop.orders" in api.message(answer)
    await api.with_topic("shop.returns")
    assert "it has 2 topics, " in api.message(await api.delete("/groups/shop"))
    await api.delete("/topics/shop.returns")
    await api.delete("/topics/shop.orders")
    assert (await api.delete("/groups/shop")).status_code == 200


async def test_a_group_whose_name_begins_like_another_is_no_obstacle(api):
    await api.post("/groups", {"groupName": "shop"})
    await api.with_topic("shop.eu.orders")
    assert (await api.delete("/groups/shop")).status_code == 200
