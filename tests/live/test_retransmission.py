"""Suspending, activating and retransmitting while publishers publish, over real logs."""

import http.client
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hermes_actors.runtime.clock import SystemClock
from tests.live.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.live

PATH = "/topics/shop.orders/subscriptions/sink"


class Publisher(threading.Thread):
    """Publishes until it is stopped; `numbers` are those that were answered with 201."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.numbers: list[int] = []
        self._netloc = urlsplit(url).netloc
        self._enough = threading.Event()
        self._broke_off = ""

    def run(self) -> None:
        try:
            self._publish(http.client.HTTPConnection(self._netloc, timeout=10))
        except (OSError, http.client.HTTPException) as error:
            self._broke_off = repr(error)

    def _publish(self, connection: http.client.HTTPConnection) -> None:
        count = 0
        while not self._enough.wait(0.005):
            count += 1
            connection.request("POST", "/topics/shop.orders", json.dumps({"number": count}))
            answer = connection.getresponse()
            answer.read()
            if answer.status == 201:
                self.numbers.append(count)
        connection.close()

    def wait_for(self, more: int) -> None:
        wanted = len(self.numbers) + more

        def has_published() -> bool:
            assert not self._broke_off, f"after {len(self.numbers)} publishes: {self._broke_off}"
            return len(self.numbers) >= wanted

        wait_until(has_published, f"{more} more publishes")

    def stop(self) -> None:
        self._enough.set()
        self.join(timeout=30)


def taken(file: Path) -> list[int]:
    """The numbers that the sink has accepted, in its order."""
    if not file.exists():
        return []
    whole = file.read_text().rpartition("\n")[0]
    return [json.loads(json.loads(line)["body"])["number"] for line in whole.splitlines()]


def settled(file: Path) -> int:
    """How many it has accepted, once nothing comes any more for half a second."""
    counts = [-1]
    pause = threading.Event()
    while len(set(counts[-6:])) > 1 or len(counts) < 6:
        pause.wait(0.1)
        counts.append(len(taken(file)))
        assert len(counts) < WAIT_S / 0.1, "deliveries do not end"
    return counts[-1]


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.soak])]
)
def log_variables(request: pytest.FixtureRequest, data: Path) -> Iterator[dict[str, str]]:
    """What makes a node use a log of its own, or Kafka."""
    variables = {"HERMES_LOG_DIRECTORY": str(data)}
    if request.param == "kafka":
        cluster = request.getfixturevalue("make_kafka_cluster")()
        variables["HERMES_KAFKA_CLUSTERS_DC1_BOOTSTRAP_SERVERS"] = ",".join(
            cluster.bootstrap_servers
        )
    return variables


@pytest.mark.slow
def test_nothing_is_lost_by_suspending_activating_and_retransmitting_under_load(
    start, shop, http, ports, tmp_path, log_variables
):
    file = tmp_path / "taken.ndjson"
    sink = start("sink", "--port", "0", "--write", str(file), "--quiet", "--json")
    own = ports(2)
    node = start(
        "node",
        "--json",
        HERMES_FRONTEND_PORT=str(own[0]),
        HERMES_MANAGEMENT_PORT=str(own[1]),
        HERMES_FRONTEND_GRACEFUL_SHUTDOWN_INITIAL_WAIT_MS="0",
        **log_variables,
    )
    management = node.ready["management"]
    shop(management, f"{sink.ready['url']}orders")
    wait_until(
        lambda: http("GET", f"{management}{PATH}/state")[1] == "ACTIVE", "an active subscription"
    )

    def state(wanted: str) -> None:
        assert http("PUT", f"{management}{PATH}/state", wanted)[0] == 200

    def move(body: dict[str, Any]) -> dict[str, Any]:
        status, answer = http("PUT", f"{management}{PATH}/retransmission", body)
        assert status == 200, answer
        # What is answered has happened: the committed positions are the new ones, or beyond.
        _, lag = http("GET", f"{management}{PATH}/lag")
        (dc,) = lag["datacenters"]
        found = {each["partition"]: each["position"] for each in dc["partitions"]}
        assert all(found[each["partition"]] >= each["offset"] for each in answer["dc1"])
        assert not any(each["isSeekPending"] for each in dc["partitions"])
        return answer

    publisher = Publisher(node.ready["publish"])
    publisher.start()
    publisher.wait_for(200)
    middle = datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC).isoformat()
    before = len(publisher.numbers)
    publisher.wait_for(200)
    # Of those from the date on, some that are surely later, whatever the clocks round.
    later = publisher.numbers[before + 5 : before + 100]

    def have_come(numbers: list[int], times: int) -> bool:
        counts = Counter(taken(file))
        return all(counts[number] >= times for number in numbers)

    def is_halted() -> bool:
        _, why = http("GET", f"{management}{PATH}/why")
        return why["state"] == "SUSPENDED" and not why["datacenters"][0]["isDelivering"]

    # Back, while it runs.
    wait_until(lambda: have_come(later, 1), "deliveries")
    move({"retransmissionDate": middle})
    wait_until(lambda: have_come(later, 2), "deliveries from the date on")
    # What is slow may come twice by itself, but not all that was before the date.
    assert not have_come(publisher.numbers[:100], 2)
    # Back to the start, while it is suspended, and nothing new comes meanwhile.
    state("SUSPENDED")
    move({"to": "start"})
    wait_until(is_halted, "rest")
    halted = len(publisher.numbers) + 1
    publisher.wait_for(100)
    assert not set(publisher.numbers[halted:]) & set(taken(file))
    state("ACTIVE")
    publisher.wait_for(100)
    for _ in range(3):
        state("SUSPENDED")
        state("ACTIVE")
        publisher.wait_for(30)
    publisher.stop()
    acknowledged = publisher.numbers
    wait_until(lambda: have_come(acknowledged, 1), "all that was acknowledged")
    # From the start on everything came again.
    wait_until(lambda: have_come(acknowledged[:100], 2), "deliveries from the start on")
    wait_until(lambda: have_come(later, 3), "deliveries from the date on, again")
    # Forward: nothing is left, and nothing that there was comes any more.
    move({"to": "end"})
    wait_until(lambda: http("GET", f"{management}{PATH}/lag")[1]["lag"] == 0, "no lag")
    assert node.terminate()[0] == 0


def hermes(*arguments: str) -> tuple[int, str]:
    """A command line as a user types it: exit code, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "hermes_actors", "subscription", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_the_command_moves_a_subscription_in_all_datacentres(start, shop, http, tmp_path):
    file = tmp_path / "taken.ndjson"
    sink = start("sink", "--port", "0", "--write", str(file), "--quiet", "--json")
    node = start("dev", "--publish-port", "0", "--management-port", "0", "--json")
    first, second = node.ready["dcs"]
    shop(first["management"], f"{sink.ready['url']}orders")
    topic = "/topics/shop.orders"
    wait_until(lambda: http("GET", second["management"] + topic)[0] == 200, "the topic in dc2")
    for number, dc in enumerate([first, second, second]):
        wait_until(
            lambda dc=dc, number=number: (
                http("POST", dc["publish"] + topic, {"number": number})[0] == 201
            ),
            "a publish",
        )
    wait_until(lambda: sorted(taken(file)) == [0, 1, 2], "three deliveries")
    names = ("shop.orders", "sink")
    # By the management of the other datacentre than the subscription was made in.
    server = ("--management", second["management"])
    code, said = hermes("retransmit", *names, "--to", "start", "--dry-run", *server)
    assert (code, said.splitlines()[-1].split()[-3:]) == (0, ["continue", "from", "there"])
    assert settled(file) == 3
    code, said = hermes("retransmit", *names, "--to", "start", *server)
    assert code == 0, said
    assert {line.split()[0] for line in said.splitlines()[1:-1]} == {"dc1", "dc2"}
    wait_until(lambda: sorted(taken(file)) == [0, 0, 1, 1, 2, 2], "each message once more")
    wait_until(lambda: hermes("lag", *names, *server)[1].endswith("total: 0\n"), "no lag")
    code, said = hermes("why", *names, *server)
    assert code == 0
    assert "subscription sink of shop.orders is ACTIVE" in said
    code, said = hermes("retransmit", *names, "--offset", "dc3/0=1", *server)
    assert code == 1
    assert "there is no datacentre dc3; there are dc1, dc2" in said
