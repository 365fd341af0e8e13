"""Previews over the API: all of a topic's, one by its index, and only for those who may."""

import pytest

from hermes_actors.management.messages.previews import MessagePreviews
from hermes_actors.status.previews import Preview, PreviewRecord, PreviewRegister

PATH = "/topics/shop.orders/preview"


@pytest.fixture
async def register(api) -> PreviewRegister:
    register = PreviewRegister()
    api.administration.previews = MessagePreviews(api.administration.topics, register)
    await api.with_topic()
    register.take(PreviewRecord("n1", "dc2", "shop.orders", (Preview(b"\xc3\xa9\xc3", True),)))
    register.take(PreviewRecord("n2", "dc1", "shop.orders", (Preview(b"{}"), Preview(b"\xff"))))
    return register


async def test_previews_of_all_datacentres_are_listed(api, register) -> None:
    answer = await api.get(PATH)
    assert answer.status_code == 200
    assert answer.json() == [
        {"content": "{}", "truncated": False},
        {"content": "\ufffd", "truncated": False},
        {"content": "\xe9", "truncated": True},
    ]


async def test_one_is_its_bytes(api, register) -> None:
    answer = await api.get(f"{PATH}/1")
    assert (answer.status_code, answer.content) == (200, b"\xff")
    assert answer.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("index", ["3", "-1", "99999999999999999999"])
async def test_an_index_without_a_preview_is_404(api, register, index: str) -> None:
    assert api.refusal(await api.get(f"{PATH}/{index}")) == (404, "OTHER")


async def test_a_topic_without_messages_has_none_and_an_unknown_one_is_404(api) -> None:
    await api.with_topic()
    assert (await api.get(PATH)).json() == []
    assert api.refusal(await api.get(f"{PATH}/0")) == (404, "OTHER")
    unknown = await api.get("/topics/shop.nothing/preview")
    assert api.refusal(unknown) == (404, "TOPIC_NOT_EXISTS")


async def test_a_topic_made_again_shows_nothing_of_its_predecessor(api, register) -> None:
    assert (await api.delete("/topics/shop.orders")).status_code == 200
    await api.with_topic()
    assert (await api.get(PATH)).json() == []
    assert api.refusal(await api.get(f"{PATH}/0")) == (404, "OTHER")
    again = api.metadata.catalog.topics["shop.orders"].log_topic
    register.take(PreviewRecord("n2", "dc1", again, (Preview(b"new"),)))
    # What a node gathered of the old one's last messages comes late.
    register.take(PreviewRecord("n1", "dc2", "shop.orders", (Preview(b"old"),)))
    assert [each["content"] for each in (await api.get(PATH)).json()] == ["new"]


async def test_messages_are_shown_to_owners_and_administrators_only(api, register) -> None:
    for user, teams, status in (("ann", "sales", 200), ("admin", "", 200), ("bob", "x", 403)):
        answer = await api.get(PATH, headers={"x-user": user, "x-teams": teams})
        assert answer.status_code == status
