"""Clients of two pull subscriptions, with one of them and the owner's node killed in the middle."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import httpx
import pytest

from hermes_chaos.wanted import subscription_body, topic_body
from tests.live.conftest import HERMES
from tests.live.waiting import wait_until

MESSAGES = int(os.environ.get("PULL_TEST_MESSAGES", "3000"))
GROUPS, CLIENTS = ("billing", "mail"), 3
TOPIC = "/topics/shop.orders"
PUBLISHED_AT_ONCE = 500


@pytest.fixture
def cluster(start):
    ports = ("--publish-port", "0", "--management-port", "0")
    process = start("dev", "--json", "--dcs", "dc1", "--consumers", "2", *ports)
    (dc,) = process.ready["dcs"]
    with (
        httpx.Client(base_url=dc["management"], timeout=30) as management,
        httpx.Client(base_url=dc["publish"], timeout=30) as publishing,
    ):
        yield process, management, publishing


def create(management):
    assert management.post("/groups", json={"groupName": "shop"}).is_success
    assert management.post("/topics", json=topic_body("shop.orders")).is_success
    for name in GROUPS:
        pulled = {"deliveryType": "PULL", "subscriptionPolicy": {"ackDeadlineSeconds": 5}}
        body = subscription_body("shop.orders", name, None, **pulled)
        assert management.post(f"{TOPIC}/subscriptions", json=body).is_success


def publish(publishing, first, last):
    for at in range(first, last, PUBLISHED_AT_ONCE):
        lines = [json.dumps({"n": n}) for n in range(at, min(last, at + PUBLISHED_AT_ONCE))]
        answer = publishing.post(
            f"{TOPIC}/batch",
            content="\n".join(lines) + "\n",
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert answer.is_success, answer.text


@pytest.mark.live
def test_what_is_published_is_acknowledged_by_each_group_whatever_is_killed(
    cluster, tmp_path, capsys
):
    process, management, publishing = cluster
    create(management)
    wait_until(lambda: len(management.get(f"{TOPIC}/subscriptions").json()) == 2, "created")
    # The node that will be killed owns both.
    drained = "/balancer/drains/dc1/dc1-1"
    assert management.put(drained, json={"reason": "test"}).is_success
    wait_until(lambda: owned_by(management, "dc1-2"), "dc1-2 owns both")
    assert management.delete(drained).is_success

    printed, clients = {}, {}
    for name in GROUPS:
        for number in range(CLIENTS):
            path = printed[name, number] = tmp_path / f"{name}-{number}"
            command = [
                *HERMES,
                "pull",
                "shop.orders",
                name,
                "--management",
                str(management.base_url),
            ]
            with path.open("wb") as out:
                clients[name, number] = subprocess.Popen(
                    command, stdout=out, stderr=subprocess.DEVNULL
                )
    try:
        half = MESSAGES // 2
        publish(publishing, 0, half)
        wait_until(lambda: total(printed["billing", 0]) > 0, "the first client is at work")
        clients["billing", 0].kill()
        os.kill(process.popen.pid, signal.SIGUSR1)
        publish(publishing, half, MESSAGES)
        wanted = set(range(MESSAGES))
        for name in GROUPS:
            files = [path for (each, _), path in printed.items() if each == name]
            wait_until(lambda files=files: found(files).keys() >= wanted, f"{name} has all")
        wait_until(lambda: lag(management) == 0, "all is settled")
        assert owned_by(management, "dc1-1")
    finally:
        for client in clients.values():
            client.kill()
            client.wait()
    with capsys.disabled():
        for name in GROUPS:
            counts = found([path for (each, _), path in printed.items() if each == name])
            copies = sum(counts.values()) - len(counts)
            sys.stderr.write(f"\n{name}: {len(counts)} messages, {copies} duplicates\n")


def found(files):
    """How often each message was printed."""
    counts = Counter()
    for path in files:
        for line in path.read_bytes().splitlines():
            # The last line of a killed client may be cut.
            try:
                counts[json.loads(line)["message"]["json"]["n"]] += 1
            except ValueError:
                continue
    return counts


def total(path):
    return path.stat().st_size


def lag(management):
    return sum(management.get(f"{TOPIC}/subscriptions/{name}/lag").json()["lag"] for name in GROUPS)


def owned_by(management, node):
    for name in GROUPS:
        about = {"about": f"shop.orders${name}"}
        (dc,) = management.get("/balancer/explain", params=about).json()["datacenters"]
        if {owner["node"] for each in dc["subscriptions"] for owner in each["owners"]} != {node}:
            return False
    return True
