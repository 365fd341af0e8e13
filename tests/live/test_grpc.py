"""Clients in Python, Go and Java publish, stream, subscribe and acknowledge."""

import os
import queue
import runpy
import shutil
import signal
import subprocess
from pathlib import Path

import grpc
import httpx
import pytest

from hermes_actors.rpc.v1 import broker_pb2, broker_pb2_grpc
from hermes_chaos.wanted import subscription_body, topic_body
from tests.live.test_pull import owned_by
from tests.live.waiting import wait_until

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).parents[2] / "examples" / "grpc"
TOPIC = "shop.orders"
PORTS = ("--publish-port", "0", "--management-port", "0")
GRPC = {"HERMES_GRPC_ENABLED": "true", "HERMES_GRPC_PORT": "0"}


@pytest.fixture
def dc(start):
    process = start("dev", "--json", "--dcs", "dc1", "--consumers", "2", *PORTS, **GRPC)
    (found,) = process.ready["dcs"]
    found["process"] = process
    with httpx.Client(base_url=found["management"], timeout=30) as management:
        found["client"] = management
        assert management.post("/groups", json={"groupName": "shop"}).is_success
        assert management.post("/topics", json=topic_body(TOPIC)).is_success
        for name in ("billing", "mail"):
            policy = {"ackDeadlineSeconds": 2, "messageBackoff": 100}
            body = subscription_body(
                TOPIC, name, None, deliveryType="PULL", subscriptionPolicy=policy
            )
            created = management.post(f"/topics/{TOPIC}/subscriptions", json=body)
            assert created.is_success, created.text
        yield found


class Subscriber:
    """A stream of one subscription. Its client sends when it likes."""

    def __init__(self, channel, name, most=100):
        self.requests = queue.SimpleQueue()
        self.send(
            start=broker_pb2.Start(topic=TOPIC, subscription=name, max_outstanding_messages=most)
        )
        stub = broker_pb2_grpc.SubscriberServiceStub(channel)
        self.call = stub.Subscribe(iter(self.requests.get, None), timeout=60)

    def send(self, **request):
        self.requests.put(broker_pb2.SubscribeRequest(**request))

    def messages(self, count):
        """The next messages, by body."""
        found = {}
        while len(found) < count:
            for each in next(self.call).received_messages:
                found[each.message.data] = each
        return found

    def ack(self, *received):
        self.send(acknowledge=broker_pb2.Acknowledge(ack_ids=[each.ack_id for each in received]))

    def close(self):
        """Everything sent is settled when this returns."""
        self.requests.put(None)
        assert [each for each in self.call if each.received_messages] == []


def publish(channel, *bodies):
    stub = broker_pb2_grpc.PublisherServiceStub(channel)
    messages = [broker_pb2.Message(data=body) for body in bodies]
    answer = stub.Publish(broker_pb2.PublishRequest(topic=TOPIC, messages=messages), timeout=30)
    assert {each.http_status for each in answer.outcomes} == {201}


def test_a_subscriber_acknowledges_gives_back_and_extends_and_one_that_dies_loses_nothing(dc):
    bodies = [b'{"n": %d}\n' % n for n in range(6)]
    with grpc.insecure_channel(dc["grpc"]) as channel:
        publish(channel, *bodies)
        first = Subscriber(channel, "billing")
        found = first.messages(6)
        assert found.keys() == set(bodies), "byte for byte"
        acked, nacked, later, extended, *left = (found[body] for body in bodies)
        first.ack(acked)
        first.send(nack=broker_pb2.Nack(ack_ids=[nacked.ack_id], delay_ms=0))
        first.send(nack=broker_pb2.Nack(ack_ids=[later.ack_id], delay_ms=30_000))
        first.send(
            modify_ack_deadline=broker_pb2.ModifyAckDeadline(
                ack_ids=[extended.ack_id], ack_deadline_seconds=60
            )
        )
        (again,) = first.messages(1).values()
        assert (again.message.data, again.delivery_attempt) == (bodies[1], 2)
        first.ack(again, again)
        refused = next(answer.refused for answer in first.call if answer.refused)
        assert [each.code for each in refused] == ["NOT_OUT"]
        first.call.cancel()

        second = Subscriber(channel, "billing", most=1)
        for _ in left:
            (one,) = second.messages(1).values()
            assert one.message.data in bodies[4:]
            second.ack(one)
        second.close()


def test_a_subscriber_goes_on_when_the_owner_is_killed_and_its_stream_ends_with_the_node(dc):
    management, process = dc["client"], dc["process"]
    drained = "/balancer/drains/dc1/dc1-1"
    assert management.put(drained, json={"reason": "test"}).is_success
    wait_until(lambda: owned_by(management, "dc1-2"), "dc1-2 owns both")
    assert management.delete(drained).is_success
    with grpc.insecure_channel(dc["grpc"]) as channel:
        publish(channel, b"1")
        subscriber = Subscriber(channel, "mail")
        (one,) = subscriber.messages(1).values()
        subscriber.ack(one)
        os.kill(process.popen.pid, signal.SIGUSR1)
        publish(channel, b"2")
        found = {}
        while b"2" not in found:
            found = subscriber.messages(1)
        process.popen.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as ended:
            list(subscriber.call)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert ended.value.details() == "The node is stopping; subscribe again, at another node"
        subscriber.requests.put(None)


@pytest.mark.parametrize(("language", "program"), [("go", "go"), ("java", "mvn")])
def test_a_client_made_from_the_proto_publishes_and_acknowledges(dc, language, program, tmp_path):
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on the PATH, so the client in {language} cannot be built")
    command = runpy.run_path(str(EXAMPLES / "build.py"))["build"](language, tmp_path)
    found = subprocess.run(
        [*command, dc["grpc"], TOPIC, "billing", "101"],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    told = ["published alone 201", "published in frames 100", "acknowledged 101"]
    assert found.stdout.splitlines() == told, found.stderr
