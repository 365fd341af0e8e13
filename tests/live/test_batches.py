"""Batches over real sockets: `hermes dev` pushes, `hermes sink` takes them down."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.live.waiting import wait_until

pytestmark = pytest.mark.live


def publish(url: str, count: int) -> list[str]:
    """Publish numbers, one after the other, of one key, so of one partition: their ids."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=15)
    ids = []
    for n in range(count):
        headers = {"Partition-Key": "one"}
        connection.request("POST", "/topics/shop.orders", json.dumps({"n": n}), headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 201
        ids.append(answer.headers["Hermes-Message-Id"])
    connection.close()
    return ids


def attempts(file: Path) -> list[dict[str, Any]]:
    """The batches that a sink has written down; its last line may be half-written."""
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    lines = [json.loads(line) for line in whole.splitlines()]
    return [each for each in lines if each["path"] == "/batches"]


def wait_until_taken(file: Path, count: int) -> list[dict[str, Any]]:
    """Poll a foreign process's file: the batches that hold so many messages."""

    def all_taken() -> list[dict[str, Any]]:
        taken = [each for each in attempts(file) if each["status"] == 200]
        return taken if sum(len(json.loads(each["body"])) for each in taken) >= count else []

    return wait_until(all_taken, f"{count} messages are taken")


def test_batches_arrive_whole_once_and_in_order_though_most_fail_at_first(
    start, http, shop, tmp_path
):
    file = tmp_path / "taken.ndjson"
    arguments = ["--port", "0", "--write", str(file), "--quiet", "--json", "--fail-first", "80%"]
    sink = start("sink", *arguments)
    node = start("dev", "--dcs", "dc1", "--publish-port", "0", "--management-port", "0", "--json")
    place = node.ready["dcs"][0]
    shop(place["management"], f"{sink.ready['url']}orders")
    subscriptions = f"{place['management']}/topics/shop.orders/subscriptions"
    _, body = http("GET", f"{subscriptions}/sink")
    policy = {"batchSize": 10, "batchTime": 500, "messageBackoff": 50, "body": "ENVELOPES"}
    body |= {
        "name": "batches",
        "endpoint": f"{sink.ready['url']}batches",
        "deliveryType": "BATCH",
        "subscriptionPolicy": policy,
    }
    made = http("POST", subscriptions, body)
    assert made[0] == 201, made
    ids = publish(place["publish"], 95)
    taken = wait_until_taken(file, 95)
    envelopes = [each for batch in taken for each in json.loads(batch["body"])]
    assert [each["message"] for each in envelopes] == [{"n": n} for n in range(95)]
    assert [each["metadata"]["id"] for each in envelopes] == ids
    assert all(len(json.loads(batch["body"])) <= 10 for batch in taken)
    # Those that failed came again as they were, under their own ids.
    failed = [each for each in attempts(file) if each["status"] == 500]
    assert failed
    again = {each["messageId"]: each for each in taken if each["retryCount"] == 1}
    assert {each["messageId"]: each["body"] for each in failed} == {
        batch_id: each["body"] for batch_id, each in again.items()
    }
