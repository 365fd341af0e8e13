"""Tokens of subscriptions that deliver: no 401 for each life of one, batches too, and why none."""

import msgspec
import trio

from hermes_actors.consumer.senders.oauth.request import Grant, TokenDenied
from hermes_actors.consumer.senders.oauth.sender import OAuthSender, TokenRequests
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import SendOutcome
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy

POLICY = OAuthPolicy(grant_type="clientCredentials", provider_name="sso")
LIFE_S = 100.0
PROVIDER = OAuthProvider(
    name="sso",
    token_endpoint="https://id.example.com/token",
    client_id="hermes",
    client_secret="hush",
    token_request_initial_delay=1_000,
    token_request_max_delay=8_000,
    request_timeout=1_000,
)


class Authority:
    """Gives tokens that are good for LIFE_S; endpoints answer 401 to any that is not."""

    def __init__(self, world, nursery):
        self.given_s = []
        self.is_down = False
        self.providers = {"sso": PROVIDER}
        tasks = PushTasks(nursery, 1_000)
        requests = TokenRequests(self.providers.get, self._ask, tasks, world.metrics)
        inner = world.sender
        inner.script = self._check
        world.parts = msgspec.structs.replace(
            world.parts,
            sender_of=lambda _live: OAuthSender(inner, POLICY, requests),
        )

    async def _ask(self, _credentials):
        if self.is_down:
            raise TokenDenied("HTTP 503")
        self.given_s.append(trio.current_time())
        return Grant(str(len(self.given_s)), LIFE_S)

    def _check(self, push):
        number = int(push.lines.partition(b"Authorization: Bearer ")[2].split(b"\r\n")[0])
        is_good = trio.current_time() < self.given_s[number - 1] + LIFE_S
        return SendOutcome(200 if is_good else 401)


async def test_a_whole_life_of_a_token_costs_no_401(make_world, nursery, autojump_clock):
    world = make_world()
    authority = Authority(world, nursery)
    await world.create()
    async with world.consuming(world.live(o_auth_policy=POLICY)):
        for number in range(350):
            await world.publish(b"%d" % number)
            await trio.sleep(1)
    assert world.count("delivered") == 350
    assert world.count("http_status_codes", status_code="401") == 0
    assert world.count("retries") == 0
    assert len(authority.given_s) == 5


async def test_batches_carry_tokens_too(batches, nursery, autojump_clock):
    world = batches.world
    Authority(world, nursery)
    await world.publish(*batches.numbers(25))
    async with batches.consuming({"batch_size": 10, "batch_time": 1_000}, o_auth_policy=POLICY):
        await trio.sleep(3)
    assert world.count("delivered") == 25
    assert world.count("http_status_codes", status_code="401") == 0
    assert all(b"\r\nAuthorization: Bearer 1\r\n" in push.lines for push in world.sender.pushes)


async def test_without_a_token_nothing_is_sent_nothing_slows_and_why_says_so(
    make_world, nursery, autojump_clock
):
    world = make_world()
    authority = Authority(world, nursery)
    authority.is_down = True
    await world.create()
    async with world.consuming(world.live(o_auth_policy=POLICY)) as consumer:
        await world.publish(b"1", b"2")
        await trio.sleep(10)
        status = consumer.status()
        assert "OAuth provider sso gives no token: HTTP 503" in status.held_back
        assert (status.level.value, world.sender.pushes) == ("FULL", [])
        assert world.count("failures") == 0
        assert world.count("local_failures") >= 2
        authority.is_down = False
        await trio.sleep(10)
        assert world.count("delivered") == 2
        assert consumer.status().held_back == ""
