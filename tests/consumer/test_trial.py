"""One made-up message, pushed once: what is sent, what comes back, and that this is all."""

import json
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from hermes_actors.consumer.senders.httpx.sender import open_httpx_sender
from hermes_actors.consumer.senders.oauth.request import Grant
from hermes_actors.consumer.senders.oauth.sender import OAuthSender, TokenRequests
from hermes_actors.consumer.senders.push_tasks import PushTasks
from hermes_actors.consumer.senders.sender import SendOutcome, parse_lines
from hermes_actors.consumer.trial import try_push
from hermes_actors.errors import Refused
from hermes_actors.model.oauth import OAuthProvider
from hermes_actors.model.redaction import MASK
from hermes_actors.model.subscription import (
    BatchBody,
    DeliveryMode,
    Header,
    OAuthPolicy,
    SigningPolicy,
)
from hermes_actors.model.topic import ContentType
from hermes_actors.telemetry.metrics import render
from tests.consumer.avro_scene import NAMED, Avro
from tests.consumer.http_doubles import STRICT, Sink, net_of, served
from tests.values import a_live_topic, a_topic

SECRET = "hunter2-hunter2"
TOPIC = a_live_topic(a_topic())


async def tried(world, live=None, body=None):
    return await try_push(live or world.live(), TOPIC, world.parts, body)


def named(headers, name):
    return [value for each, value in headers if each.lower() == name]


@asynccontextmanager
async def real(world, sink, **settings):
    """The world's sender is a real one, before a real server; gives the endpoint."""
    async with (
        served(sink) as port,
        open_httpx_sender(net_of(**settings), http2=False) as sender,
    ):
        world.parts = msgspec.structs.replace(world.parts, sender_of=lambda _live: sender)
        yield f"http://127.0.0.1:{port}/in?a=b"


async def test_a_subscriber_of_avro_is_pushed_the_avro_that_is_given(world):
    scene = Avro(world)
    live = scene.live(ContentType.AVRO)
    topic = a_live_topic(a_topic(content_type=ContentType.AVRO))
    with pytest.raises(Refused, match="has no schema"):
        await try_push(live, topic, world.parts, b"avro")
    scene.source.add(2, 22, NAMED)
    await try_push(live, topic, world.parts, b"avro")
    assert scene.bodies == [b"avro"]
    headers = scene.headers()
    assert (headers["Content-Type"], headers["Schema-Version"]) == ("avro/binary", "2")
    with pytest.raises(Refused, match=r"gets Avro; give a message in Avro"):
        await try_push(live, topic, world.parts, None)


async def test_request_and_answer_are_shown_as_they_were(world):
    sink = Sink(lambda _scope, body: (418, b"short and stout: " + body))
    sink.headers = [(b"x-kettle", b"on"), (b"set-cookie", b"sid=1")]
    async with real(world, sink) as url:
        trial = await tried(world, world.live(endpoint=url), b'{"id":1}')
    (push,) = trial.pushes
    scope, body = sink.requests[0]
    assert (trial.is_delivered, trial.outcome) == (False, "HTTP 418")
    assert (push.request.method, push.request.url) == ("POST", url)
    assert body == push.request.body.encode() == b'{"id":1}'
    sent = {name.decode(): value.decode() for name, value in scope["headers"]}
    assert {name.lower(): value for name, value in push.request.headers} == sent
    assert sent["hermes-test"] == "true"
    assert (push.answer.status, push.answer.body) == (418, 'short and stout: {"id":1}')
    assert push.answer.body_bytes == 25
    assert named(push.answer.headers, "x-kettle") == ["on"]
    assert named(push.answer.headers, "set-cookie") == [MASK]


async def test_a_message_is_made_up_that_says_what_it_is(world):
    world.sender.script = lambda _push: SendOutcome(200)
    trial = await tried(world)
    assert json.loads(world.sender.bodies[0]) == {
        "hermesTest": True,
        "topic": "shop.orders",
        "subscription": "push",
    }
    assert (trial.is_delivered, trial.outcome) == (True, "HTTP 200")


async def test_secrets_in_the_headers_of_a_request_are_masked(world):
    live = {"headers": [Header("X-Api-Key", SECRET), Header("Country", "PL")]}
    async with real(world, Sink()) as url:
        url = url.replace("http://", f"http://me:{SECRET}@")
        trial = await tried(world, world.live(endpoint=url, **live))
    (push,) = trial.pushes
    assert named(push.request.headers, "x-api-key") == [MASK]
    assert named(push.request.headers, "authorization") == [MASK]
    assert named(push.request.headers, "country") == ["PL"]
    shown = msgspec.json.encode(trial)
    assert SECRET.encode() not in shown
    # Nor as Basic has it.
    assert b"bWU6aHVudGVy" not in shown


async def test_it_is_signed_and_the_signature_is_shown(world):
    world.sender.script = lambda _push: SendOutcome(200)
    signing = SigningPolicy(["whsec_" + "QUJD" * 8])
    trial = await tried(world, world.live(signing=signing))
    (signature,) = named(trial.pushes[0].request.headers, "webhook-signature")
    sent = dict(parse_lines(world.sender.pushes[0].lines))
    assert sent[b"webhook-signature"].decode() == signature
    assert signature.startswith("v1,")


async def test_a_token_is_asked_for_shown_as_sent_and_masked(world, nursery):
    provider = OAuthProvider(
        name="sso",
        token_endpoint="https://id.test/token",
        client_id="hermes",
        client_secret="hush",
        token_request_initial_delay=1_000,
        token_request_max_delay=8_000,
        request_timeout=1_000,
    )

    async def ask(_credentials):
        return Grant(SECRET, 100.0)

    tasks = PushTasks(nursery, 10)
    tokens = TokenRequests({"sso": provider}.get, ask, tasks, world.metrics)
    policy = OAuthPolicy(grant_type="clientCredentials", provider_name="sso")
    inner = world.sender
    inner.script = lambda _push: SendOutcome(200)
    sender = OAuthSender(inner, policy, tokens)
    world.parts = msgspec.structs.replace(world.parts, sender_of=lambda _live: sender)
    trial = await tried(world, world.live(o_auth_policy=policy))
    assert SECRET.encode() in inner.pushes[0].lines
    assert named(trial.pushes[0].request.headers, "authorization") == [MASK]


@pytest.mark.parametrize("form", list(BatchBody))
async def test_a_batch_holds_the_one_message_in_its_form(batches, form):
    world = batches.world
    world.sender.script = lambda _push: SendOutcome(200)
    trial = await tried(world, batches.live(policy={"body": form}), b'{"id":1}')
    (element,) = json.loads(world.sender.bodies[0])
    message = element if form is BatchBody.MESSAGES else element["message"]
    assert message == {"id": 1}
    assert named(trial.pushes[0].request.headers, "hermes-batch-id")
    assert trial.is_delivered


async def test_what_cannot_be_part_of_a_batch_is_refused(batches):
    with pytest.raises(Refused, match="is not JSON"):
        await tried(batches.world, batches.live(), b"no json")
    assert batches.world.sender.pushes == []


async def test_nothing_is_counted_settled_or_tried_again(world):
    await world.publish(b"1")
    world.sender.script = lambda _push: SendOutcome(503)
    before = render([world.metrics])
    trial = await tried(world)
    await trio.testing.wait_all_tasks_blocked()
    assert (trial.is_delivered, len(world.sender.pushes)) == (False, 1)
    assert render([world.metrics]) == before
    assert await world.committed() is None


async def test_an_order_is_not_claimed_for_what_lies_nowhere_in_it(world):
    world.sender.script = lambda _push: SendOutcome(200)
    trial = await tried(world, world.live(policy={"ordered": True}))
    assert named(trial.pushes[0].request.headers, "hermes-sequence") == []


async def test_each_recipient_of_a_broadcast_is_pushed_to_once(world):
    world.sender.script = lambda push: SendOutcome(
        500 if push.route.origin.host == "b.test" else 200
    )
    live = world.live(endpoint="http://a.test/;http://b.test/", mode=DeliveryMode.BROADCAST)
    trial = await tried(world, live)
    assert [each.outcome for each in trial.pushes] == ["HTTP 200", "HTTP 500"]
    assert not trial.is_delivered
    assert trial.outcome.startswith("HTTP 500: missed by http://b.test:80/")


# What goes wrong.


async def test_a_refusal_of_the_guard_is_told_and_nothing_is_sent(world):
    sink = Sink()
    async with real(world, sink, guard=STRICT) as url:
        trial = await tried(world, world.live(endpoint=url))
    (push,) = trial.pushes
    assert trial.outcome.startswith("forbidden: ")
    assert "loopback" in trial.outcome
    assert (push.answer, sink.requests) == (None, [])
    assert push.request.url == url


async def test_an_endpoint_that_is_silent_ends_it_with_the_request_timeout(world, autojump_clock):
    world.sender.script = lambda _push: None
    live = world.live(policy={"request_timeout": 2_000})
    begun_s = trio.current_time()
    trial = await tried(world, live)
    assert trio.current_time() - begun_s == pytest.approx(3.0)
    assert trial.outcome == "timeout: not all recipients answered in time"
    assert trial.pushes[0].outcome == "no answer yet"
    # Late, and heard by nobody.
    world.sender.unanswered[0](SendOutcome(200))


async def test_what_cannot_be_delivered_at_all_is_refused_with_its_reason(world):
    with pytest.raises(Refused, match="cannot be pushed to: endpoint: the scheme must be one of"):
        await tried(world, world.live(endpoint="jms://queue"))
