from collections import Counter

import pytest
import trio

from hermes_actors.publisher.answers import Answer
from hermes_actors.publisher.edges.endpoint import EndpointServer
from hermes_chaos.live.load import NO_CONNECTION, Account, Acknowledged, Subscribers, publishing

TOPIC = "t.all"
SUBSCRIBERS = {TOPIC: ["one", "two"]}


@pytest.fixture
def account() -> Account:
    account = Account(SUBSCRIBERS)
    account.begin("test")
    return account


def sent(account: Account, message_id: str) -> bytes:
    number, body = account.next_body()
    account.acknowledge(message_id, Acknowledged(number, TOPIC, "http://f", 1.0), 0.001)
    return body


async def test_what_is_acknowledged_is_owed_to_each_subscriber_until_it_is_delivered(account):
    body = sent(account, "a")
    assert list(account.owed) == [("one", "a"), ("two", "a")]
    account.deliver("two", "a", body)
    assert list(account.owed) == [("one", "a")]
    account.deliver("one", "a", body)
    assert account.owed == {}
    assert (account.deliveries, account.duplicates, account.unconfirmed) == (2, 0, 0)


async def test_a_delivery_before_the_acknowledgement_counts_for_it(account):
    number, body = account.next_body()
    account.deliver("one", "a", body)
    assert account.unconfirmed == 1
    account.acknowledge("a", Acknowledged(number, TOPIC, "http://f", 1.0), 0.001)
    assert list(account.owed) == [("two", "a")]
    assert account.unconfirmed == 0


async def test_a_second_delivery_to_one_subscriber_is_a_duplicate_of_its_phase(account):
    body = sent(account, "a")
    account.deliver("one", "a", body)
    account.deliver("two", "a", body)
    account.begin("later")
    account.deliver("one", "a", body)
    account.deliver("two", "a", body, is_retry=True)
    assert [(phase.duplicates, phase.retried) for phase in account.phases] == [(0, 0), (2, 1)]
    assert account.duplicates == 2


async def test_a_body_that_is_not_the_one_sent_is_told(account):
    body = sent(account, "a")
    account.deliver("one", "a", body)
    assert account.wrong() == []
    account.deliver("two", "a", body + b" ")
    sent(account, "b")
    account.deliver("one", "b", b"another")
    assert account.wrong() == ["a", "b"]


async def test_an_id_given_twice_is_refused(account):
    sent(account, "a")
    with pytest.raises(AssertionError, match="two messages were given the id a"):
        sent(account, "a")


class Frontend:
    """Answers each publication with the next of some statuses, and passes it on when stored."""

    def __init__(self, account: Account, *statuses: int) -> None:
        self._account = account
        self._statuses = statuses
        self.requests = 0

    def respond(self, request, body, reply) -> None:
        assert request.path == f"/topics/{TOPIC}"
        self.requests += 1
        status = self._statuses[self.requests % len(self._statuses)]
        message_id = f"m{self.requests}"
        if status == 201:
            for subscriber in SUBSCRIBERS[TOPIC]:
                self._account.deliver(subscriber, message_id, body)
        reply(Answer(status, message_id), 0)


@pytest.mark.slow
@pytest.mark.guest
async def test_publishers_enter_each_answer_into_the_account(account):
    frontend = Frontend(account, 201, 500, 201, 503)
    server = EndpointServer(frontend.respond)
    url = server.url.removesuffix("/")
    with trio.fail_after(30):
        async with server.serving(), publishing(account, [url], rate_per_s=1_000):
            while frontend.requests < 20:  # noqa: ASYNC110
                await trio.sleep(0.001)
    assert account.refused.keys() == {"500", "503"}
    assert len(account.acknowledged) + account.refused.total() == frontend.requests
    assert account.owed == {}
    assert account.wrong() == []
    assert (url, TOPIC) in account.latest_s


@pytest.mark.guest
async def test_a_frontend_that_is_not_there_is_tried_again_for_ever(account):
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()
    with trio.fail_after(30):
        async with publishing(account, [f"http://127.0.0.1:{port}"], rate_per_s=1_000):
            while account.refused[NO_CONNECTION] < 4:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert account.acknowledged == {}


@pytest.mark.guest
async def test_subscribers_take_every_push_under_the_name_in_its_path(account):
    subscribers = Subscribers(account)
    body = sent(account, "a")
    head = f"Host: x\r\nHermes-Message-Id: a\r\nContent-Length: {len(body)}\r\n\r\n"
    with trio.fail_after(30):
        async with subscribers.open():
            host, port = subscribers.url.removeprefix("http://").rstrip("/").split(":")
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                await stream.send_all(b"POST /two HTTP/1.1\r\n" + head.encode() + body)
                assert (await stream.receive_some(1_000)).startswith(b"HTTP/1.1 200")
    assert account.taken == {"one": Counter(), "two": Counter({"a": 1})}
