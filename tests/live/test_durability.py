"""What a killed node loses of topics of each durability: acknowledged, delivered, lost."""

import json
import sys
import threading

import httpx
import pytest

from hermes_chaos.wanted import subscription_body, topic_body
from tests.live.endpoint import Endpoint
from tests.live.waiting import wait_until

MESSAGES = 2_000
TOPICS = {"EVENTUAL": "shop.stored", "PERFORMANCE": "shop.fast"}
PORTS = ("--publish-port", "0", "--management-port", "0")


class Subscriber:
    """Takes at most some messages while it is `slow`."""

    def __init__(self):
        self.delivered = {name: set() for name in TOPICS}
        self.is_slow = True
        self.lock = threading.Lock()

    def take(self, headers, body):
        name = headers[":path"].strip("/")
        with self.lock:
            self.delivered[name].add(json.loads(body)["n"])
        if self.is_slow:
            threading.Event().wait(0.2)
        return 200

    def counts(self):
        with self.lock:
            return {name: len(found) for name, found in self.delivered.items()}


def publish(url, name, numbers=range(MESSAGES)):
    """Publish in a batch; the numbers that were acknowledged, and what the answer says."""
    body = "".join(f'{{"n": {n}}}\n' for n in numbers)
    answer = httpx.post(
        f"{url}/topics/{TOPICS[name]}/batch",
        content=body,
        headers={"Content-Type": "application/x-ndjson"},
        timeout=60,
    )
    lines = [json.loads(line) for line in answer.text.splitlines()]
    stored = {n for n, line in enumerate(lines) if line["status"] == 201}
    return stored, answer.headers.get("hermes-durability")


@pytest.mark.live
def test_a_kill_loses_what_is_in_memory_and_not_delivered_and_nothing_else(start, data, capsys):
    subscriber = Subscriber()
    with Endpoint(subscriber.take) as endpoint:
        command = ("dev", "--json", "--dcs", "dc1", "--data", str(data), *PORTS)
        process = start(*command)
        (dc,) = process.ready["dcs"]
        with httpx.Client(base_url=dc["management"], timeout=30) as management:
            assert management.post("/groups", json={"groupName": "shop"}).is_success
            for name, topic in TOPICS.items():
                body = topic_body(topic, durability=name)
                assert management.post("/topics", json=body).is_success
                body = subscription_body(topic, "sink", f"{endpoint.url}{name}")
                path = f"/topics/{topic}/subscriptions"
                assert management.post(path, json=body).is_success
        wait_until(lambda: publish(dc["publish"], "PERFORMANCE", [0])[0], "a node holds messages")
        acknowledged = {name: publish(dc["publish"], name) for name in TOPICS}
        assert {name: says for name, (_, says) in acknowledged.items()} == {
            "EVENTUAL": None,
            "PERFORMANCE": "memory",
        }
        wait_until(lambda: min(subscriber.counts().values()) > 10, "some of each are delivered")
        process.kill()
        at_kill = subscriber.counts()
        subscriber.is_slow = False
        process = start(*command)
        wait_until(lambda: subscriber.counts()["EVENTUAL"] == MESSAGES, "all stored ones")
        (dc,) = process.ready["dcs"]
        wait_until(lambda: publish(dc["publish"], "PERFORMANCE", [-1])[0], "it goes on")
        wait_until(lambda: -1 in subscriber.delivered["PERFORMANCE"], "and is delivered")
    lost = {name: MESSAGES - count for name, count in at_kill.items()}
    lost["EVENTUAL"] = MESSAGES - subscriber.counts()["EVENTUAL"]
    assert lost["PERFORMANCE"] > 0
    with capsys.disabled():
        for name, (stored, _) in acknowledged.items():
            sys.stderr.write(
                f"\n{name}: {len(stored)} acknowledged, {at_kill[name]} delivered at the kill, "
                f"{lost[name]} lost\n"
            )
