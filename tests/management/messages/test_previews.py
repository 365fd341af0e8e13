"""Previews over the API: a topic's newest messages, one by its index, only for those who may."""

import json

import pytest
from msgspec.structs import replace

from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.messages.previews import PREVIEW_BYTES_MAX, PREVIEWS_MAX
from hermes_actors.model.message import Message, to_record
from hermes_actors.model.record import Record
from hermes_actors.model.topic import Ack

PATH = "/topics/shop.orders/preview"


def enveloped(body: str, at_ms: int) -> str:
    metadata = f'{{"timestamp":{at_ms},"id":"m{at_ms}","externalMetadata":{{}}}}'
    return f'{{"_w":true,"metadata":{metadata},"message":{body}}}'


async def publish(api, *bodies: bytes) -> None:
    for at_ms, body in enumerate(bodies, 1):
        record = to_record(Message(f"m{at_ms}", body, at_ms, dc="dc1"))
        await api.log.append("shop.orders", at_ms % 3, [record], Ack.LEADER)


async def test_the_newest_messages_of_all_partitions_are_listed_in_hermes_envelope(api) -> None:
    await api.with_topic()
    await publish(api, *(b"%d" % number for number in range(PREVIEWS_MAX + 2)))
    answer = await api.get(PATH)
    assert answer.status_code == 200
    assert answer.json() == [
        {"content": enveloped(str(number), number + 1), "truncated": False}
        for number in range(2, PREVIEWS_MAX + 2)
    ]


async def test_one_is_its_bytes_and_a_long_one_is_cut(api) -> None:
    await api.with_topic()
    await publish(api, b"\xff", "é".encode() * PREVIEW_BYTES_MAX)
    first, second = (await api.get(PATH)).json()
    assert (first["content"], first["truncated"]) == (enveloped("\ufffd", 1), False)
    assert second["truncated"]
    assert second["content"].endswith("é")
    answer = await api.get(f"{PATH}/0")
    assert answer.status_code == 200
    assert answer.content.endswith(b'"message":\xff}')
    assert answer.headers["content-type"] == "application/octet-stream"
    assert len((await api.get(f"{PATH}/1")).content) == PREVIEW_BYTES_MAX


async def test_a_record_that_holds_no_message_is_shown_as_it_is(api) -> None:
    await api.with_topic()
    broken = Record(None, b'{"_w":true,"nothing":1}', (), 1)
    await api.log.append("shop.orders", 0, [broken], Ack.LEADER)
    assert [each["content"] for each in (await api.get(PATH)).json()] == [broken.value.decode()]


@pytest.mark.parametrize("index", ["3", "-1", "99999999999999999999"])
async def test_an_index_without_a_preview_is_404(api, index: str) -> None:
    await api.with_topic()
    await publish(api, b"1", b"2")
    assert api.refusal(await api.get(f"{PATH}/{index}")) == (404, "OTHER")


async def test_a_topic_without_messages_has_none_and_an_unknown_one_is_404(api) -> None:
    await api.with_topic()
    assert (await api.get(PATH)).json() == []
    await api.log.topics.delete("shop.orders")
    assert (await api.get(PATH)).json() == []
    unknown = await api.get("/topics/shop.nothing/preview")
    assert api.refusal(unknown) == (404, "TOPIC_NOT_EXISTS")


async def test_one_message_is_found_by_its_place(api) -> None:
    await api.with_topic()
    await publish(api, b"1", b"2", b"3", b"4")
    # The third partition holds the second message, the second one the first and the fourth.
    answer = await api.get(f"{PATH}/cluster/dc1/partition/1/offset/1")
    assert (answer.status_code, answer.text) == (200, enveloped("4", 4))
    for place, code in (
        ("cluster/dc1/partition/1/offset/2", "OTHER"),
        ("cluster/dc1/partition/1/offset/-1", "OTHER"),
        (f"cluster/dc1/partition/1/offset/{10**30}", "OTHER"),
        ("cluster/dc1/partition/99/offset/0", "OTHER"),
        ("cluster/dc9/partition/1/offset/1", "BROKERS_CLUSTER_NOT_FOUND_EXCEPTION"),
    ):
        assert api.refusal(await api.get(f"{PATH}/{place}")) == (404, code), place


async def test_the_newest_messages_of_one_partition_or_all_are_found(api) -> None:
    await api.with_topic()
    await publish(api, b"1", b"2", b"3", b"4", b"\xff")
    previews = api.administration.previews

    async def newest(count: int, **where: object) -> list[str | None]:
        found = await previews.newest(Anonymous(), "shop.orders", count, **where)
        return [each.get("body") for each in found]

    assert await newest(2) == ["4", None]
    assert await newest(9, partition=1) == ["1", "4"]
    assert await newest(1, partition=0, cluster="dc1") == ["3"]
    assert await newest(1, partition=7) == []
    (broken,) = await previews.newest(Anonymous(), "shop.orders", 1)
    assert broken.keys() >= {"id", "timestamp", "key", "headers", "bodyBase64", "content"}
    tail = await api.get("/topics/shop.orders/messages?last=1&partition=1")
    assert [json.loads(line)["body"] for line in tail.text.splitlines()] == ["4"]
    nowhere = await api.get("/topics/shop.orders/messages?partition=99")
    assert api.refusal(nowhere) == (404, "PARTITIONS_NOT_FOUND_FOR_TOPIC")


async def test_the_name_of_a_cluster_is_a_setting(api) -> None:
    management = replace(api.config.management, cluster_names=["dc1=primary-dc"])
    api.administered_with(config=replace(api.config, management=management))
    await api.with_topic()
    await api.with_subscription()
    await publish(api, b"1")
    subscription = "/topics/shop.orders/subscriptions/billing"
    for name in ("primary-dc", "dc1"):
        answer = await api.get(f"{PATH}/cluster/{name}/partition/1/offset/0")
        assert answer.text == enveloped("1", 1)
    (group,) = (await api.get(f"{subscription}/consumer-groups")).json()
    assert group["clusterName"] == "primary-dc"
    moved = await api.put(f"{subscription}/retransmission?dryRun=true", {"to": "end"})
    assert list(moved.json()) == ["primary-dc"]
