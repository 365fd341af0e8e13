"""Clients of a pull subscription ask one node of a datacentre; another may own the subscription."""

import base64
import json

import httpx
import pytest
import trio

from hermes_actors.errors import Refused, Unavailable
from hermes_actors.management.access.roles import Anonymous
from hermes_actors.management.messages.pulls import Pulls
from hermes_actors.node import pulling
from hermes_actors.node.pulling import PullRoutes, pull_app
from hermes_actors.runtime.bridge import open_bridge
from hermes_actors.status.fold import StatusFold
from hermes_actors.status.record import NodeHeader, StatusRecord
from tests.management.conftest import subscription_of
from tests.nodes_scene import TOPIC, Cluster

ME = Anonymous()
KEY = "secret"
WORKER = f"{TOPIC}$worker"


class Desk:
    """Two nodes: clients ask `a`, whose route to `b` is that node's own app."""

    def __init__(self, cluster, client, status):
        self.cluster = cluster
        a = cluster.nodes["a"]
        self.pulls = Pulls(a.administration.subscriptions, PullRoutes(a, status, client).ask)

    async def pull(self, **body):
        answer = json.loads(await self.pulls.pull(ME, TOPIC, "worker", body))
        return answer["receivedMessages"]

    async def settle(self, verb, ids, **more):
        call = getattr(self.pulls, verb)
        return json.loads(await call(ME, TOPIC, "worker", {"ackIds": ids, **more}))

    async def moved_to_b(self):
        drains = self.cluster.nodes["a"].administration.drains
        await drains.set(ME, "dc1", "a", {"reason": "test"})
        while list(self.cluster.owners("worker")) != ["b"]:  # noqa: ASYNC110 -- tells no event
            await trio.sleep(0.1)
        await drains.undo("dc1", "a")


@pytest.fixture
async def cluster(nursery):
    cluster = Cluster(nursery)
    await cluster.start("a")
    await cluster.create()
    await cluster.start("b")
    administration = cluster.nodes["a"].administration
    fields = {"deliveryType": "PULL", "endpoint": None}
    await administration.subscriptions.create(ME, TOPIC, subscription_of("worker", TOPIC, **fields))
    await trio.sleep(2)
    return cluster


@pytest.fixture
async def desk(cluster, nursery):
    async with open_bridge() as bridge:
        b = cluster.nodes["b"]
        app = pull_app(b, KEY, bridge)
        status = StatusFold()
        header = NodeHeader(node="b", dc="dc1", boot_id="1", sequence=1, pull=("http://b", KEY))
        status.take("dc1", StatusRecord(header), 0.0)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
            desk = Desk(cluster, client, status)
            await desk.moved_to_b()
            yield desk


def told(messages):
    return {each["message"]["json"] for each in messages}


async def test_another_node_hands_out_and_settles_and_a_killed_owner_loses_nothing(
    desk, autojump_clock
):
    await desk.cluster.publish(*range(30))
    first = await desk.pull(maxMessages=20)
    assert len(told(first)) == 20
    ids = [each["ackId"] for each in first]
    assert await desk.settle("ack", ids[:10]) == {"accepted": 10, "refused": []}
    assert (await desk.settle("extend", ids[10:11], ackDeadlineSeconds=600))["accepted"] == 1
    assert (await desk.settle("nack", ids[11:12], delayMs=600_000))["accepted"] == 1
    await trio.sleep(1.5)
    desk.cluster.nodes["b"].kill()
    await desk.cluster.nodes["b"].ended.wait()
    left = await desk.pull(maxMessages=100, waitMs=30_000)
    while len(left) < 20:
        left += await desk.pull(maxMessages=100)
    assert told(left) == set(range(30)) - told(first[:10])
    assert list(desk.cluster.owners("worker")) == ["a"]
    (refused,) = (await desk.settle("ack", ids[10:11]))["refused"]
    assert refused["code"] == "STALE"
    settled = await desk.settle("ack", [each["ackId"] for each in left])
    assert settled == {"accepted": 20, "refused": []}
    assert await desk.pull(waitMs=100) == []


async def test_a_long_poll_through_another_node_is_answered_when_a_message_comes(
    desk, autojump_clock
):
    found = []
    async with trio.open_nursery() as clients:

        async def client():
            found.extend(await desk.pull(waitMs=30_000))

        clients.start_soon(client)
        await trio.sleep(10)
        await desk.cluster.publish(7)
        await trio.sleep(1)
        assert told(found) == {7}


async def test_only_a_node_that_knows_the_key_is_answered(desk, cluster, autojump_clock):
    status = StatusFold()
    header = NodeHeader(node="b", dc="dc1", boot_id="1", sequence=1, pull=("http://b", "guessed"))
    status.take("dc1", StatusRecord(header), 0.0)
    async with open_bridge() as bridge:
        app = pull_app(cluster.nodes["b"], KEY, bridge)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app)) as client:
            with pytest.raises(Unavailable, match="Node b, its owner, answers 403"):
                await Desk(cluster, client, status).pull(waitMs=0)


async def test_one_who_disconnects_gives_up_the_wait_and_the_messages_go_to_others(
    desk, cluster, autojump_clock
):
    gone = trio.Event()
    body = json.dumps({"maxMessages": 10, "waitMs": 30_000}).encode()
    events = [{"type": "http.request", "body": body}]

    async def receive():
        if events:
            return events.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    sent = []

    async def send(event):
        sent.append(event)

    async with open_bridge() as bridge, trio.open_nursery() as clients:
        b = cluster.nodes["b"]
        app = pull_app(b, KEY, bridge)
        scope = {
            "path": "/pull",
            "query_string": f"subscription={WORKER}".encode(),
            "headers": [(b"hermes-pull-key", KEY.encode())],
        }
        clients.start_soon(app, scope, receive, send)
        await trio.sleep(1)
        gone.set()
        await trio.sleep(1)
        assert sent[0]["status"] == 421
        await cluster.publish(1)
        hand_out = b.agent.consumer(WORKER).hand_out
        (out,) = await hand_out.pull(1, 5)
        assert (out.ack_id.number, out.delivery.attempts) == (1, 0)


async def test_while_the_owner_cannot_be_asked_a_client_waits_for_the_time_of_a_fail_over(
    cluster, autojump_clock
):
    desk = Desk(cluster, None, StatusFold())
    await desk.moved_to_b()
    at_s = trio.current_time()
    with pytest.raises(Unavailable, match="Node b, its owner, is not ready to deliver messages"):
        await desk.pull(waitMs=0)
    assert pulling.PATIENCE_S <= trio.current_time() - at_s < pulling.PATIENCE_S + 1


async def test_a_suspended_subscription_still_takes_acknowledgements(desk, autojump_clock):
    await desk.cluster.publish(1)
    (out,) = await desk.pull()
    subscriptions = desk.cluster.nodes["a"].administration.subscriptions
    await subscriptions.set_state(ME, TOPIC, "worker", "SUSPENDED")
    assert (await desk.settle("ack", [out["ackId"]]))["accepted"] == 1


async def test_a_number_that_clients_cannot_read_is_in_base64(desk, autojump_clock):
    await desk.cluster.publish(10**300)
    (out,) = await desk.pull()
    assert "json" not in out["message"]
    assert base64.b64decode(out["message"]["data"]) == str(10**300).encode()


async def test_pulls_that_wait_are_bounded_on_each_node(desk, autojump_clock, monkeypatch):
    monkeypatch.setattr("hermes_actors.management.messages.pulls.PULLS_MAX", 1)
    async with trio.open_nursery() as clients:
        clients.start_soon(desk.pull)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(Unavailable, match="1 pulls already"):
            await desk.pull()
        clients.cancel_scope.cancel()
    assert await desk.pull(waitMs=0) == []


async def test_a_subscription_that_is_pushed_or_suspended_is_not_pulled(cluster, autojump_clock):
    a = cluster.nodes["a"]
    pulls = Pulls(a.administration.subscriptions, PullRoutes(a, StatusFold(), None).ask)
    with pytest.raises(Refused, match="is pushed to its endpoint"):
        await pulls.pull(ME, TOPIC, "billing")
    await a.administration.subscriptions.set_state(ME, TOPIC, "worker", "SUSPENDED")
    with pytest.raises(Refused, match="is suspended"):
        await pulls.pull(ME, TOPIC, "worker")
    for body, text in (
        ({"maxMessages": 0}, r"PullRequest\.maxMessages: .*>= 1"),
        ({"waitMs": 30_001}, r"PullRequest\.waitMs: .*<= 30000"),
    ):
        with pytest.raises(Refused, match=text):
            await pulls.pull(ME, TOPIC, "worker", body)
    with pytest.raises(Refused, match=r"AckRequest\.ackIds: .*length >= 1"):
        await pulls.ack(ME, TOPIC, "worker", {"ackIds": []})
