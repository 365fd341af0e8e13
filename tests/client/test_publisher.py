"""The publishers against a real node, and against servers that fail in ways a node seldom does."""

import json
import ssl

import anyio
import httpx
import pytest
import trustme

import hermes_client
from hermes_client import (
    CallFailed,
    MessageInvalid,
    NotAccepted,
    NotAllowed,
    Outgoing,
    Published,
    Retries,
    TopicUnknown,
    sync,
)
from hermes_local.ports import free_ports
from tests.client.conftest import scripted

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "state": {"enum": ["new", "paid"]}},
        "required": ["id"],
    }
)
QUICK = Retries(attempts_max=3, backoff_s=0.001)


@pytest.fixture(params=["asyncio", "trio", "sync"])
def publish(request):
    """`publish(urls, method, topic, message, …)` by each kind of publisher."""

    def call(urls, method, *arguments, auth=None, tls=None, **options):
        options = {"auth": auth, "tls": tls, "retries": QUICK}, options
        if request.param == "sync":
            with sync.Publisher(urls, **options[0]) as publisher:
                return getattr(publisher, method)(*arguments, **options[1])

        async def main():
            async with hermes_client.Publisher(urls, **options[0]) as publisher:
                return await getattr(publisher, method)(*arguments, **options[1])

        return anyio.run(main, backend=request.param)

    return call


def test_a_message_is_stored_once_under_its_idempotency_key(broker, publish):
    topic = broker.topic()
    key = 'order "7"'
    first = publish(broker.publish, "publish", topic, {"id": 1}, key="ä", idempotency_key=key)
    again = publish(broker.publish, "publish", topic, {"id": 1}, key="ä", idempotency_key=key)
    assert (first.is_repeat, again.is_repeat) == (False, True)
    assert first.id == again.id
    with pytest.raises(CallFailed, match="used for another message") as refused:
        publish(broker.publish, "publish", topic, {"id": 2}, idempotency_key=key)
    assert (refused.value.status, refused.value.attempts) == (422, 1)


def test_errors_say_what_to_do(broker, publish):
    topic = broker.topic(schema=SCHEMA)
    with pytest.raises(TopicUnknown, match=r"shop\.none") as unknown:
        publish(broker.publish, "publish", "shop.none", {})
    assert unknown.value.attempts == 1
    with pytest.raises(MessageInvalid) as invalid:
        publish(broker.publish, "publish", topic, {"state": "lost"})
    assert sorted(invalid.value.problems) == [
        "id is missing",
        'state breaks the rule enum ["new","paid"]; it is a string',
    ]
    assert not invalid.value.may_be_stored
    with pytest.raises(httpx.LocalProtocolError, match="header value"):
        publish(broker.publish, "publish", topic, {"id": 1}, key="a\nb")


def test_a_batch_has_an_outcome_for_each_message(broker, publish):
    topic = broker.topic(schema=SCHEMA)
    messages = [{"id": 1}, Outgoing(b'{"id":\n2}', key="k", headers={"Trace": "1"}), {"id": "x"}]
    first, second, third = publish(broker.publish, "publish_many", topic, messages)
    assert isinstance(first, Published)
    assert isinstance(second, Published)
    assert isinstance(third, MessageInvalid)
    assert third.problems == ["id must be an integer, not a string"]
    assert publish(broker.publish, "publish_many", topic, []) == []


def test_a_dead_frontend_costs_an_attempt_and_no_message(broker, publish):
    topic = broker.topic()
    dead = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert publish([dead, broker.publish], "publish", topic, {"id": 1}).id
    with pytest.raises(NotAccepted, match="no answer") as gone:
        publish(dead, "publish", topic, {"id": 1})
    assert (gone.value.attempts, gone.value.status, gone.value.may_be_stored) == (3, 0, False)


def test_a_lost_answer_may_have_been_a_success(publish):
    with scripted(*[(0, {}, b"")] * 3) as (url, requests), pytest.raises(NotAccepted) as lost:
        publish(url, "publish", "shop.orders", {"id": 1})
    assert lost.value.may_be_stored
    assert len({headers["idempotency-key"] for headers, _ in requests}) == 1


def test_a_cut_answer_of_a_batch_counts_as_far_as_it_has_come(publish):
    line = b'{"status":201,"id":"a"}\n'
    cut = {"Content-Length": "1000"}
    with scripted((200, cut, line + b'{"sta'), (200, {}, line)) as (url, requests):
        outcomes = publish(url, "publish_many", "shop.orders", [1, 2])
    assert all(isinstance(each, Published) for each in outcomes)
    assert [body.count(b"\n") for _, body in requests] == [2, 1]


def test_credentials_go_along_with_tls_and_no_one_else_is_trusted(publish):
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    answers = [(201, {}, b""), (201, {}, b""), (401, {}, b"")]
    with scripted(*answers, tls=server) as (url, requests):
        publish(url, "publish", "shop.orders", 1, auth=("sam", "p4ss"), tls=client)
        publish(url, "publish", "shop.orders", 1, auth="t0ken", tls=client)
        with pytest.raises(NotAllowed):
            publish(url, "publish", "shop.orders", 1, tls=client)
        with pytest.raises(NotAccepted, match="certificate verify failed"):
            publish(url, "publish", "shop.orders", 1)
    shown = [headers.get("Authorization") for headers, _ in requests]
    assert shown == ["Basic c2FtOnA0c3M=", "Bearer t0ken", None]
