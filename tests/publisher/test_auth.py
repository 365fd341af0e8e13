"""Who may publish: the decision, the two modes, and the order of the checks."""

import re
from pathlib import Path

import anyio
import msgspec
import pytest
import trio

from hermes_actors.config import PublishingAuthenticationConfig
from hermes_actors.errors import Unavailable
from hermes_actors.model.topic import PublishingAuth
from hermes_actors.publisher.authentication import demands_account, may_publish
from hermes_actors.security.account import Account, BadCredentials, Credentials
from hermes_actors.security.authenticator import Authenticator
from tests.publisher.batch_exchange import Exchange

SHOP = Account("shop", frozenset({"PUBLISHER"}))
OTHER = Account("other", frozenset({"PUBLISHER"}))
WITHOUT_ROLE = Account("shop", frozenset({"READER"}))
ABSENT = PublishingAuth(unauthenticated_access_enabled=True)
OFF = PublishingAuth(publishers=["shop"])
GUARDED = PublishingAuth(publishers=["shop"], enabled=True)
OPEN_TO_GUESTS = PublishingAuth(
    publishers=["shop"], enabled=True, unauthenticated_access_enabled=True
)


@pytest.mark.parametrize(
    ("auth", "guest", "shop", "other", "without_role"),
    [
        (ABSENT, True, True, True, True),
        (OFF, True, True, True, True),
        (GUARDED, False, True, False, False),
        (OPEN_TO_GUESTS, True, True, False, False),
    ],
)
def test_the_decision_of_a_topic(auth, guest, shop, other, without_role):
    assert may_publish(auth, None) is guest
    assert may_publish(auth, SHOP) is shop
    assert may_publish(auth, OTHER) is other
    assert may_publish(auth, WITHOUT_ROLE) is without_role
    assert demands_account(auth) is (not guest)


class ByName:
    """Credentials are a name after the scheme `Name`; `bad` is bad, `away` cannot be said."""

    challenge = 'Name realm="test"'

    def __init__(self) -> None:
        self.asked = 0
        self.expires_after = 1_000

    async def identify(self, credentials: Credentials) -> Account | None:
        self.asked += 1
        await anyio.sleep(0.01)
        if credentials.scheme != "name":
            return None
        if credentials.parameter == "bad" or self.asked > self.expires_after:
            raise BadCredentials("bad")
        if credentials.parameter == "away":
            raise Unavailable("the directory is away")
        roles = {"READER"} if credentials.parameter == "reader" else {"PUBLISHER"}
        return Account(credentials.parameter, frozenset(roles))

    async def run(self) -> None:
        return


TOPICS = {
    "shop.open": None,
    "shop.guarded": PublishingAuth(publishers=["shop", "reader"], enabled=True),
    "shop.guests": PublishingAuth(
        publishers=["shop"], enabled=True, unauthenticated_access_enabled=True
    ),
}


@pytest.fixture
def open_secured(open_world):
    def opened(mode: str, mechanism=None, **settings):
        mechanisms = [mechanism or ByName()]
        return open_world(
            authentication=PublishingAuthenticationConfig(enabled=True, mode=mode),
            parts={"authenticator": Authenticator(mechanisms)},
            **settings,
        )

    return opened


async def statuses(world, shown: str) -> list[int]:
    found = []
    for name in (*TOPICS, "shop.nothing"):
        headers = {"authorization": shown} if shown else {}
        answer = await world.publish(name, **headers)
        found.append(answer.status_code)
        if answer.status_code == 401:
            assert answer.content == b""
            assert answer.headers["www-authenticate"] == 'Name realm="test"'
            assert "hermes-message-id" not in answer.headers
        elif answer.status_code == 403:
            assert answer.json()["code"] == "AUTH_ERROR"
            assert answer.headers["hermes-message-id"]
    return found


@pytest.mark.parametrize(
    ("mode", "shown", "expected"),
    [
        ("constraint_driven", "", [201, 401, 201, 404]),
        ("constraint_driven", "Name bad", [201, 401, 201, 404]),
        ("constraint_driven", "Basic abc", [201, 401, 201, 404]),
        ("constraint_driven", "Name shop", [201, 201, 201, 404]),
        ("constraint_driven", "Name other", [201, 403, 201, 404]),
        ("constraint_driven", "Name reader", [201, 403, 201, 404]),
        ("constraint_driven", "Name away", [201, 503, 201, 404]),
        ("pro_active", "", [201, 403, 201, 404]),
        ("pro_active", "Name bad", [401, 401, 401, 401]),
        ("pro_active", "Basic abc", [401, 401, 401, 401]),
        ("pro_active", "Name shop", [201, 201, 201, 404]),
        ("pro_active", "Name other", [201, 403, 403, 404]),
        ("pro_active", "Name reader", [201, 403, 403, 404]),
        ("pro_active", "Name away", [503, 503, 503, 503]),
    ],
)
async def test_the_modes(open_secured, autojump_clock, mode, shown, expected):
    async with open_secured(mode) as world:
        for name, auth in TOPICS.items():
            await world.add_topic(name, auth=auth)
        assert await statuses(world, shown) == expected
        stored = sum(status == 201 for status in expected)
        assert len(world.stored) == stored


PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
ROWS = re.findall(
    r"^\| ([a-z ]+) \| ([a-z ]+) \| (\d+)[^|]*\| (\d+)[^|]*\|$", PAGE, flags=re.MULTILINE
)
NAMED = {
    "open to all": "shop.open",
    "lets guests in": "shop.guests",
    "demands an account": "shop.guarded",
    "does not exist": "shop.nothing",
}
SHOWN = {
    "nothing": "",
    "bad credentials": "Name bad",
    "an account that is not a publisher": "Name other",
    "a publisher": "Name shop",
}


@pytest.mark.parametrize("mode", ["constraint_driven", "pro_active"])
async def test_the_table_of_the_docs_holds(open_secured, autojump_clock, mode):
    assert len(ROWS) == 10
    async with open_secured(mode) as world:
        for name, auth in TOPICS.items():
            await world.add_topic(name, auth=auth)
        for topic, shown, constraint_driven, pro_active in ROWS:
            header = SHOWN[shown]
            headers = {"authorization": header} if header else {}
            answer = await world.publish(NAMED[topic], **headers)
            expected = constraint_driven if mode == "constraint_driven" else pro_active
            assert answer.status_code == int(expected), (topic, shown)


@pytest.mark.parametrize("mode", ["constraint_driven", "pro_active"])
@pytest.mark.parametrize("path", ["/topics/shop.guarded", "/topics/shop.guarded/batch"])
async def test_credentials_that_are_shown_twice_are_nobodys(
    open_secured, autojump_clock, mode, path
):
    """Of two lines a proxy may have checked the one, and this node would believe the other."""
    mechanism = ByName()
    async with open_secured(mode, mechanism) as world:
        await world.add_topic("shop.guarded", auth=TOPICS["shop.guarded"])
        for others in ("Name shop", "Name other", ""):
            headers = [("Authorization", others), ("authorization", "Name shop")]
            answer = await world.client.post(path, content=b"{}", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
            assert "Authorization" in answer.json()["message"]
            assert "shop" not in answer.json()["message"]
            assert answer.headers["connection"] == "close"
        assert 'global_http_status_codes_total{status_code="400"} 3.0' in world.text()
        assert world.stored == []
    assert mechanism.asked == 0


async def test_a_topic_is_guarded_even_where_nobody_is_asked(world):
    await world.add_topic("shop.guarded", auth=TOPICS["shop.guarded"])
    await world.add_topic("shop.guests", auth=TOPICS["shop.guests"])
    answer = await world.publish("shop.guarded", authorization="Name shop")
    assert (answer.status_code, answer.json()["code"]) == (403, "AUTH_ERROR")
    assert "shop.guarded" in answer.json()["message"]
    assert (await world.publish("shop.guests")).status_code == 201


async def test_the_order_of_the_checks(open_secured, autojump_clock):
    """Shut-down, then 401, then the topic, then 403, then quota and body."""
    async with open_secured("pro_active", body_bytes_max=10) as world:
        await world.add_topic("shop.guarded", auth=TOPICS["shop.guarded"])
        long = b"x" * 100
        answer = await world.publish("shop.guarded", long, authorization="Name bad")
        assert answer.status_code == 401
        answer = await world.publish("shop.guarded", long, authorization="Name other")
        assert answer.status_code == 403
        answer = await world.publish("shop.guarded", long, authorization="Name shop")
        assert answer.status_code == 400
        world.frontend.drain.announce()
        world.frontend.drain.is_refusing = True
        answer = await world.publish("shop.guarded", authorization="Name bad")
        assert (answer.status_code, answer.content) == (503, b"")


async def test_refusals_are_counted_without_the_topic(open_secured, autojump_clock):
    async with open_secured("pro_active") as world:
        await world.add_topic("shop.guarded", auth=TOPICS["shop.guarded"])
        for name in ("bad", "other", "other"):
            await world.publish("shop.guarded", authorization=f"Name {name}")
        text = world.text()
        assert 'global_http_status_codes_total{status_code="401"} 1.0' in text
        assert 'global_http_status_codes_total{status_code="403"} 2.0' in text
        assert 'topic_requests_total{group="shop",topic="guarded"} 0.0' in text


async def test_a_topic_that_changes_while_the_author_is_asked(open_secured, autojump_clock):
    """What holds is the topic as it is when the message is admitted."""
    async with open_secured("pro_active") as world:
        await world.add_topic("shop.open")
        answers = []

        async def publish() -> None:
            answers.append(await world.publish("shop.open", authorization="Name shop"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            await trio.sleep(0.005)
            route = world.frontend.routes.by_name["shop.open"]
            changed = PublishingAuth(publishers=["other"], enabled=True)
            route.topic = msgspec.structs.replace(route.topic, auth=changed)
        assert answers[0].status_code == 403


async def test_who_may_no_longer_publish_is_stopped_in_an_open_batch(open_secured, autojump_clock):
    async with open_secured("pro_active") as world:
        await world.add_topic("shop.open")
        exchange = Exchange(world, "shop.open", authorization="Name shop")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            exchange.feed(b'{"n":1}\n')
            await trio.sleep(1)
            route = world.frontend.routes.by_name["shop.open"]
            changed = PublishingAuth(publishers=["other"], enabled=True)
            route.topic = msgspec.structs.replace(route.topic, auth=changed)
            exchange.feed(b'{"n":2}\n')
            exchange.end()
        lines = exchange.lines
        assert [line["status"] for line in lines] == [201, 403]
        assert lines[1]["code"] == "AUTH_ERROR"
        assert len(world.stored) == 1
