"""Pushes with tokens: renewed early, one request at a time, and a 401 tried again."""

import itertools

import msgspec
import pytest
import trio
import trio.testing

from hermes_actors.consumer.recipients.endpoint import parse_endpoint
from hermes_actors.consumer.senders.oauth.request import Grant, TokenDenied
from hermes_actors.consumer.senders.oauth.sender import OAuthSender, TokenRequests
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import (
    Failure,
    Push,
    Sender,
    SendOutcome,
)
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.subscription import OAuthPolicy
from hermes_actors.telemetry.metrics import Metrics

ROUTE = parse_endpoint("http://sink/in", "lane").resolve(b"")
POLICY = OAuthPolicy(grant_type="clientCredentials", provider_name="sso")
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
    """Gives tokens 1, 2, 3…, after a while, or what it is told to answer."""

    def __init__(self):
        self.delay_s = 0.05
        self.lifetime_s = 100.0
        self.denial = ""
        self.asked_s = []
        self.credentials = []
        self.under_way = self.under_way_high = 0

    async def ask(self, credentials):
        self.asked_s.append(trio.current_time())
        self.credentials.append(credentials)
        self.under_way += 1
        self.under_way_high = max(self.under_way_high, self.under_way)
        number = len(self.asked_s)
        await trio.sleep(self.delay_s)
        self.under_way -= 1
        if self.denial:
            raise TokenDenied(self.denial)
        return Grant(f"token-{number}", self.lifetime_s)


class Inner(Sender):
    """A sender that answers by the token: 200 for those in `good` (None: for all), else 401."""

    def __init__(self, nursery):
        self._nursery = nursery
        self.good = None
        self.pushes = []
        self.delay_s = 0.01
        self.probes = []
        self.forgotten = []

    def forget(self, lane):
        self.forgotten.append(lane)

    def send(self, push, done):
        self.pushes.append(push)
        token = self.tokens[-1]
        is_good = self.good is None or token in self.good
        self._nursery.start_soon(self._answer, SendOutcome(200 if is_good else 401), done)

    async def _answer(self, outcome, done):
        await trio.sleep(self.delay_s)
        done(outcome)

    def probe(self, route, done):
        self.probes.append(route)
        self._nursery.start_soon(self._answer, None, done)
        return True

    @property
    def tokens(self):
        found = [push.lines.partition(b"Authorization: ")[2] for push in self.pushes]
        return [each.split(b"\r\n")[0].decode() for each in found]


class World:
    def __init__(self, nursery, *, waiting_max=1_000):
        self.nursery = nursery
        self.authority = Authority()
        self.metrics = Metrics("hermes_consumers")
        self.tasks = PushTasks(nursery, waiting_max)
        self.providers = {"sso": PROVIDER}
        self.inner = Inner(nursery)
        self.sender = self.of()

    def of(self, inner=None, policy=POLICY):
        requests = TokenRequests(
            lambda name: self.providers.get(name),
            lambda credentials: self.authority.ask(credentials),
            self.tasks,
            self.metrics,
        )
        return OAuthSender(inner or self.inner, policy, requests)

    def start(self, done, sender=None, timeout_ms=1_000, lines=b"A: b\r\n"):
        (sender or self.sender).send(Push(ROUTE, lines, b"{}", timeout_ms), done)

    async def push(self, sender=None, **arguments):
        event, outcomes = trio.Event(), []
        self.start(lambda each: (outcomes.append(each), event.set()), sender, **arguments)
        assert not outcomes
        await event.wait()
        assert len(outcomes) == 1
        return outcomes[0]

    @property
    def asked(self):
        return len(self.authority.asked_s)


@pytest.fixture
async def oauth(nursery):
    return World(nursery)


async def test_what_nobody_waits_for_is_forgotten_by_the_sender_below(oauth, autojump_clock):
    oauth.sender.forget("lane")
    assert oauth.inner.forgotten == ["lane"]


async def test_a_forgotten_push_that_waits_for_a_token_ends(oauth, autojump_clock):
    oauth.authority.denial = "no"
    ended = []
    oauth.start(ended.append, timeout_ms=60_000)
    await trio.sleep(1)
    oauth.sender.forget("other")
    await trio.testing.wait_all_tasks_blocked()
    assert ended == []
    oauth.sender.forget("lane")
    await trio.testing.wait_all_tasks_blocked()
    assert [each.failure for each in ended] == [Failure.CLOSED]


async def test_a_token_request_that_raises_is_one_that_was_denied(oauth, autojump_clock, caplog):
    async def broken(_credentials):
        raise KeyError("secret")

    ask, oauth.authority.ask = oauth.authority.ask, broken
    outcome = await oauth.push()
    assert outcome.failure is Failure.TOKENLESS
    assert "the sender failed: KeyError" in outcome.detail
    oauth.authority.ask = ask
    await trio.sleep(60)
    assert (await oauth.push()).status == 200


async def test_a_push_waits_for_the_first_token_and_carries_it(oauth, autojump_clock):
    assert (await oauth.push()).status == 200
    assert oauth.inner.tokens == ["Bearer token-1"]
    assert oauth.inner.pushes[0].lines.startswith(b"A: b\r\n")
    assert (await oauth.push()).status == 200
    assert oauth.asked == 1


async def test_what_names_its_sender_already_goes_as_it_is(oauth, autojump_clock):
    basic = b"A: b\r\nAUTHORIZATION: Basic dTpw\r\n"
    assert (await oauth.push(lines=basic)).status == 200
    assert oauth.inner.pushes[0].lines == basic
    assert oauth.asked == 0
    assert (await oauth.push(lines=b"X-Authorization: 1\r\n")).status == 200
    assert oauth.asked == 1


async def test_a_token_is_renewed_early_and_no_push_waits_or_fails_for_it(oauth, autojump_clock):
    latencies = []
    for _ in range(400):
        began_s = trio.current_time()
        assert (await oauth.push()).status == 200
        latencies.append(trio.current_time() - began_s)
        await trio.sleep(0.99)
    # Nothing but the first waits, and the endpoint is never shown a token that has run out.
    assert max(latencies[1:]) == pytest.approx(0.01)
    assert oauth.authority.under_way_high == 1
    assert [round(each) for each in oauth.authority.asked_s] == [0, 80, 160, 240, 320]


async def test_an_idle_subscription_asks_for_nothing_and_never_sends_an_old_token(
    oauth, autojump_clock
):
    await oauth.push()
    await trio.sleep(1_000)
    assert oauth.asked == 1
    assert (await oauth.push()).status == 200
    assert oauth.inner.tokens == ["Bearer token-1", "Bearer token-2"]


async def test_a_401_is_tried_again_at_once_with_a_new_token(oauth, autojump_clock):
    await oauth.push()
    await trio.sleep(10)
    oauth.inner.good = {"Bearer token-2"}
    began_s = trio.current_time()
    assert (await oauth.push()).status == 200
    assert trio.current_time() - began_s < 0.1
    assert oauth.inner.tokens == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


async def test_a_hundred_401s_of_one_token_ask_for_one_other(oauth, autojump_clock):
    await oauth.push()
    await trio.sleep(10)
    oauth.inner.good = {"Bearer token-2"}
    outcomes = []
    for _ in range(100):
        oauth.start(outcomes.append)
    await trio.sleep(0.9)
    assert [outcome.status for outcome in outcomes] == [200] * 100
    assert oauth.asked == 2


async def test_an_endpoint_that_takes_no_token_gets_each_push_twice_at_most(oauth, autojump_clock):
    oauth.inner.good = set()
    assert (await oauth.push()).status == 401
    for _ in range(20):
        await oauth.push()
        await trio.sleep(1)
    asked_s = oauth.authority.asked_s
    waits = [round(b - a) for a, b in itertools.pairwise(asked_s)]
    assert waits[:4] == [1, 2, 4, 8]
    assert set(waits[4:]) <= {8, 9}
    assert "does not take the token" in oauth.sender.trouble


async def test_without_a_token_a_push_is_a_failure_of_our_own_that_says_why(oauth, autojump_clock):
    oauth.authority.denial = "HTTP 400: invalid_client"
    began_s = trio.current_time()
    outcome = await oauth.push(timeout_ms=700)
    assert trio.current_time() - began_s == pytest.approx(0.7)
    assert (outcome.failure, outcome.is_local) == (Failure.TOKENLESS, True)
    assert outcome.reason() == (
        "no-token: OAuth provider sso gives no token: HTTP 400: invalid_client"
    )
    assert oauth.sender.trouble == "OAuth provider sso gives no token: HTTP 400: invalid_client"
    assert oauth.inner.pushes == []
    oauth.authority.denial = ""
    await trio.sleep(10)
    assert (await oauth.push()).status == 200
    assert oauth.sender.trouble == ""


async def test_requests_for_a_token_that_fail_come_less_and_less_often(oauth, autojump_clock):
    oauth.authority.denial, oauth.authority.delay_s = "HTTP 500", 0.0
    await oauth.push(timeout_ms=40_000)
    asked_s = [round(each, 1) for each in oauth.authority.asked_s]
    assert asked_s == [0.0, 1.0, 3.0, 7.0, 15.0, 23.0, 31.0, 39.0]


async def test_a_token_that_is_still_good_outlives_its_providers_outage(oauth, autojump_clock):
    await oauth.push()
    oauth.authority.denial = "HTTP 503"
    await trio.sleep(85)
    assert (await oauth.push()).status == 200
    await trio.sleep(1)
    assert (await oauth.push()).status == 200
    await trio.sleep(30)
    assert (await oauth.push()).failure is Failure.TOKENLESS


async def test_a_push_tried_again_keeps_to_its_request_time(oauth, autojump_clock):
    await oauth.push()
    await trio.sleep(10)
    oauth.inner.good, oauth.authority.delay_s = {"Bearer token-2"}, 0.5
    assert (await oauth.push(timeout_ms=2_000)).status == 200
    again = oauth.inner.pushes[-1]
    assert 1_400 < again.request_timeout_ms < 1_500
    # And is a 401 in the end when no other token comes in time.
    oauth.inner.good, oauth.authority.delay_s = set(), 60.0
    await trio.sleep(10)
    began_s = trio.current_time()
    assert (await oauth.push()).status == 401
    assert trio.current_time() - began_s == pytest.approx(1.0)


async def test_a_provider_may_come_later_and_a_change_of_it_brings_a_new_token(
    oauth, nursery, autojump_clock
):
    oauth.providers = {}
    sender = oauth.of()
    assert sender.trouble == "OAuth provider sso does not exist"
    outcome = await oauth.push(sender)
    assert (outcome.failure, "does not exist" in outcome.detail) == (Failure.TOKENLESS, True)
    event, outcomes = trio.Event(), []
    oauth.start(lambda each: (outcomes.append(each), event.set()), sender, timeout_ms=10_000)
    await trio.sleep(3)
    oauth.providers["sso"] = PROVIDER
    await event.wait()
    assert outcomes[0].status == 200
    oauth.providers["sso"] = msgspec.structs.replace(PROVIDER, client_id="other")
    assert (await oauth.push(sender)).status == 200
    assert oauth.inner.tokens == ["Bearer token-1", "Bearer token-2"]


async def test_what_waits_is_bounded_and_ends_when_the_node_does(autojump_clock):
    outcomes = []
    async with trio.open_nursery() as nursery:
        # The request for the token takes a place too.
        world = World(nursery, waiting_max=3)
        world.authority.delay_s = 1_000
        for _ in range(3):
            world.start(outcomes.append)
        await trio.sleep(0.1)
        assert [each.failure for each in outcomes] == [Failure.OVERLOADED]
        assert world.sender.trouble == "waits for a token of OAuth provider sso"
        world.tasks.close()
        nursery.cancel_scope.cancel()
    assert [each.failure for each in outcomes[1:]] == [Failure.CLOSED] * 2
    world.start(outcomes.append)
    await trio.testing.wait_all_tasks_blocked()
    assert outcomes[3].failure is Failure.CLOSED


async def test_probes_need_no_token_and_only_a_sender_that_can_probes(oauth, autojump_clock):
    answers = []
    assert oauth.sender.probe(ROUTE, answers.append)
    await trio.sleep(1)
    assert (answers[0].failure if answers[0] else None, oauth.asked) == (None, 0)

    class Plain(Sender):
        def send(self, push, done):
            """Never."""

    assert not oauth.of(Plain()).probe(ROUTE, answers.append)


async def test_token_requests_are_counted_by_provider(oauth, autojump_clock):
    await oauth.push()
    oauth.authority.denial = "HTTP 500"
    await trio.sleep(200)
    await oauth.push()

    def counted(result):
        return oauth.metrics.counter("oauth_token_requests", provider="sso", result=result).value

    assert (counted("granted"), counted("denied")) == (1, 1)
