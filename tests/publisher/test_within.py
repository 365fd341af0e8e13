"""A publish from within the node: its outcome is that of the same request over HTTP."""

import re

import pytest

from hermes_actors.config import PublishingAuthenticationConfig
from hermes_actors.errors import HermesError
from hermes_actors.model.message import from_record
from hermes_actors.publisher.within import publish
from hermes_actors.security.account import Credentials
from hermes_actors.security.authenticator import Authenticator
from tests.publisher.test_auth import TOPICS, ByName

CASES = {
    "stored": ("shop.open", b"{}", {"partition-key": "kläger", "trace-id": "7"}, ""),
    "too long for the topic": ("shop.open", b"x" * 1_025, {}, ""),
    "an unknown topic": ("shop.nothing", b"{}", {}, ""),
    "an empty idempotency key": ("shop.open", b"{}", {"idempotency-key": ""}, ""),
    "too many headers": ("shop.open", b"{}", {f"x-{n}": "1" for n in range(300)}, ""),
    "bad credentials": ("shop.guarded", b"{}", {}, "Name bad"),
    "a directory that is away": ("shop.guarded", b"{}", {}, "Name away"),
    "somebody else": ("shop.guarded", b"{}", {}, "Name other"),
    "a publisher": ("shop.guarded", b"{}", {}, "Name shop"),
}


@pytest.fixture
def open_guarded(open_world):
    return open_world(
        authentication=PublishingAuthenticationConfig(enabled=True),
        parts={"authenticator": Authenticator([ByName()])},
        headers_max=100,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_it_has_the_outcome_of_a_request(open_guarded, autojump_clock, case):
    topic, body, headers, shown = case
    async with open_guarded as world:
        for name, auth in TOPICS.items():
            await world.add_topic(name, auth=auth)
        sent = {name: value.encode() for name, value in headers.items()}
        sent |= {"authorization": shown.encode()} if shown else {}
        answer = await world.client.post(f"/topics/{topic}", content=body, headers=sent)
        error: HermesError | None = None
        id_, status = "", 0
        try:
            id_, status = await publish(
                world.frontend, topic, [*headers.items()], body, Credentials(shown)
            )
        except HermesError as refusal:
            error = refusal
        if error is None:
            assert status == answer.status_code
            over_http, within = map(from_record, world.stored)
            assert within.id == id_ != over_http.id
            assert (within.key, within.body) == (over_http.key, over_http.body)
            return
        assert world.stored == []
        assert error.status == answer.status_code
        if answer.content:
            # The client adds further headers.
            said = re.sub("[0-9]+", "N", answer.json()["message"])
            assert re.sub("[0-9]+", "N", error.message) == said
            assert error.code.name == answer.json()["code"]


async def test_a_node_that_does_not_listen_yet_publishes_nothing(open_world, autojump_clock):
    async with open_world() as world:
        await world.add_topic("shop.orders")
        await world.frontend.drain.run()
        with pytest.raises(HermesError) as refused:
            await publish(world.frontend, "shop.orders", [], b"{}", Credentials())
        assert refused.value.status == 503
        assert world.stored == []
